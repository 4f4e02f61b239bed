"""Errors that routers forward can be read again, whatever they contain."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konverse.schemas.limits import ERROR_DESCRIPTION_CHARACTERS_MAX
from konverse.schemas.origins import PASSED_ON_ERROR, ErrorOrigin, first_code, origin_of, passed_on
from konverse.schemas.system_messages import error_body, shortened

NAMES = st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S")), min_size=1, max_size=40)
TEXTS = st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S", "Zs")), min_size=1, max_size=60)


@given(NAMES, st.integers(-99_999, 2**31 - 1), TEXTS)
def test_the_origin_of_an_error_is_read_again(service: str, code: int, text: str) -> None:
    assert origin_of(passed_on(service, error_body(code, text))) == ErrorOrigin(service, code, text)


def test_an_error_that_came_through_two_routers_names_both() -> None:
    first = passed_on("//a: b", error_body(404, "none"))
    second = passed_on("//router", error_body(10001, first))
    outer = origin_of(second)
    assert outer is not None
    assert (outer.service, outer.code) == ("//router", 10001)
    assert origin_of(outer.description) == ErrorOrigin("//a: b", 404, "none")


@pytest.mark.parametrize(
    "text", ["", "no such thing", "Error 5 of something", 'Error 5 from service "a', 'Error 5 from service "a" and']
)
def test_other_descriptions_have_no_origin(text: str) -> None:
    assert origin_of(text) is None


def test_a_description_with_a_code_of_thousands_of_digits_has_no_origin() -> None:
    text = f'Error {"1" * 5_000} from service "a": none'
    assert origin_of(text) is None
    assert first_code(PASSED_ON_ERROR, text) == PASSED_ON_ERROR


def test_an_error_that_is_none_is_passed_on_as_it_is() -> None:
    assert origin_of(passed_on("a", b"\xffgone")) == ErrorOrigin("a", 0, "\ufffdgone")


def test_a_long_error_is_shortened_to_the_maximum_description_length() -> None:
    text = passed_on("a", error_body(5, "x" * ERROR_DESCRIPTION_CHARACTERS_MAX))
    assert len(text) == ERROR_DESCRIPTION_CHARACTERS_MAX
    assert text.endswith("x\u2026")
    assert shortened("short") == "short"


def test_the_first_code_of_a_forwarded_error_is_that_of_its_origin() -> None:
    first = passed_on("//depot", error_body(-9719, "given up"))
    second = passed_on("//router", error_body(PASSED_ON_ERROR, first))
    assert [first_code(PASSED_ON_ERROR, text) for text in (first, second)] == [-9719, -9719]
    assert first_code(PASSED_ON_ERROR, "of somebody who says so himself") == PASSED_ON_ERROR
    assert first_code(7, first) == 7
