"""The token of an unknown outcome, as an application may store it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konverse.schemas.errors import MalformedRecord
from konverse.schemas.wire.token import Sent, Token, decode, encode
from tests.kit.strategies import addresses, counters, identifiers

sent = st.builds(
    Sent,
    writer=identifiers,
    address=addresses,
    conversation=identifiers,
    sequence=counters,
    counters=st.sets(counters, min_size=1, max_size=20).map(lambda found: tuple(sorted(found))),
    held=st.just(-1),
) | st.builds(
    Sent,
    writer=identifiers,
    address=addresses,
    conversation=identifiers,
    sequence=counters,
    counters=st.just(()),
    held=counters,
)


tokens = st.builds(Token, sent=st.lists(sent, min_size=1, max_size=4).map(tuple), transmission=st.none() | addresses)


@given(tokens)
def test_a_token_decodes_to_its_original_content(said: Token) -> None:
    assert decode(encode(said)) == said


@given(tokens, st.data())
def test_a_token_that_was_changed_is_another_one_or_none(said: Token, data: st.DataObject) -> None:
    token = bytearray(encode(said))
    token[data.draw(st.integers(0, len(token) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        found = decode(bytes(token))
    except MalformedRecord:
        return
    assert encode(found) == token


@given(st.binary(max_size=80))
def test_any_bytes_are_a_token_or_malformed(data: bytes) -> None:
    try:
        decode(data)
    except MalformedRecord as error:
        assert "token" in str(error)  # noqa: PT017  # of any bytes


def test_a_token_about_nothing_is_none() -> None:
    with pytest.raises(MalformedRecord):
        decode(encode(Token(())))
