"""Bulk decoding equals the decoders of the schemas."""

from __future__ import annotations

from typing import Final, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konverse.schemas.errors import MalformedRecord
from konverse.schemas.identifiers import Role
from konverse.schemas.limits import TIMEOUT_MS_MAX, WRITER_RECORDS_MAX
from konverse.schemas.wire import records
from konverse.schemas.wire.envelope import decode, decode_suffix, encode, encode_envelope, encode_suffix
from konverse.schemas.wire.records import Detail, Envelope, Kind, Suffix
from konverse.spark.log import frame, suffix
from tests.kit.builders import Scribe, begin_block, identifier
from tests.kit.strategies import damaged, envelopes, suffixes
from tests.spark.logs import ORDERS

PREFIX: Final = Scribe("writer").message(ORDERS, identifier("a conversation"))[:39]
LONGEST: Final = WRITER_RECORDS_MAX - 1
SOMEBODY: Final = identifier("somebody")
DETAILS: Final[list[Detail]] = [
    records.End(SOMEBODY, ORDERS, ((SOMEBODY, 300),)),
    records.Bounce(SOMEBODY, 300, ORDERS, records.BounceReason.ENDED),
    records.Notice(SOMEBODY, 300, ORDERS, records.NoticeReason.GAP),
    records.WriterClosed(SOMEBODY, 300, ORDERS),
    records.Pending(SOMEBODY, 300, begins=False, judge=ORDERS, judge_writer=SOMEBODY),
    records.Decision(SOMEBODY, 300, begins=False, final=True),
    records.Veto(SOMEBODY, 300, begins=False, attempt=SOMEBODY, at=ORDERS),
    records.FinAnswer(SOMEBODY, ((SOMEBODY, 300),)),
    records.BounceId(SOMEBODY, 300, ORDERS),
    records.Opened(SOMEBODY),
    records.Forwarded(3, records.Origin("orders", 0, SOMEBODY, 300), 300, (("trace", b"x"),), PREFIX),
    records.Closed(3),
    records.Timer(60_000),
]


def one_by_one(header: bytes | None) -> Envelope | None:
    if header is None:
        return None
    try:
        return decode(header)
    except MalformedRecord:
        return None


def assert_same(found: frame.Frame, headers: list[bytes | None]) -> None:
    expected = [one_by_one(header) for header in headers]
    assert found.sound.tolist() == [envelope is not None for envelope in expected]
    for row, envelope in enumerate(expected):
        if envelope is None:
            continue
        assert (Kind(found.kind[row]), Role(found.role[row])) == (envelope.kind, envelope.role)
        assert found.tagged_writer[row].tobytes() == envelope.tag + envelope.writer
        assert found.conversation[row].tobytes() == envelope.conversation
        assert (found.counter[row], found.sequence[row]) == (envelope.counter, envelope.sequence)
        assert found.message_type[row].as_py() == envelope.suffix.message_type


@given(st.lists(st.none() | envelopes.map(encode_envelope), max_size=20))
def test_honest_headers_decode_in_bulk_as_one_by_one(headers: list[bytes | None]) -> None:
    assert_same(frame.decode(headers), headers)


@given(st.lists(damaged(envelopes.map(encode_envelope)), max_size=12))
def test_damaged_headers_decode_in_bulk_as_one_by_one(headers: list[bytes]) -> None:
    assert_same(frame.decode(headers), [*headers])


def test_numbers_of_every_length_are_read() -> None:
    tail = encode_suffix(Suffix("order"))
    numbers = [0, -1, 63, 64, 8191, 8192, (WRITER_RECORDS_MAX - 1), LONGEST, -LONGEST - 1]
    headers = [encode(PREFIX, counter, sequence, tail) for counter in numbers for sequence in numbers]
    assert_same(frame.decode(headers), [*headers])


def test_records_by_the_zero_id_and_closings_of_it_are_not_sound() -> None:
    zero = bytes(16)
    headers = [
        encode_envelope(Envelope(kind, 0, Role.INITIATOR, ORDERS.tag, writer, conversation, 0, -1, Suffix()))
        for kind in (Kind.MESSAGE, Kind.CLOSE_WRITER, Kind.VOID)
        for writer in (zero, SOMEBODY)
        for conversation in (zero, SOMEBODY)
    ]
    messages, closings, voids = [False, False, True, True], [False, False, False, True], [False, False, True, True]
    assert frame.decode(headers).sound.tolist() == [*messages, *closings, *voids]
    assert_same(frame.decode(headers), [*headers])


@pytest.mark.parametrize("kind", [Kind.VOID, Kind.LATER, 26, 62])
def test_a_record_of_a_later_kind_has_no_message_type(kind: int) -> None:
    """What its header holds behind the numbers is not known."""
    honest = encode(PREFIX, 300, 7, encode_suffix(Suffix("order")))
    headers = [bytes([2 * kind]) + honest[1:]]
    assert_same(frame.decode(headers), [*headers])
    assert frame.decode(headers).message_type.to_pylist() == ["order" if kind == Kind.VOID else ""]


def test_a_header_cut_anywhere_is_not_sound() -> None:
    whole = encode(PREFIX, 300, 7, encode_suffix(Suffix("order")))
    headers = [whole[:size] for size in range(len(whole))]
    assert not frame.decode(headers).sound.any()
    assert frame.decode([*headers, whole]).sound.tolist() == [False] * len(whole) + [True]


def read(data: bytes) -> str | None:
    """The message type from the decoder."""
    try:
        return decode_suffix(data).message_type
    except MalformedRecord:
        return None


@given(suffixes.map(encode_suffix))
def test_the_message_type_of_a_suffix_is_found_without_building_it(data: bytes) -> None:
    assert suffix.message_type(data) == decode_suffix(data).message_type


@given(damaged(suffixes.map(encode_suffix)))
def test_a_suffix_is_walked_only_where_the_decoder_takes_it(data: bytes) -> None:
    expected = read(data)
    assert suffix.message_type(data) == expected
    try:
        walked = suffix.walk(data)
    except (LookupError, ValueError):
        return
    assert walked == expected


@pytest.mark.parametrize(
    "lifetime_ms", [-WRITER_RECORDS_MAX, -2, -1, 0, 1, TIMEOUT_MS_MAX, TIMEOUT_MS_MAX + 1, WRITER_RECORDS_MAX]
)
def test_a_lifetime_is_taken_where_the_decoder_takes_it(lifetime_ms: int) -> None:
    data = encode_suffix(Suffix("order", begin=begin_block()._replace(lifetime_ms=lifetime_ms)))
    assert suffix.message_type(data) == read(data)


@pytest.mark.parametrize("detail", DETAILS, ids=lambda detail: type(detail).__name__)
def test_a_damaged_detail_of_any_kind_is_read_as_the_decoder_reads_it(detail: Detail) -> None:
    honest = encode_suffix(Suffix("order", detail=detail))
    assert suffix.message_type(honest) == "order"
    for at in range(len(honest)):
        for byte in {*range(20), 0x7F, 0x80, 0x81, 0xFF}:
            data = honest[:at] + bytes([byte]) + honest[at + 1 :]
            assert suffix.message_type(data) == read(data)


@pytest.mark.parametrize("detail", DETAILS, ids=lambda detail: type(detail).__name__)
def test_a_detail_that_was_cut_anywhere_is_read_as_the_decoder_reads_it(detail: Detail) -> None:
    honest = encode_suffix(Suffix("order", detail=detail))
    for size in range(len(honest)):
        assert suffix.message_type(honest[:size]) == read(honest[:size])


@pytest.mark.parametrize("detail", DETAILS[:5], ids=lambda detail: type(detail).__name__)
def test_a_usual_detail_is_walked(detail: Detail) -> None:
    """Decoding it takes ten times as long, and Spark reads such records by the million."""
    assert suffix.walk(encode_suffix(Suffix("order", detail=detail))) == "order"


def test_every_kind_of_detail_was_damaged() -> None:
    assert {type(detail) for detail in DETAILS} == {*get_args(Detail)} - {type(None)}


def test_the_usual_suffixes_are_walked() -> None:
    scribe = Scribe("writer")
    plain = scribe.message(ORDERS, identifier("a conversation"))
    assert suffix.walk(plain[41:]) == "order"
