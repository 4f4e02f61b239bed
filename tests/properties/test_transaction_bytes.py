"""The body of a TRANSACTION is read as it was written. Any other bytes give a value or MalformedRecord."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konverse.schemas.errors import MalformedRecord
from konverse.schemas.limits import BODY_BYTES_MAX
from konverse.schemas.wire.client_transaction import (
    TransactionDialog,
    TransactionRecord,
    TransactionStep,
    decode,
    encode,
)
from konverse.schemas.wire.records import FOR_EVER, Kind
from tests.kit.strategies import begins, identifiers, sequences, texts, timeouts

KINDS = [Kind.MESSAGE, Kind.BEGIN, Kind.END_CALL, Kind.FIN]


@st.composite
def transactions(draw: st.DrawFn) -> TransactionRecord:
    """Some dialogs, and steps on them."""
    dialogs = draw(st.lists(st.builds(TransactionDialog, identifiers, begins), min_size=1, max_size=3))
    place, body = st.integers(0, len(dialogs) - 1), st.none() | st.binary(max_size=30)
    steps = st.builds(TransactionStep, place, st.sampled_from(KINDS), sequences, texts, body, st.just(FOR_EVER))
    steps |= st.builds(TransactionStep, place, st.just(Kind.SET_TIMER), sequences, st.just(""), body, timeouts)
    return TransactionRecord(dialogs, draw(st.lists(steps, max_size=5)))


@given(transactions())
def test_an_encoded_transaction_is_decoded_unchanged(transaction: TransactionRecord) -> None:
    assert decode(encode(transaction)) == transaction


@given(st.binary(max_size=200))
def test_a_transaction_or_malformed_record_comes_of_any_bytes(data: bytes) -> None:
    with contextlib.suppress(MalformedRecord):
        decode(data)


@given(transactions(), st.data())
def test_a_damaged_transaction_is_read_or_malformed(transaction: TransactionRecord, data: st.DataObject) -> None:
    whole = bytearray(encode(transaction))
    whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(MalformedRecord):
        decode(bytes(whole[: data.draw(st.integers(0, len(whole)))]))


def test_a_transaction_that_is_too_long_is_malformed() -> None:
    with pytest.raises(MalformedRecord, match="at most"):
        decode(bytes(BODY_BYTES_MAX + 1))
