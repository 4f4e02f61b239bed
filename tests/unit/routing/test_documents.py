"""A router's documents can be read again, whatever they contain."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konverse.routing.documents import read_redirect, redirect_body
from konverse.schemas.catalog.table_entries import Target
from konverse.schemas.errors import BadInput, MalformedRecord

NAMES = st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S")), min_size=1, max_size=40)


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
def test_an_invalid_redirect_document_is_malformed(body: bytes) -> None:
    with pytest.raises(MalformedRecord, match="RedirectTo"):
        read_redirect(body)


def test_reading_a_redirection_takes_time_in_proportion_to_its_body() -> None:
    """The parser reports each line end by itself. Appended to one text, those of the second body took seconds."""
    times = []
    for lines in (40_000, 400_000):
        body = b"<RedirectTo><ServiceName>a%b</ServiceName></RedirectTo>" % (b"\n" * lines)
        began = time.process_time()
        assert read_redirect(body) == Target("a")
        times.append(time.process_time() - began)
    assert times[1] < 40 * max(times[0], 0.01)


def test_a_redirection_is_bytes() -> None:
    text: Any = "<RedirectTo/>"
    with pytest.raises(BadInput, match="bytes, not str"):
        read_redirect(text)
