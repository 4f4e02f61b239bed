"""What a router writes can be read again, whatever stands in it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konverse.routing.decisions import Target
from konverse.routing.documents import Origin, origin_of, passed_on, read_redirect, redirect_body, shortened
from konverse.schemas.errors import BadInput, MalformedRecord
from konverse.schemas.limits import ERROR_DESCRIPTION_CHARACTERS_MAX
from konverse.schemas.system_messages import error_body

NAMES = st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S")), min_size=1, max_size=40)
TEXTS = st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S", "Zs")), min_size=1, max_size=60)


@given(NAMES, st.integers(-99_999, 2**31 - 1), TEXTS)
def test_the_origin_of_an_error_is_read_again(service: str, code: int, text: str) -> None:
    assert origin_of(passed_on(service, error_body(code, text))) == Origin(service, code, text)


def test_an_error_that_came_through_two_routers_names_both() -> None:
    first = passed_on("//a: b", error_body(404, "none"))
    second = passed_on("//router", error_body(10001, first))
    outer = origin_of(second)
    assert outer is not None
    assert (outer.service, outer.code) == ("//router", 10001)
    assert origin_of(outer.description) == Origin("//a: b", 404, "none")


@pytest.mark.parametrize(
    "text", ["", "no such thing", "Error 5 of something", 'Error 5 from service "a', 'Error 5 from service "a" and']
)
def test_other_descriptions_have_no_origin(text: str) -> None:
    assert origin_of(text) is None


def test_an_error_that_is_none_is_passed_on_as_it_is() -> None:
    assert origin_of(passed_on("a", b"\xffgone")) == Origin("a", 0, "\ufffdgone")


def test_a_long_error_is_shortened_to_what_one_may_carry() -> None:
    text = passed_on("a", error_body(5, "x" * ERROR_DESCRIPTION_CHARACTERS_MAX))
    assert len(text) == ERROR_DESCRIPTION_CHARACTERS_MAX
    assert text.endswith("x\u2026")
    assert shortened("short") == "short"


@given(NAMES, st.none() | NAMES)
def test_a_redirection_is_read_again(service: str, instance: str | None) -> None:
    assert read_redirect(redirect_body(Target(service, instance))) == Target(service, instance)


def test_a_redirection_is_read_as_the_original_lays_it_out() -> None:
    body = b"<RedirectTo>\n <ServiceName>//a</ServiceName>\n <BrokerInstance/>\n</RedirectTo>"
    assert read_redirect(body) == Target("//a")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<RedirectTo>",
        b"<RedirectTo/>",
        b"<RedirectTo><ServiceName/></RedirectTo>",
        b"<Other><ServiceName>a</ServiceName></Other>",
        b"<!DOCTYPE x [<!ENTITY a 'b'>]><RedirectTo><ServiceName>&a;</ServiceName></RedirectTo>",
        b"<?xml version='1.0' encoding='nobody knows'?><RedirectTo/>",
    ],
)
def test_what_is_no_redirection_is_refused(body: bytes) -> None:
    with pytest.raises(MalformedRecord, match="RedirectTo"):
        read_redirect(body)


def test_a_redirection_is_bytes() -> None:
    text: Any = "<RedirectTo/>"
    with pytest.raises(BadInput, match="bytes, not str"):
        read_redirect(text)
