"""Numbers and names in texts."""

from __future__ import annotations

import pytest

from konverse.schemas.counting import counted, listed


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 records"), (1, "1 record"), (2, "2 records"), (2_345, "2,345 records")]
)
def test_one_thing_is_named_in_the_singular_and_any_other_number_in_the_plural(number: int, text: str) -> None:
    assert counted(number, "record") == text


@pytest.mark.parametrize(("number", "text"), [(1, "1 process ends"), (3, "3 processes end")])
def test_a_plural_of_its_own_takes_the_place_of_the_noun_with_an_s(number: int, text: str) -> None:
    assert counted(number, "process ends", "processes end") == text


@pytest.mark.parametrize(("names", "text"), [("", ""), ("a", "a"), ("abc", "a, b, c"), ("abcd", "a, b, c and 1 more")])
def test_of_many_names_the_first_are_shown_and_the_others_counted(names: str, text: str) -> None:
    assert listed(names) == text
    assert listed(iter(names)) == text
