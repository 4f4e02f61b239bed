"""The outbox: outputs of valid commits, numbered per destination, until they are acknowledged."""

from __future__ import annotations

import pytest

from konverse.dialog.owner.emitter import Emit
from konverse.dialog.state.outbox import Run, Stream
from konverse.schemas.identifiers import Role
from konverse.schemas.wire.envelope import decode, encode, encode_suffix, flagged
from konverse.schemas.wire.records import ACKED, FIRST, NO_SEQUENCE, Kind, Suffix
from tests.kit.builders import address_of, identifier, records_of

WRITER = identifier("the owner")


def output(stream: Stream, number: int) -> Run:
    prefix = stream.head(Kind.MESSAGE, Role.TARGET) + identifier("c")
    return Run(prefix, b"key", number, encode_suffix(Suffix("t")), [str(number).encode()])


@pytest.fixture
def stream() -> Stream:
    """A stream with five outputs, numbered 0 to 4."""
    stream = Stream(address_of(), WRITER)
    for number in range(5):
        stream.push(output(stream, number))
    return stream


def bodies(stream: Stream) -> list[bytes | None]:
    return [body for run in stream.runs for body in run.bodies]


def cut(stream: Stream, first: int, count: int) -> list[bytes | None]:
    return [body for run in stream.cut(first, count) for body in run.bodies]


@pytest.mark.parametrize(("counter", "rest"), [(0, [0, 1, 2, 3, 4]), (2, [2, 3, 4]), (5, [])])
def test_acknowledged_records_are_removed_from_the_stream(stream: Stream, counter: int, rest: list[int]) -> None:
    stream.acknowledge(counter)
    assert bodies(stream) == [str(number).encode() for number in rest]
    assert (stream.acked, stream.next) == (counter, 5)


def test_an_acknowledgement_never_moves_back(stream: Stream) -> None:
    stream.acknowledge(3)
    stream.acknowledge(1)
    assert (stream.acked, bodies(stream)) == (3, [b"3", b"4"])


def test_an_acknowledgement_beyond_the_last_output_acknowledges_only_existing_outputs(stream: Stream) -> None:
    stream.acknowledge(99)
    assert (stream.acked, stream.next, bodies(stream)) == (5, 5, [])
    stream.push(output(stream, 5))
    assert stream.next == 6


def test_a_run_is_asked_for_by_counter(stream: Stream) -> None:
    stream.acknowledge(2)
    assert cut(stream, 3, 1) == [b"3"]
    assert cut(stream, 2, 10) == [b"2", b"3", b"4"]
    assert cut(stream, 5, 10) == []


@pytest.mark.parametrize("sequence", [5, NO_SEQUENCE])
def test_a_run_is_cut_and_forgotten_in_parts_which_keep_their_numbers(stream: Stream, sequence: int) -> None:
    stream.acknowledge(5)
    stream.push(output(stream, sequence)._replace(bodies=[b"5", b"6", b"7"]))
    stream.push(output(stream, 0))
    stream.acknowledge(6)
    assert bodies(stream) == [b"6", b"7", b"0"]
    assert cut(stream, 7, 2) == [b"7", b"0"]
    emit = Emit(stream.address, 7, stream.cut(7, 1))
    ((header, _, body),) = records_of(emit)
    assert (decode(header).counter, decode(header).sequence, body) == (7, 7 if sequence == 5 else NO_SEQUENCE, b"7")


def test_a_head_names_kind_role_flags_destination_and_writer(stream: Stream) -> None:
    header = encode(stream.head(Kind.ERROR, Role.TARGET, FIRST) + identifier("c"), 4, 2, encode_suffix(Suffix("t")))
    envelope = decode(header)
    assert (envelope.kind, envelope.role, envelope.flags) == (Kind.ERROR, Role.TARGET, FIRST)
    assert (envelope.tag, envelope.writer) == (address_of().tag, WRITER)
    assert stream.heads == (stream.head(Kind.MESSAGE, Role.INITIATOR), stream.head(Kind.MESSAGE, Role.TARGET))


@pytest.mark.parametrize("first", [0, 1, 8_190, 8_191, 8_192, 16_380, 2**40 - 3])
def test_an_output_carries_a_finished_header_with_the_running_counter(first: int) -> None:
    stream = Stream(address_of(), WRITER)
    stream.next = stream.acked = first
    outputs = [output(stream, number) for number in (-1, 0, 8_191, 8_192, 2**40)]
    for one in outputs:
        stream.push(one)
    emit = Emit(stream.address, first, stream.cut(first, len(outputs)))
    prefixes = [flagged(outputs[0].prefix, ACKED) if first else outputs[0].prefix, *(one.prefix for one in outputs[1:])]
    assert [header for header, _, _ in records_of(emit)] == [
        encode(prefix, first + place, one.sequence, one.suffix)
        for place, (prefix, one) in enumerate(zip(prefixes, outputs, strict=True))
    ]


def test_the_first_output_after_all_earlier_ones_have_arrived_vouches_for_them(stream: Stream) -> None:
    def flags() -> list[int]:
        runs = stream.cut(stream.acked, stream.waiting)
        return [decode(header).flags for header, _, _ in records_of(Emit(stream.address, stream.acked, runs))]

    assert flags() == [0] * 5, "none of them follows others that have arrived"
    stream.acknowledge(3)
    stream.push(output(stream, 5))
    assert flags() == [0] * 3, "the outputs before it may not have arrived"
    stream.acknowledge(6)
    stream.push(output(stream, 6)._replace(bodies=[b"6", b"7", b"8"]))
    assert flags() == [ACKED, 0, 0]
    assert bodies(stream) == [b"6", b"7", b"8"]
