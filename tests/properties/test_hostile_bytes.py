"""For any bytes, a decoder returns a value or raises MalformedRecord, in little time and memory (P15, P16)."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from konverse.dialog.owner.view import ViewRow, unpack
from konverse.schemas.catalog.objects import Change, decode_change, encode_change
from konverse.schemas.errors import MalformedRecord
from konverse.schemas.identifiers import Address, Role
from konverse.schemas.limits import HEADER_BYTES_MAX
from konverse.schemas.system_messages import Rejection
from konverse.schemas.wire.envelope import PREFIX_BYTES, decode, encode_envelope, encode_suffix
from konverse.schemas.wire.journal import (
    Claim,
    Commit,
    CommitOperations,
    Part,
    encode_claim,
    encode_commit,
    encode_part,
)
from konverse.schemas.wire.journal import decode as decode_journal
from konverse.schemas.wire.records import NO_SEQUENCE, End, Envelope, Kind, Suffix
from konverse.schemas.wire.varint import varint
from tests.kit.strategies import ABSURD, changes, claims, commits, counters, damaged, envelopes, parts

SECONDS_MAX: Final = 0.05
SPARE_BYTES: Final = 100_000
"""Memory that a decoder may need besides a multiple of its input: buffers, an exception, a traceback."""

Decoder = Callable[[bytes], Any]


def outcome(decoder: Decoder, data: bytes) -> Any:
    """The value or MalformedRecord. Any other exception fails the test."""
    try:
        return decoder(data)
    except MalformedRecord:
        return MalformedRecord


def seconds(decoder: Decoder, data: bytes) -> float:
    """CPU time of one call, the best of three, so that a garbage collection does not count."""
    best = float("inf")
    for _ in range(3):
        start = time.thread_time()
        outcome(decoder, data)
        best = min(best, time.thread_time() - start)
        if best < SECONDS_MAX:
            break
    return best


def peak_bytes(decoder: Decoder, data: bytes) -> int:
    tracemalloc.start()
    try:
        outcome(decoder, data)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


HEADERS: Final = envelopes.map(encode_envelope)
JOURNAL: Final = st.one_of(commits.map(encode_commit), claims.map(encode_claim), parts.map(encode_part))
CHANGES: Final = changes.map(encode_change)


@given(damaged(HEADERS))
def test_an_envelope_or_malformed_record_comes_of_any_bytes(data: bytes) -> None:
    assert seconds(decode, data) < SECONDS_MAX
    value = outcome(decode, data)
    if value is not MalformedRecord:
        assert isinstance(value, Envelope)
        if value.kind is Kind.LATER:
            return  # of a later version: no code here reads it fully, or writes it
        assert data[:PREFIX_BYTES] == encode_envelope(value)[:PREFIX_BYTES]
        assert data.endswith(encode_suffix(value.suffix)), "one record in two forms"


@given(damaged(JOURNAL))
def test_a_journal_record_or_malformed_record_comes_of_any_bytes(data: bytes) -> None:
    assert seconds(decode_journal, data) < SECONDS_MAX
    value = outcome(decode_journal, data)
    assert value is MalformedRecord or isinstance(value, Claim | Commit | Part)


@given(damaged(CHANGES))
def test_a_change_or_malformed_record_comes_of_any_bytes(data: bytes) -> None:
    assert seconds(decode_change, data) < SECONDS_MAX
    value = outcome(decode_change, data)
    assert value is MalformedRecord or isinstance(value, Change)


@given(
    st.one_of(
        st.binary(max_size=20), st.builds(lambda c, r: c + r, st.binary(min_size=16, max_size=16), st.just(b"I"))
    ),
    st.one_of(
        st.binary(max_size=100),
        st.lists(counters, min_size=7, max_size=9).map(lambda numbers: bytes(9) + b"".join(map(varint, numbers))),
    ),
)
def test_a_row_or_malformed_record_comes_of_any_bytes(field: bytes, value: bytes) -> None:
    row = outcome(lambda data: unpack(field, data), value)
    assert row is MalformedRecord or isinstance(row, ViewRow)


ANYWHERE: Final = Address("orders", 0, b"tagg")
VALID: Final[dict[str, tuple[Decoder, bytes]]] = {
    "envelope": (
        decode,
        encode_envelope(
            Envelope(
                *(Kind.END, 0, Role.TARGET, b"tagg", b"w" * 16, b"c" * 16, 7, NO_SEQUENCE),
                Suffix("a type", detail=End(b"o" * 16, ANYWHERE, ((b"w" * 16, 3),))),
            )
        ),
    ),
    "commit": (
        decode_journal,
        encode_commit(
            Commit(
                *(1, b"o" * 16, 1, bytes(32), 3),
                CommitOperations(
                    receive_endpoints=[0], receive_positions=[4], sends=[(0, "a", [b"body"]), (1, "b", [b""])]
                ),
                output_acks=[(ANYWHERE, 2)],
                rejected=[(1, Rejection(2, "no element found"))],
                contested=[3],
            )
        ),
    ),
    "change": (decode_change, encode_change(Change(3, "a database", "a kind", "a name", None))),
}


@pytest.mark.parametrize("number", ABSURD, ids=bytes.hex)
@pytest.mark.parametrize("what", VALID)
def test_an_absurd_number_at_any_place_costs_neither_time_nor_memory(what: str, number: bytes) -> None:
    decoder, data = VALID[what]
    for at in range(len(data)):
        for end in (at, at + 1):
            changed = data[:at] + number + data[end:]
            outcome(decoder, changed)
    middle = data[: len(data) // 2] + number + data[len(data) // 2 :]
    assert seconds(decoder, middle) < SECONDS_MAX


@settings(max_examples=60)
@given(st.one_of(damaged(HEADERS).map(lambda d: (decode, d)), damaged(JOURNAL).map(lambda d: (decode_journal, d))))
def test_damaged_bytes_take_little_memory(case: tuple[Decoder, bytes]) -> None:
    decoder, data = case
    assert peak_bytes(decoder, data) < SPARE_BYTES + 40 * len(data)


@pytest.mark.parametrize("number", ABSURD, ids=bytes.hex)
def test_an_absurd_count_of_writers_takes_little_memory(number: bytes) -> None:
    """The longest array in an envelope of the largest size."""
    header = VALID["envelope"][1]
    at = header.index(b"\x02" + b"w" * 16 + b"\x06\x00")
    hostile = (header[:at] + number + b"w" * HEADER_BYTES_MAX)[:HEADER_BYTES_MAX]
    assert outcome(decode, hostile) is MalformedRecord
    assert peak_bytes(decode, hostile) < SPARE_BYTES + 40 * len(hostile)


@pytest.mark.parametrize("size", [HEADER_BYTES_MAX + 1, 2**20, 2**24])
def test_an_envelope_that_is_too_long_is_not_looked_into(size: int) -> None:
    header = bytes(size)
    with pytest.raises(MalformedRecord, match=f"at most {HEADER_BYTES_MAX} are allowed"):
        decode(header)
    assert peak_bytes(decode, header) < SPARE_BYTES


def test_a_row_of_a_megabyte_is_not_looked_into() -> None:
    value = bytes(2**20)
    assert outcome(lambda data: unpack(b"c" * 16 + b"I", data), value) is MalformedRecord
    assert peak_bytes(lambda data: unpack(b"c" * 16 + b"I", data), value) < SPARE_BYTES
