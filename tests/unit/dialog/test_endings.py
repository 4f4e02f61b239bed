"""Ends of conversations in the fold (service-broker.md 3.2 and behaviours 105 to 118)."""

from __future__ import annotations

import pytest

from konverse.dialog.state.transitions import State
from konverse.schemas.identifiers import Role
from konverse.schemas.system_messages import END_DIALOG, ERROR, error_body
from konverse.schemas.wire.records import FIRST, RETURNING, BounceReason, Kind, Suffix
from tests.kit.builders import Pair, begin_block


@pytest.fixture
def pair() -> Pair:
    return Pair()


def kinds(pair: Pair) -> list[Kind]:
    """Kinds of the outputs that wait for home at the target."""
    return [sent.kind for sent in pair.target.outputs(pair.home.address)]


# ------------------------------------------------------------------------------------------------------- plain ends


def test_the_end_of_the_initiator_disconnects_both_sides_behaviour_105(pair: Pair) -> None:
    conversation = pair.begin()
    pair.end_call(conversation)
    assert pair.initiator(conversation).state is State.DISCONNECTED_OUTBOUND
    assert pair.receiver(conversation).state is State.CONVERSING
    (end,) = pair.home.deliver(pair.target)
    assert end.kind is Kind.END
    assert pair.receiver(conversation).state is State.DISCONNECTED_INBOUND


def test_the_end_of_the_target_disconnects_both_sides_behaviour_105(pair: Pair) -> None:
    conversation = pair.begin()
    pair.target.end(pair.receiver(conversation))
    assert pair.receiver(conversation).state is State.DISCONNECTED_OUTBOUND
    pair.target.deliver(pair.home)
    assert pair.initiator(conversation).state is State.DISCONNECTED_INBOUND
    assert pair.home.waiting(pair.initiator(conversation)) == [END_DIALOG]


def test_end_dialog_is_received_after_all_earlier_messages_behaviour_106(pair: Pair) -> None:
    conversation = pair.begin(messages=3)
    pair.end_call(conversation)
    pair.home.deliver(pair.target)
    receiver = pair.receiver(conversation)
    assert pair.target.waiting(receiver) == ["order", "order", "order", END_DIALOG]
    assert receiver.received == 4, "END has a place in the sequence"


def test_messages_before_the_end_can_still_be_received_behaviour_107(pair: Pair) -> None:
    conversation = pair.begin(messages=2)
    pair.end_call(conversation)
    pair.home.deliver(pair.target)
    assert pair.target.receive(pair.receiver(conversation)) == ["order", "order", END_DIALOG]
    assert pair.receiver(conversation).state is State.DISCONNECTED_INBOUND


def test_the_second_end_removes_both_sides_behaviour_108(pair: Pair) -> None:
    conversation = pair.begin()
    pair.end_call(conversation)
    pair.home.deliver(pair.target)
    pair.target.end(pair.receiver(conversation))
    assert pair.target.state.live() == []
    assert pair.initiator(conversation).state is State.DISCONNECTED_OUTBOUND
    pair.target.deliver(pair.home)
    assert pair.home.state.live() == []
    assert pair.home.state.unread == 0, "applications do not see the second end"


def test_an_initiator_that_ends_second_is_forgotten_and_so_is_the_target_behaviour_108(pair: Pair) -> None:
    conversation = pair.begin()
    pair.target.end(pair.receiver(conversation))
    pair.target.deliver(pair.home)
    pair.end_call(conversation)
    assert pair.home.state.live() == []
    pair.home.deliver(pair.target)
    assert pair.target.state.live() == []


def test_an_end_removes_the_unread_messages_of_its_side_behaviour_109(pair: Pair) -> None:
    conversation = pair.begin(messages=3)
    other = pair.begin("another", messages=2)
    pair.target.end(pair.receiver(conversation))
    assert pair.target.waiting(pair.receiver(conversation)) == []
    assert pair.target.state.statistics.discarded == 3
    assert pair.target.state.unread == len(pair.receiver(other).queue) == 2


def test_messages_for_a_side_that_ended_are_discarded_behaviour_110(pair: Pair) -> None:
    conversation = pair.begin()
    pair.target.end(pair.receiver(conversation))
    pair.send(conversation)
    assert pair.target.state.statistics.discarded == 2
    assert pair.target.state.statistics.bounced == 0
    assert pair.target.state.unread == 0


def test_a_message_of_a_returning_dialog_for_a_side_that_ended_comes_back_behind_the_end(pair: Pair) -> None:
    conversation = pair.begin()
    pair.target.end(pair.receiver(conversation))
    pair.send(conversation, b"late", flags=RETURNING)
    end, bounce = pair.target.outputs(pair.home.address)
    assert (end.kind, bounce.kind, bounce.detail.reason, bounce.body) == (
        Kind.END,
        Kind.BOUNCE,
        BounceReason.PEER_ENDED,
        b"late",
    )
    assert pair.target.state.statistics.discarded == 1, "what was accepted before the end and not read"
    pair.target.deliver(pair.home)
    assert [bounced.body for bounced in pair.home.state.mailbox.entries.values()] == [b"late"]


def test_a_returning_dialog_is_received_like_any_other(pair: Pair) -> None:
    conversation = pair.begin(messages=0)
    pair.send(conversation, flags=RETURNING | FIRST, suffix=Suffix("order", begin=begin_block(group=conversation)))
    for number in (1, 2):
        pair.send(conversation, flags=RETURNING, sequence=number)
    assert pair.target.receive(pair.receiver(conversation)) == ["order"] * 3
    assert len(pair.target.state.lanes) == 1, "its messages are predicted"


def test_messages_for_a_side_that_was_forgotten_come_back_behaviour_110(pair: Pair) -> None:
    conversation = pair.begin()
    pair.target.end(pair.receiver(conversation))
    pair.end_call(conversation)
    pair.home.deliver(pair.target)
    assert pair.target.state.live() == []
    pair.send(conversation, b"late")
    bounce = pair.target.outputs(pair.home.address)[-1]
    assert (bounce.kind, bounce.detail.reason, bounce.body) == (Kind.BOUNCE, BounceReason.NO_ENDPOINT, b"late")


def test_a_message_after_the_end_of_its_side_comes_back(pair: Pair) -> None:
    conversation = pair.begin()
    pair.end_call(conversation)
    pair.home.deliver(pair.target)
    pair.send(conversation, b"behind the end")
    bounce = pair.target.outputs(pair.home.address)[-1]
    assert (bounce.detail.reason, bounce.detail.writer, bounce.detail.counter) == (
        BounceReason.ENDED,
        pair.client.id,
        1,
    )
    assert pair.target.waiting(pair.receiver(conversation)) == ["order", END_DIALOG]


def test_two_ends_that_cross_close_both_sides(pair: Pair) -> None:
    conversation = pair.begin()
    pair.end_call(conversation)
    pair.target.end(pair.receiver(conversation))
    pair.home.deliver(pair.target)
    pair.target.deliver(pair.home)
    assert pair.home.state.live() == pair.target.state.live() == []
    assert kinds(pair) == [], "nobody answers a second time"


@pytest.mark.parametrize("failing", ["home", "target", "both"])
def test_an_error_that_crosses_an_end_closes_both_sides(pair: Pair, failing: str) -> None:
    conversation = pair.begin()
    pair.end_call(conversation, (1, "home") if failing != "target" else None)
    if failing == "home":
        pair.target.end(pair.receiver(conversation))
    else:
        pair.target.end(pair.receiver(conversation), 2, "target")
    pair.home.deliver(pair.target)
    pair.target.deliver(pair.home)
    assert pair.home.state.live() == pair.target.state.live() == []
    assert pair.home.state.unread == pair.target.state.unread == 0


def test_a_conversation_that_was_only_begun_can_be_ended(pair: Pair) -> None:
    conversation = pair.begin(messages=0)
    assert pair.initiator(conversation).state is State.STARTED_OUTBOUND
    pair.end_call(conversation)
    assert pair.initiator(conversation).state is State.DISCONNECTED_OUTBOUND


def test_a_second_end_call_of_a_session_changes_nothing_behaviour_118(pair: Pair) -> None:
    conversation = pair.begin()
    pair.end_call(conversation)
    before = pair.home.state.endings
    pair.end_call(conversation)
    assert [sent.kind for sent in pair.home.outputs(pair.target.address)] == [Kind.END]
    assert pair.home.state.endings == before


def test_an_end_call_for_a_conversation_that_is_over_changes_nothing(pair: Pair) -> None:
    conversation = pair.begin()
    pair.target.end(pair.receiver(conversation))
    pair.target.deliver(pair.home)
    pair.end_call(conversation)
    pair.home.deliver(pair.target)
    pair.end_call(conversation)
    assert pair.home.outputs(pair.target.address) == []


# ----------------------------------------------------------------------------------------------------------- errors


def test_an_error_puts_the_peer_into_state_error_behaviour_113(pair: Pair) -> None:
    conversation = pair.begin()
    pair.target.end(pair.receiver(conversation), 4711, "no such <article>")
    (error,) = pair.target.deliver(pair.home)
    assert error.kind is Kind.ERROR
    assert error.body == error_body(4711, "no such <article>")
    initiator = pair.initiator(conversation)
    assert initiator.state is State.ERROR
    assert initiator.error is not None
    assert initiator.error[1] == ERROR


def test_an_error_of_a_session_carries_its_document_to_the_target_behaviour_113(pair: Pair) -> None:
    conversation = pair.begin()
    pair.end_call(conversation, (7, "cancelled"))
    (error,) = pair.home.deliver(pair.target)
    assert (error.kind, error.body) == (Kind.ERROR, error_body(7, "cancelled"))
    assert pair.receiver(conversation).state is State.ERROR


def test_an_error_is_received_before_unread_messages_behaviour_115(pair: Pair) -> None:
    conversation = pair.begin(messages=2)
    pair.end_call(conversation, (7, "cancelled"))
    pair.home.deliver(pair.target)
    receiver = pair.receiver(conversation)
    assert pair.target.waiting(receiver) == ["order", "order"]
    assert receiver.received == 2, "an Error overtakes and is not counted"
    assert pair.target.receive(receiver) == [ERROR, "order", "order"]


def test_unread_messages_can_be_received_after_the_error_behaviour_116(pair: Pair) -> None:
    conversation = pair.begin(messages=2)
    pair.end_call(conversation, (7, "cancelled"))
    pair.home.deliver(pair.target)
    receiver = pair.receiver(conversation)
    pair.target.commit(receive_endpoints=[receiver.index], receive_positions=[0 << 2 | 1])
    assert receiver.error is None
    assert pair.target.receive(receiver) == ["order", "order"]
    assert receiver.state is State.ERROR


def test_messages_after_an_error_come_back(pair: Pair) -> None:
    conversation = pair.begin()
    pair.end_call(conversation, (7, "cancelled"))
    pair.home.deliver(pair.target)
    pair.send(conversation)
    assert pair.target.outputs(pair.home.address)[-1].detail.reason is BounceReason.ENDED


def test_an_end_after_an_error_closes_behaviour_117(pair: Pair) -> None:
    conversation = pair.begin(messages=2)
    pair.end_call(conversation, (7, "cancelled"))
    pair.home.deliver(pair.target)
    pair.target.end(pair.receiver(conversation))
    assert pair.target.state.live() == []
    pair.target.deliver(pair.home)
    assert pair.home.state.live() == []
    assert pair.home.state.unread == 0


def test_an_error_sent_after_the_peer_ended_is_never_received_behaviour_114(pair: Pair) -> None:
    conversation = pair.begin()
    pair.end_call(conversation)
    pair.home.deliver(pair.target)
    pair.target.end(pair.receiver(conversation), 3, "too late")
    pair.target.deliver(pair.home)
    assert pair.home.state.live() == pair.target.state.live() == []
    assert pair.home.state.unread == 0


def test_an_error_wakes_an_endpoint_whose_queue_is_empty(pair: Pair) -> None:
    conversation = pair.begin(messages=0)
    pair.home.state.ready.clear()
    pair.target.take(pair.client.first(pair.target.address, conversation, begin_block(group=conversation)))
    pair.target.end(pair.receiver(conversation), 3, "no")
    pair.target.deliver(pair.home)
    assert [*pair.home.state.ready] == [pair.initiator(conversation)]


def test_an_end_behind_an_end_of_the_same_side_is_counted_and_dropped(pair: Pair) -> None:
    conversation = pair.begin()
    pair.end_call(conversation)
    (end,) = pair.home.deliver(pair.target)
    again = pair.client.end(pair.target.address, conversation, end.detail, role=Role.INITIATOR)
    pair.target.take(again)
    assert pair.target.state.statistics.undeliverable == 1
    assert pair.receiver(conversation).state is State.DISCONNECTED_INBOUND


# ----------------------------------------------------------------------------------------------- contents of an END


def test_an_end_names_its_opener_its_home_and_how_far_each_writer_was_received(pair: Pair) -> None:
    conversation = pair.begin(messages=3)
    pair.begin("another", messages=1)
    pair.send(conversation)
    pair.target.end(pair.receiver(conversation))
    (end,) = pair.target.deliver(pair.home)
    assert end.detail.opener == pair.client.id
    assert end.detail.home == pair.home.address
    assert end.detail.received == ((pair.client.id, 4),)


def test_an_end_of_the_initiator_names_its_own_partition_as_home(pair: Pair) -> None:
    conversation = pair.begin()
    pair.end_call(conversation)
    (end,) = pair.home.deliver(pair.target)
    assert (end.detail.opener, end.detail.home, end.detail.received) == (pair.client.id, pair.home.address, ())


def test_an_end_has_the_number_behind_the_last_message_of_its_side(pair: Pair) -> None:
    conversation = pair.begin()
    pair.target.send(pair.receiver(conversation), b"one", b"two")
    pair.target.end(pair.receiver(conversation))
    assert [sent.envelope.sequence for sent in pair.target.deliver(pair.home)] == [0, 1, 2]


def test_an_end_without_its_detail_is_malformed_and_changes_nothing(pair: Pair) -> None:
    conversation = pair.begin()
    pair.target.take(pair.client.write(Kind.END, pair.target.address, conversation))
    assert pair.target.state.statistics.malformed == 1
    assert pair.receiver(conversation).state is State.CONVERSING
