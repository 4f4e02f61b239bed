"""Accepted records, and the counters of all others (protocol.md section 3, `ingest`)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from konverse.dialog.fold.ingest import ingest
from konverse.dialog.state.partition import Statistics
from konverse.dialog.state.recent import RecordColumns
from konverse.schemas.limits import WRITER_RECORDS_MAX
from konverse.schemas.wire.records import NO_SEQUENCE, Kind, Suffix
from tests.kit.builders import GARBAGE, Pair, Scribe, Side, address_of, begin_block, columns_of, identifier, record


@pytest.fixture
def pair() -> Pair:
    return Pair()


def counted(side: Side, header: bytes | None) -> dict[str, int]:
    """The statistics that one record changes, and by how much."""
    before = replace(side.state.statistics)
    side.take(header, b"body")
    changes = {
        name: getattr(side.state.statistics, name) - getattr(before, name) for name in Statistics.__dataclass_fields__
    }
    return {name: change for name, change in changes.items() if change}


def next_message(pair: Pair, conversation: bytes, **changes: Any) -> bytes:
    return pair.client.message(pair.target.address, conversation, **changes)


# ------------------------------------------------------------------------------------------------------- acceptance


def test_the_next_counter_is_accepted(pair: Pair) -> None:
    conversation = pair.begin()
    assert counted(pair.target, next_message(pair, conversation)) == {"accepted": 1}


def test_a_counter_that_was_accepted_is_a_duplicate(pair: Pair) -> None:
    conversation = pair.begin(messages=3)
    for counter in (0, 1, 2):
        assert counted(pair.target, next_message(pair, conversation, counter=counter)) == {"duplicates": 1}
    assert pair.receiver(conversation).received == 3


def test_a_counter_that_leaves_one_out_is_a_gap_and_accepted_when_its_turn_comes(pair: Pair) -> None:
    conversation = pair.begin()
    third = next_message(pair, conversation, counter=2)
    assert counted(pair.target, third) == {"gaps": 1}
    assert counted(pair.target, next_message(pair, conversation, counter=1)) == {"accepted": 1}
    assert counted(pair.target, third) == {"accepted": 1}


def test_an_unknown_writer_begins_at_zero(pair: Pair) -> None:
    conversation = pair.begin()
    stranger = Scribe("stranger")
    later = stranger.message(pair.target.address, conversation, counter=1)
    assert counted(pair.target, later) == {"gaps": 1}
    assert stranger.id not in pair.target.state.writers, "a gap leaves no trace"
    assert counted(pair.target, stranger.message(pair.target.address, conversation)) == {"accepted": 1}


@pytest.mark.parametrize(
    "numbers", [{"counter": -1}, {"counter": WRITER_RECORDS_MAX}, {"sequence": -2}, {"sequence": WRITER_RECORDS_MAX}]
)
def test_a_number_that_no_honest_writer_uses_is_malformed(pair: Pair, numbers: dict[str, int]) -> None:
    conversation = pair.begin()
    assert counted(pair.target, next_message(pair, conversation, **numbers)) == {"malformed": 1}


def test_writers_of_one_conversation_have_counters_of_their_own_and_one_sequence(pair: Pair) -> None:
    conversation = pair.begin(messages=2)
    other = Scribe("other")
    for _ in range(3):
        pair.target.take(other.message(pair.target.address, conversation))
    assert pair.target.state.writers[other.id].next == 3
    assert pair.receiver(conversation).received == 5


def test_a_record_without_our_header_is_foreign(pair: Pair) -> None:
    assert counted(pair.target, None) == {"foreign": 1}


def test_a_record_for_another_incarnation_is_foreign_and_takes_no_counter(pair: Pair) -> None:
    conversation = pair.begin()
    elsewhere = next_message(pair, conversation, counter=1, tag=b"else")
    assert counted(pair.target, elsewhere) == {"foreign": 1}
    assert counted(pair.target, next_message(pair, conversation)) == {"accepted": 1}


@pytest.mark.parametrize(
    "header", [b"", b"\x00", GARBAGE, bytes(39), bytes(5_000)], ids=["empty", "short", "garbage", "cut", "long"]
)
def test_a_header_that_is_no_envelope_is_malformed(pair: Pair, header: bytes) -> None:
    assert counted(pair.target, header) == {"malformed": 1}


def test_a_damaged_end_of_a_header_that_was_predicted_is_malformed(pair: Pair) -> None:
    conversation = pair.begin(messages=3)
    header = next_message(pair, conversation, sequence=3, suffix=Suffix("order", home=pair.home.address))
    assert counted(pair.target, header[:-1] + b"\x02") == {"malformed": 1}
    assert counted(pair.target, header) == {"accepted": 1}


@pytest.mark.parametrize("kind", [Kind.OPEN, Kind.LATER], ids=lambda kind: kind.name)
def test_a_kind_that_this_version_does_not_know_takes_its_counter_and_has_no_effect(pair: Pair, kind: Kind) -> None:
    conversation = pair.begin()
    assert counted(pair.target, pair.client.write(kind, pair.target.address, conversation)) == {"undeliverable": 1}
    assert counted(pair.target, next_message(pair, conversation)) == {"accepted": 1}


def test_a_number_that_differs_is_counted_and_the_derived_one_rules(pair: Pair) -> None:
    conversation = pair.begin()
    assert counted(pair.target, next_message(pair, conversation, sequence=7)) == {"accepted": 1, "misnumbered": 1}
    assert counted(pair.target, next_message(pair, conversation, sequence=NO_SEQUENCE)) == {"accepted": 1}
    assert counted(pair.target, next_message(pair, conversation, sequence=3)) == {"accepted": 1}
    assert pair.receiver(conversation).received == 4


@pytest.mark.parametrize("crossing", ["first", "second"])
def test_a_stale_number_of_another_writer_is_counted_also_after_8192_messages(pair: Pair, crossing: str) -> None:
    """The prediction of a lane must not outlive the round of the tables in which it was made."""
    conversation = pair.begin()
    writers = {"first": pair.client, "second": Scribe("second")}
    for number, writer in enumerate(writers.values(), 1):
        pair.target.take(writer.message(pair.target.address, conversation, sequence=number))
    many, stale = writers.pop(crossing), writers.popitem()[1]
    pair.target.take_all(
        (many.message(pair.target.address, conversation, sequence=number), record()) for number in range(3, 8193)
    )
    assert pair.receiver(conversation).received == 8193
    late = stale.message(pair.target.address, conversation, sequence=1)
    assert counted(pair.target, late) == {"accepted": 1, "misnumbered": 1}


# ------------------------------------------------------------------------------------------------------ bookkeeping


def test_a_queue_entry_holds_the_offset_the_type_and_the_drivers_own_record() -> None:
    side, client, conversation = Side("orders"), Scribe("client"), identifier("c")
    records = [record(b"0"), record(b"1"), record(b"2")]
    headers = [
        client.first(side.address, conversation, begin_block(), "a"),
        client.message(side.address, conversation, "b", sequence=1),
        client.message(side.address, conversation, "b", sequence=2),
    ]
    bodies, stamps = [body for body, _ in records], [stamp for _, stamp in records]
    ingest(side.state, RecordColumns([5, 7, 9], headers, bodies, stamps, 12, 5))
    (endpoint,) = side.state.live()
    assert endpoint.queue == [(5, "a", *records[0]), (7, "b", *records[1]), (9, "b", *records[2])]
    assert side.state.ingest_to == 12, "the log goes on behind transaction markers"
    assert side.state.unread == 3


def test_an_endpoint_is_ready_when_its_queue_was_empty_and_changed_when_anything_came(pair: Pair) -> None:
    conversation = pair.begin(messages=3)
    receiver = pair.receiver(conversation)
    state = pair.target.state
    assert [*state.ready] == [receiver]
    assert state.changed == [receiver]
    pair.target.receive(receiver)
    state.ready.clear()
    state.changed.clear()
    receiver.changed = False
    for _ in range(2):
        pair.send(conversation, sequence=receiver.received)
    assert [*state.ready] == [receiver]
    assert state.changed == [receiver]


def test_reading_nothing_moves_the_place_up_to_which_was_read(pair: Pair) -> None:
    ingest(pair.target.state, RecordColumns((), (), (), (), 17, 0))
    assert pair.target.state.ingest_to == 17
    ingest(pair.target.state, RecordColumns((), (), (), (), 3, 0))
    assert pair.target.state.ingest_to == 17


def test_a_message_of_another_type_is_accepted_on_a_lane_that_expected_the_last_one(pair: Pair) -> None:
    conversation = pair.begin(messages=3)
    for message_type in ("order", "cancel", "order", "order"):
        pair.target.take(next_message(pair, conversation, message_type=message_type))
    assert pair.target.waiting(pair.receiver(conversation))[3:] == ["order", "cancel", "order", "order"]


def test_both_sides_of_a_conversation_can_live_in_one_partition() -> None:
    side, client, conversation = Side("orders"), Scribe("client"), identifier("c")
    block = begin_block(home="orders", target="orders", group=conversation)
    side.take(client.begin(conversation, block))
    side.take(client.first(side.address, conversation, block))
    receiver, initiator = side.state.sides[1][conversation], side.state.sides[0][conversation]
    side.send(receiver, b"answer")
    side.deliver(side)
    assert (receiver.received, initiator.received) == (1, 1)
    assert side.waiting(initiator) == ["reply"]
    side.end(initiator)
    side.deliver(side)
    side.end(receiver)
    side.deliver(side)
    assert side.state.live() == []


# ---------------------------------------------------------------------------------------------------------- columns


@pytest.mark.parametrize(
    ("cut", "before", "behind"),
    [
        (0, [], [3, 4, 6]),
        (3, [], [3, 4, 6]),
        (4, [3], [4, 6]),
        (5, [3, 4], [6]),
        (6, [3, 4], [6]),
        (7, [3, 4, 6], []),
        (50, [3, 4, 6], []),
    ],
)
def test_columns_are_cut_before_an_offset(cut: int, before: list[int], behind: list[int]) -> None:
    bodies, stamps = [b"three", b"four", b"six"], [33, 44, 66]
    columns = RecordColumns([3, 4, 6], [b"3", b"4", b"6"], bodies, stamps, 9, 1)
    first, rest = columns.before(cut)
    assert ([*first.offsets], first.next_offset) == (before, min(cut, 9))
    assert ([*rest.offsets], rest.next_offset) == (behind, 9)
    assert (first.start, rest.start) == (1, max(cut, 1))
    assert [*first.headers, *rest.headers] == [b"3", b"4", b"6"]
    assert ([*first.bodies, *rest.bodies], [*first.stamps, *rest.stamps]) == (bodies, stamps)


def test_columns_of_consecutive_offsets_are_cut_too() -> None:
    first, rest = columns_of([(None, record())] * 4, 10).before(12)
    assert ([*first.offsets], [*rest.offsets]) == ([10, 11], [12, 13])


def test_columns_of_different_lengths_are_a_mistake_of_the_driver(pair: Pair) -> None:
    with pytest.raises(ValueError, match=r"shorter|longer"):
        ingest(pair.target.state, RecordColumns([0, 1], [None], [None], [0], 2, 0))


def test_addresses_of_two_queues_differ_in_topic_and_tag() -> None:
    assert address_of("orders") != address_of("replies")
    assert address_of("orders").tag != address_of("replies").tag
