"""Ends, messages and writers without an endpoint: tombstones, bounces, refusals (protocol.md section 3)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from konverse.dialog.state.transitions import State
from konverse.schemas.identifiers import Role
from konverse.schemas.limits import TOMBSTONES_MAX
from konverse.schemas.wire.records import NO_SEQUENCE, Bounce, BounceReason, End, Kind, Suffix
from tests.kit.builders import Pair, Scribe, address_of, begin_block, identifier
from tests.kit.digests import digest


@pytest.fixture
def pair() -> Pair:
    return Pair()


# ------------------------------------------------------------------------------------------------------- tombstones


def ended_before_it_came(pair: Pair, name: str = "a conversation") -> bytes:
    """BEGIN and END reach home, END reaches the target, and FIRST is still on its way."""
    conversation = pair.begin(name, messages=0)
    pair.end_call(conversation)
    pair.home.deliver(pair.target)
    return conversation


def test_an_end_for_a_target_that_never_was_is_answered_by_end(pair: Pair) -> None:
    conversation = ended_before_it_came(pair)
    assert pair.target.state.live() == []
    (answer,) = pair.target.deliver(pair.home)
    assert (answer.kind, answer.envelope.role, answer.envelope.conversation) == (Kind.END, Role.TARGET, conversation)
    assert pair.home.state.live() == []


def test_a_first_behind_the_end_of_its_conversation_comes_back_once_and_its_tombstone_goes(pair: Pair) -> None:
    conversation = ended_before_it_came(pair)
    assert pair.target.state.tombstones == {conversation: pair.client.id}
    first = pair.client.first(pair.target.address, conversation, begin_block(group=conversation))
    pair.target.take(first, b"0")
    assert pair.target.state.live() == []
    assert pair.target.state.tombstones == {}
    bounce = pair.target.outputs(pair.home.address)[-1]
    assert (bounce.kind, bounce.detail.reason, bounce.body) == (Kind.BOUNCE, BounceReason.ENDED, b"0")


def test_a_tombstone_refuses_its_opener_alone(pair: Pair) -> None:
    conversation = ended_before_it_came(pair)
    stranger = Scribe("stranger")
    pair.target.take(stranger.first(pair.target.address, conversation, begin_block()))
    assert pair.receiver(conversation).state is State.CONVERSING
    assert pair.target.state.tombstones == {conversation: pair.client.id}


def test_a_tombstone_goes_when_its_opener_is_closed(pair: Pair) -> None:
    mine, other = ended_before_it_came(pair), identifier("another")
    stranger = Scribe("stranger")
    detail = End(stranger.id, pair.home.address)
    pair.target.take(Scribe("replies owner").end(pair.target.address, other, detail))
    assert {*pair.target.state.tombstones} == {mine, other}
    pair.target.take(Scribe("successor").close(pair.target.address, pair.client.id))
    assert {*pair.target.state.tombstones} == {other}


def test_there_is_no_tombstone_against_an_opener_that_is_closed_already(pair: Pair) -> None:
    pair.target.take(Scribe("successor").close(pair.target.address, pair.client.id))
    ended_before_it_came(pair)
    assert pair.target.state.tombstones == {}
    assert [sent.kind for sent in pair.target.outputs(pair.home.address)] == [Kind.END]


def test_the_answer_to_an_end_is_counted_and_not_answered(pair: Pair) -> None:
    detail = End(pair.client.id, pair.home.address)
    pair.home.take(Scribe("orders owner").end(pair.home.address, identifier("over"), detail, role=Role.TARGET))
    assert pair.home.state.statistics.undeliverable == 1
    assert pair.home.state.streams == {}
    assert pair.home.state.tombstones == {}


def test_tombstones_are_bounded_and_the_oldest_goes_first(pair: Pair) -> None:
    state = pair.target.state
    for number in range(TOMBSTONES_MAX + 2):
        state.remember_tombstone(number.to_bytes(16, "big"), b"w" * 16)
    assert len(state.tombstones) == TOMBSTONES_MAX
    assert next(iter(state.tombstones)) == (2).to_bytes(16, "big")


# ---------------------------------------------------------------------------------------------------- no first, no end


def test_only_first_creates_a_target(pair: Pair) -> None:
    pair.target.take(pair.client.message(pair.target.address, identifier("unknown"), sequence=0))
    assert pair.target.state.live() == []
    assert pair.target.state.statistics.bounced == 1


def test_a_first_without_a_begin_block_creates_nothing(pair: Pair) -> None:
    suffix = Suffix("order", home=pair.home.address)
    pair.target.take(pair.client.message(pair.target.address, identifier("c"), flags=1, suffix=suffix))
    assert pair.target.state.live() == []
    assert pair.target.outputs(pair.home.address)[0].detail.reason is BounceReason.NO_ENDPOINT


def test_a_first_of_the_targets_side_creates_no_initiator(pair: Pair) -> None:
    header = pair.client.first(pair.home.address, identifier("c"), begin_block(), role=Role.TARGET)
    pair.home.take(header)
    assert pair.home.state.live() == []
    assert pair.home.state.statistics.strays == 1


def test_a_target_knows_its_services_its_contract_its_opener_and_its_key(pair: Pair) -> None:
    conversation = pair.begin(key=b"a key")
    receiver = pair.receiver(conversation)
    assert (receiver.service, receiver.far_service, receiver.contract) == ("store", "shop", "orders")
    assert (receiver.opener, receiver.key, receiver.is_initiator) == (pair.client.id, b"a key", False)
    initiator = pair.initiator(conversation)
    assert (initiator.service, initiator.far_service, initiator.contract) == ("shop", "store", "orders")
    assert (initiator.opener, initiator.key, initiator.is_initiator) == (pair.client.id, b"a key", True)


def test_a_second_begin_of_a_living_conversation_changes_nothing(pair: Pair) -> None:
    conversation = pair.begin()
    pair.home.take(pair.client.begin(conversation, begin_block(contract="another")))
    assert pair.initiator(conversation).contract == "orders"
    assert len(pair.home.state.live()) == 1


def test_a_begin_without_its_block_creates_nothing(pair: Pair) -> None:
    pair.home.take(pair.client.write(Kind.BEGIN, pair.home.address, identifier("c")))
    assert pair.home.state.live() == []


# ---------------------------------------------------------------------------------------------------------- bounces


def test_a_bounce_goes_to_the_home_that_the_message_names_with_all_that_sends_it_again(pair: Pair) -> None:
    conversation = identifier("unknown")
    pair.send(conversation, b"body")
    (bounce,) = pair.target.outputs(pair.home.address)
    assert bounce.kind is Kind.BOUNCE
    assert bounce.body == b"body"
    assert bounce.key == conversation
    assert bounce.envelope.role is Role.TARGET
    assert bounce.envelope.sequence == NO_SEQUENCE
    assert bounce.envelope.suffix.message_type == "order"
    assert bounce.detail == Bounce(pair.client.id, 0, pair.target.address, BounceReason.NO_ENDPOINT)


def test_a_bounce_of_a_message_sent_by_an_owner_for_a_session_is_addressed_to_the_session(pair: Pair) -> None:
    suffix = Suffix("order", home=pair.home.address, origin=identifier("the session"))
    pair.target.take(pair.client.message(pair.target.address, identifier("unknown"), suffix=suffix))
    (back,) = pair.target.outputs(pair.home.address)
    assert back.envelope.suffix.origin == identifier("the session")
    assert back.detail.writer == pair.client.id, "whose counter it is: the session may have sent under the same one"


def test_a_message_that_names_no_home_is_counted_and_gone(pair: Pair) -> None:
    pair.target.take(pair.client.message(pair.target.address, identifier("unknown")))
    assert pair.target.state.statistics.bounced == pair.target.state.statistics.undeliverable == 1
    assert pair.target.state.streams == {}


def test_a_bounce_is_kept_in_the_mailbox_of_its_writer(pair: Pair) -> None:
    pair.send(identifier("unknown"), b"body")
    pair.target.deliver(pair.home)
    (bounced,) = pair.home.state.mailbox.entries.values()
    detail = Bounce(pair.client.id, 0, pair.target.address, BounceReason.NO_ENDPOINT)
    assert bounced == (pair.client.id, detail, identifier("unknown"), NO_SEQUENCE, "order", b"body", None)
    assert pair.home.outputs(pair.target.address) == [], "a bounce is never answered"


def test_bounces_of_one_counter_at_two_destinations_are_two(pair: Pair) -> None:
    for at in (address_of("orders"), address_of("other")):
        detail = Bounce(pair.client.id, 0, at, BounceReason.ENDED)
        pair.home.take(pair.client.bounce(pair.home.address, identifier("c"), detail))
    assert len(pair.home.state.mailbox) == 2
    assert len(digest(pair.home.state)) == 32


def test_a_bounce_without_its_detail_is_kept_nowhere(pair: Pair) -> None:
    pair.home.take(pair.client.write(Kind.BOUNCE, pair.home.address, identifier("c")))
    assert len(pair.home.state.mailbox) == 0


# --------------------------------------------------------------------------------------------------- closed writers


def test_a_closed_writer_is_answered_and_never_heard(pair: Pair) -> None:
    conversation = pair.begin(messages=2)
    pair.target.take(Scribe("successor").close(pair.target.address, pair.client.id))
    for number in (2, 3):
        pair.send(conversation, b"late", sequence=number)
    writer = pair.target.state.writers[pair.client.id]
    assert (writer.closed_at, writer.next) == (2, 4)
    assert pair.receiver(conversation).received == 2
    assert [(sent.detail.reason, sent.detail.counter) for sent in pair.target.outputs(pair.home.address)] == [
        (BounceReason.WRITER_CLOSED, 2),
        (BounceReason.WRITER_CLOSED, 3),
    ]


def test_the_first_close_decides_where(pair: Pair) -> None:
    pair.begin(messages=2)
    successor = Scribe("successor")
    pair.target.take(successor.close(pair.target.address, pair.client.id))
    pair.send(identifier("a conversation"))
    pair.target.take(successor.close(pair.target.address, pair.client.id))
    assert pair.target.state.writers[pair.client.id].closed_at == 2


def test_a_writer_can_close_itself_behind_its_last_record(pair: Pair) -> None:
    pair.begin(messages=2)
    pair.target.take(pair.client.close(pair.target.address, pair.client.id))
    assert pair.target.state.writers[pair.client.id].closed_at == 3


def test_a_writer_that_was_never_heard_can_be_closed(pair: Pair) -> None:
    stranger = Scribe("stranger")
    pair.target.take(Scribe("successor").close(pair.target.address, stranger.id))
    pair.target.take(stranger.first(pair.target.address, identifier("c"), begin_block()))
    assert pair.target.state.writers[stranger.id].closed_at == 0
    assert pair.target.state.live() == []
    assert pair.target.outputs(pair.home.address)[0].detail.reason is BounceReason.WRITER_CLOSED


def test_the_begin_of_a_closed_writer_is_refused_and_its_target_gets_an_end(pair: Pair) -> None:
    conversation = identifier("a conversation")
    pair.home.take(Scribe("successor").close(pair.home.address, pair.client.id))
    pair.home.take(pair.client.begin(conversation, begin_block(group=conversation)))
    assert pair.home.state.live() == []
    (end,) = pair.home.deliver(pair.target)
    assert (end.kind, end.envelope.role) == (Kind.END, Role.INITIATOR)
    assert end.detail == End(pair.client.id, pair.home.address)
    first = pair.client.first(pair.target.address, conversation, begin_block(group=conversation))
    pair.target.take(first)
    assert pair.target.state.live() == [], "the END is there before the FIRST"


@pytest.mark.parametrize("kind", [Kind.END, Kind.ERROR, Kind.BEGIN, Kind.CLOSE_WRITER])
def test_other_records_of_a_closed_writer_have_no_effect(pair: Pair, kind: Kind) -> None:
    conversation = pair.begin()
    for side in (pair.home, pair.target):
        side.take(Scribe("successor").close(side.address, pair.client.id))
        before = (replace(side.state.statistics), side.state.endings, side.state.live(), len(side.state.writers))
        side.take(pair.client.write(kind, side.address, conversation))
        state = side.state
        assert (state.statistics, state.endings, state.live(), len(state.writers)) == before
        assert side.state.streams == {} or not any(stream.waiting for stream in side.state.streams.values())
