"""The effects of a commit, in their fixed order: acknowledgements, begins, receives, sends, ends."""

from __future__ import annotations

import pytest

from konverse.dialog.fold.apply import apply
from konverse.dialog.state.transitions import State
from konverse.schemas.errors import PartitionHalted
from konverse.schemas.identifiers import Role
from konverse.schemas.wire.journal import GENESIS_HASH, Commit, CommitOperations, EndOperation
from konverse.schemas.wire.records import FIRST, NO_SEQUENCE, Kind
from tests.kit.builders import Pair, Side, begin_block, identifier


@pytest.fixture
def pair() -> Pair:
    return Pair()


# --------------------------------------------------------------------------------------------------------- receives


def test_a_receive_consumes_up_to_its_position(pair: Pair) -> None:
    conversation = pair.begin(messages=5)
    receiver = pair.receiver(conversation)
    pair.target.commit(receive_endpoints=[receiver.index], receive_positions=[2 << 2])
    assert (receiver.consumed, receiver.received, len(receiver.queue)) == (2, 5, 3)
    assert pair.target.state.unread == 3
    pair.target.commit(receive_endpoints=[receiver.index], receive_positions=[5 << 2])
    assert (receiver.consumed, receiver.queue, pair.target.state.unread) == (5, [], 0)


def test_a_receive_of_nothing_new_changes_nothing(pair: Pair) -> None:
    receiver = pair.receiver(pair.begin(messages=2))
    pair.target.commit(receive_endpoints=[receiver.index], receive_positions=[0])
    assert (receiver.consumed, len(receiver.queue)) == (0, 2)


@pytest.mark.parametrize("position", [6 << 2, 2**62, 1 << 2])
def test_a_position_that_the_data_log_does_not_bear_out_halts(pair: Pair, position: int) -> None:
    receiver = pair.receiver(pair.begin(messages=5))
    pair.target.commit(receive_endpoints=[receiver.index], receive_positions=[2 << 2])
    with pytest.raises(PartitionHalted, match="the data log was changed or cut"):
        pair.target.commit(receive_endpoints=[receiver.index], receive_positions=[position])


def test_the_error_is_taken_when_the_commit_says_so_and_not_else(pair: Pair) -> None:
    conversation = pair.begin(messages=2)
    pair.end_call(conversation, (1, "no"))
    pair.home.deliver(pair.target)
    receiver = pair.receiver(conversation)
    pair.target.commit(receive_endpoints=[receiver.index], receive_positions=[1 << 2])
    assert receiver.error is not None
    pair.target.commit(receive_endpoints=[receiver.index], receive_positions=[1 << 2 | 1])
    assert pair.target.waiting(receiver) == ["order"]
    assert not receiver.error


# ------------------------------------------------------------------------------------------------------------ sends


def test_a_target_numbers_its_answers_from_zero(pair: Pair) -> None:
    conversation = pair.begin()
    receiver = pair.receiver(conversation)
    pair.target.send(receiver, b"a", b"b")
    pair.target.send(receiver, b"c")
    sent = pair.target.deliver(pair.home)
    assert [(one.envelope.counter, one.envelope.sequence, one.body) for one in sent] == [
        (0, 0, b"a"),
        (1, 1, b"b"),
        (2, 2, b"c"),
    ]
    assert {one.envelope.role for one in sent} == {Role.TARGET}
    assert {one.envelope.writer for one in sent} == {pair.target.state.writer_id}
    assert receiver.sent == 3
    assert pair.initiator(conversation).received == 3
    assert pair.home.state.statistics.misnumbered == 0


@pytest.mark.parametrize("runs", [[8_190, 5, 8_190], [16_390], [1] * 5 + [8_187, 8_192, 1]], ids=str)
def test_counters_and_numbers_of_outputs_are_right_beyond_the_tables(pair: Pair, runs: list[int]) -> None:
    one, two = pair.receiver(pair.begin("one")), pair.receiver(pair.begin("two"))
    for count in runs:
        pair.target.send(one, *[b""] * count)
    pair.target.send(two, b"")
    sent = [one.envelope for one in pair.target.outputs(pair.home.address)]
    total = sum(runs)
    assert [(envelope.counter, envelope.sequence) for envelope in sent] == [*((n, n) for n in range(total)), (total, 0)]


def test_a_control_record_behind_many_messages_has_the_next_counter(pair: Pair) -> None:
    receiver = pair.receiver(pair.begin())
    pair.target.send(receiver, *[b""] * 8_192)
    pair.target.end(receiver)
    other = pair.receiver(pair.begin("another"))
    pair.target.send(other, b"", b"")
    sent = [one.envelope for one in pair.target.outputs(pair.home.address)][8_191:]
    assert [(envelope.counter, envelope.sequence) for envelope in sent] == [
        (8_191, 8_191),
        (8_192, 8_192),
        (8_193, 0),
        (8_194, 1),
    ]


def test_a_home_does_not_number_its_messages_on_a_session_dialog(pair: Pair) -> None:
    conversation = pair.begin()
    pair.home.send(pair.initiator(conversation), b"from home", b"and more")
    first, more = pair.home.deliver(pair.target)
    assert (first.envelope.sequence, first.envelope.flags) == (NO_SEQUENCE, FIRST), "home cannot know of the session's"
    assert (more.envelope.sequence, more.envelope.flags) == (NO_SEQUENCE, 0)
    assert pair.initiator(conversation).sent == NO_SEQUENCE
    assert pair.initiator(conversation).state is State.CONVERSING
    assert pair.receiver(conversation).received == 3


def test_one_counter_runs_through_all_conversations_with_one_destination(pair: Pair) -> None:
    receivers = [pair.receiver(pair.begin(name)) for name in ("a", "b", "c")]
    pair.target.commit(
        sends=[
            (receivers[place].index, message_type, [body])
            for place, message_type, body in ((2, "y", b"2"), (0, "x", b"0"), (1, "y", b"1"), (2, "x", b"22"))
        ]
    )
    sent = pair.target.outputs(pair.home.address)
    assert [one.envelope.counter for one in sent] == [0, 1, 2, 3]
    assert [one.envelope.sequence for one in sent] == [0, 0, 0, 1]
    assert [one.envelope.suffix.message_type for one in sent] == ["y", "x", "y", "x"]
    assert [one.body for one in sent] == [b"2", b"0", b"1", b"22"]


@pytest.mark.parametrize("key", [None, b"", b"a key"])
def test_an_output_has_the_key_of_its_conversation(pair: Pair, key: bytes | None) -> None:
    conversation = pair.begin(key=key)
    pair.target.send(pair.receiver(conversation), b"a")
    pair.target.end(pair.receiver(conversation))
    assert {sent.key for sent in pair.target.outputs(pair.home.address)} == {key or conversation}


# ------------------------------------------------------------------------------------------------ begins by handlers


def test_a_conversation_that_a_handler_began_sends_first_with_its_begin_block(pair: Pair) -> None:
    conversation, block = identifier("inside"), begin_block(key=b"k", group=identifier("g"))
    pair.home.commit(begins=[(conversation, block)])
    initiator = pair.initiator(conversation)
    assert (initiator.state, initiator.opener) == (State.STARTED_OUTBOUND, pair.home.state.writer_id)
    assert pair.home.outputs(pair.target.address) == [], "BEGIN DIALOG sends nothing (behaviour 31)"
    pair.home.send(initiator, b"first", b"second")
    pair.home.send(initiator, b"third")
    sent = pair.home.deliver(pair.target)
    assert [(one.envelope.flags, one.envelope.sequence, one.key) for one in sent] == [
        (FIRST, 0, b"k"),
        (0, 1, b"k"),
        (0, 2, b"k"),
    ]
    assert [one.envelope.suffix.begin for one in sent] == [block, None, None]
    assert initiator.state is State.CONVERSING
    assert pair.home.state.beginning == {}
    assert pair.target.state.statistics.misnumbered == 0
    assert pair.receiver(conversation).received == 3


def test_a_conversation_can_be_begun_and_used_and_ended_in_one_commit(pair: Pair) -> None:
    conversation = identifier("inside")
    pair.home.commit(
        begins=[(conversation, begin_block())],
        sends=[(0, "t", [b"body"])],
        ends=[EndOperation(0)],
    )
    assert [one.kind for one in pair.home.deliver(pair.target)] == [Kind.MESSAGE, Kind.END]
    assert pair.target.waiting(pair.receiver(conversation))[0] == "t"


def test_a_conversation_that_ended_before_it_sent_needs_no_begin_block_any_more(pair: Pair) -> None:
    conversation = identifier("inside")
    pair.home.commit(begins=[(conversation, begin_block())])
    pair.home.end(pair.initiator(conversation))
    pair.home.deliver(pair.target)
    pair.target.deliver(pair.home)
    assert pair.home.state.live() == []
    assert pair.home.state.beginning == {}


# ------------------------------------------------------------------------------------------------ acks, ends, places


def test_acknowledged_outputs_leave_the_outbox(pair: Pair) -> None:
    receiver = pair.receiver(pair.begin())
    pair.target.send(receiver, b"a", b"b", b"c")
    pair.target.commit(output_acks=[(pair.home.address, 2)])
    assert [sent.body for sent in pair.target.outputs(pair.home.address)] == [b"c"]


def test_receives_come_before_sends_and_sends_before_ends(pair: Pair) -> None:
    receiver = pair.receiver(pair.begin(messages=2))
    pair.target.commit(
        receive_endpoints=[receiver.index],
        receive_positions=[2 << 2],
        sends=[(receiver.index, "bye", [b""])],
        ends=[EndOperation(receiver.index)],
    )
    assert [sent.kind for sent in pair.target.outputs(pair.home.address)] == [Kind.MESSAGE, Kind.END]
    assert pair.target.state.statistics.discarded == 0, "what was received was not discarded by the end"


def test_a_commit_for_another_place_in_the_data_log_halts(pair: Pair) -> None:
    pair.begin()
    with pytest.raises(PartitionHalted, match="must ingest up to 2, but 1 was ingested"):
        apply(pair.target.state, Commit(1, b"o" * 16, 1, GENESIS_HASH, 2, CommitOperations()))


def test_a_commit_marks_the_endpoints_that_it_changes_for_the_view() -> None:
    pair = Pair()
    names = ["received", "sent", "ended", "untouched"]
    receivers = {name: pair.receiver(pair.begin(name)) for name in names}
    state = pair.target.state
    for endpoint in receivers.values():
        endpoint.changed = False
    state.changed.clear()
    pair.target.receive(receivers["received"])
    pair.target.send(receivers["sent"], b"a", b"b")
    pair.target.end(receivers["ended"])
    assert state.changed == [receivers[name] for name in names[:3]]
    pair.target.commit(begins=[(identifier("begun"), begin_block(home="orders", target="replies"))])
    assert state.changed[3:] == [state.endpoint(Role.INITIATOR, identifier("begun"))]


def test_outputs_for_two_destinations_are_counted_apart() -> None:
    target = Side("orders")
    pair = Pair()
    pair.target = target
    other = Side("other")
    here = pair.begin("here")
    conversation = identifier("there")
    block = begin_block(home="other", group=conversation)
    target.take(pair.client.first(target.address, conversation, block))
    target.send(pair.receiver(here), b"1")
    target.send(pair.receiver(conversation), b"2")
    assert [one.envelope.counter for one in target.outputs(pair.home.address)] == [0]
    assert [one.envelope.counter for one in target.outputs(other.address)] == [0]
    assert target.outputs(other.address)[0].envelope.tag == other.address.tag
