"""docs/code.md matches the imports of the code."""

from __future__ import annotations

from tests.architecture.tree import ROOT
from tests.kit.code_page import page, shortest


def test_the_page_of_the_code_is_that_of_the_imports() -> None:
    written = (ROOT / "docs" / "code.md").read_text(encoding="utf-8")
    assert written == page(), "run: python -m tests.kit.code_page > docs/code.md"


def test_an_arrow_that_repeats_a_way_over_others_is_left_out() -> None:
    graph = {"owner": {"fold", "state"}, "fold": {"rules"}, "rules": {"state"}, "state": set()}
    assert shortest(graph) == {"owner": {"fold"}, "fold": {"rules"}, "rules": {"state"}, "state": set()}
