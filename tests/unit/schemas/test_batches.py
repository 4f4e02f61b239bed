"""The content of a batch, and invalid batches."""

from __future__ import annotations

from typing import Any

import pytest

from konverse.schemas.errors import MalformedRecord
from konverse.schemas.limits import BATCH_RECORDS_MAX, BODY_BYTES_MAX
from konverse.schemas.wire.batches import (
    ABANDONED,
    Batch,
    decode_batch,
    decode_winners,
    encode_batch,
    encode_winners,
    winners_at,
)
from tests.kit.builders import address_of, identifier

ONE, TWO = identifier("one"), identifier("two")
BATCH = Batch(identifier("q"), 3, (ONE, TWO), {address_of("replies"): (1, 0)}, {address_of("orders"): (0, 7)})


def test_the_winners_of_a_partition_are_those_that_have_rows_there() -> None:
    assert winners_at(BATCH, (2, 0)) == ((ONE, 2),)
    assert winners_at(BATCH, (0, 0)) == ()


@pytest.mark.parametrize(
    "changes",
    [
        {"number": -1},
        {"number": ABANDONED},
        {"attempts": (ONE, ONE)},
        {"attempts": (ONE,)},
        {"targets": {address_of("orders"): (-1, 1)}},
        {"targets": {address_of("orders"): (BATCH_RECORDS_MAX, 1)}},
        {"homes": {address_of("\0"): (0, 0)}},
    ],
)
def test_a_batch_that_cannot_be_is_malformed(changes: dict[str, Any]) -> None:
    assert decode_batch(encode_batch(BATCH)) == BATCH
    with pytest.raises(MalformedRecord):
        decode_batch(encode_batch(BATCH._replace(**changes)))


def test_bytes_behind_a_batch_and_bytes_beyond_reason_are_malformed() -> None:
    for data in (encode_batch(BATCH) + b"\0", b"", bytes(BODY_BYTES_MAX + 1)):
        with pytest.raises(MalformedRecord):
            decode_batch(data)


@pytest.mark.parametrize("counts", [(-1, 2), (BATCH_RECORDS_MAX, 1), (1 << 60, 0)])
def test_a_decision_about_more_rows_than_there_can_be_is_malformed(counts: tuple[int, int]) -> None:
    with pytest.raises(MalformedRecord):
        decode_winners(encode_winners(((ONE, counts[0]), (TWO, counts[1]))))
