"""docs/api.md matches the code."""

from __future__ import annotations

import konverse
from tests.architecture.tree import ROOT
from tests.kit.api_page import page


def test_the_page_of_public_names_is_that_of_the_code() -> None:
    written = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    assert written == page(), "run: python -m tests.kit.api_page > docs/api.md"


def test_every_name_of_the_package_is_on_the_page_and_there() -> None:
    written = page()
    for name in konverse.__all__:
        assert getattr(konverse, name) is not None
        assert name in written
