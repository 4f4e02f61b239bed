"""docs/conformance.md matches the tests, and each number in a test's name is a behaviour."""

from __future__ import annotations

from pathlib import Path

from tests.kit.conformance_page import behaviours, page, shown_by_number

PAGE = Path(__file__).resolve().parents[2] / "docs" / "conformance.md"


def test_the_page_is_made_from_the_tests() -> None:
    assert PAGE.read_text("utf-8") == page(), "run: python -m tests.kit.conformance_page > docs/conformance.md"


def test_every_behaviour_has_one_number_and_every_test_one_behaviour_at_least() -> None:
    numbers = [behaviour.number for behaviour in behaviours()]
    assert numbers == [*range(1, 236)]
    assert set(shown_by_number()) <= set(numbers)
