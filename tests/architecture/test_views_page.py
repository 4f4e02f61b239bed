"""docs/views.md matches the code."""

from __future__ import annotations

from tests.architecture.tree import ROOT
from tests.kit.views_page import page


def test_the_page_of_views_is_that_of_the_code() -> None:
    written = (ROOT / "docs" / "views.md").read_text(encoding="utf-8")
    assert written == page(), "run: python -m tests.kit.views_page > docs/views.md"
