"""Catalog records are read as they were written, with the same types."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konverse.schemas.catalog.objects import Change, decode_change, encode_change
from konverse.schemas.errors import MalformedRecord
from tests.kit.strategies import changes


@given(changes)
def test_a_change_is_read_back(change: Change) -> None:
    decoded = decode_change(encode_change(change))
    assert decoded == change
    assert type(decoded.value) is type(change.value)


@given(changes, st.data())
def test_a_cut_change_is_malformed(change: Change, data: st.DataObject) -> None:
    whole = encode_change(change)
    with pytest.raises(MalformedRecord):
        decode_change(whole[: data.draw(st.integers(0, len(whole) - 1))])


@given(changes, st.binary(min_size=1, max_size=9))
def test_a_change_with_bytes_behind_it_is_malformed(change: Change, more: bytes) -> None:
    with pytest.raises(MalformedRecord, match="trailing bytes"):
        decode_change(encode_change(change) + more)
