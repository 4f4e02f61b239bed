"""Acknowledged records that a log lacks: who tells of them, and what fails (protocol.md section 7.7, M291 and M292).

Kafka loses acknowledged records when a replica that lacks them becomes the leader, and by compaction. A session or an
owner does not send them again, so everything that follows would be a gap for ever.
"""

from __future__ import annotations

import pytest

from konverse.dialog.rules.loss import describe_loss
from konverse.dialog.session.rotation import LOOK_EVERY_MS
from konverse.dialog.session.session import Session
from konverse.dialog.state.endpoint import Endpoint, far_lane
from konverse.dialog.state.recent import alarm_of_loss
from konverse.dialog.state.transitions import State
from konverse.dialog.state.writer import NO_HEIR, Heir, Writer
from konverse.schemas.identifiers import Role, session_writer
from konverse.schemas.limits import WRITER_HOLE_RECORDS_MAX
from konverse.schemas.system_messages import ACKED_LOST_BODY
from konverse.schemas.wire.envelope import decode
from konverse.schemas.wire.operations import Relocate
from konverse.schemas.wire.records import (
    ACKED,
    FIRST,
    HEIR,
    NAMED,
    NO_SEQUENCE,
    BounceReason,
    Kind,
    NoticeReason,
)
from tests.kit.builders import Pair, Scribe, address_of, begin_block, identifier

LOST = 3
"""Records that Kafka lost, of each writer that lost any."""


def session(number: int) -> Scribe:
    """A writer that is a session and no owner."""
    scribe = Scribe("a session")
    scribe.id = session_writer(1_000, number)
    return scribe


@pytest.fixture
def pair() -> Pair:
    made = Pair()
    made.client = session(1)
    return made


def lose(scribe: Scribe, pair: Pair, count: int = LOST) -> None:
    """The next records of a session to the target were acknowledged, and are not in the log."""
    scribe.next[pair.target.address] += count


def has_failed(endpoint: Endpoint) -> bool:
    error = endpoint.error
    return endpoint.state is State.ERROR and error is not None and error[2] == ACKED_LOST_BODY


# ---------------------------------------------------------------------------------------------------- who is believed


def test_a_vouching_record_behind_a_gap_is_received_and_its_writer_goes_on(pair: Pair) -> None:
    pair.begin("an old one")
    lose(pair.client, pair)
    new = identifier("a new one")
    first = pair.client.first(pair.target.address, new, begin_block(group=new), flags=FIRST | ACKED)
    pair.target.take(first, b"0")
    pair.send(new, b"1", sequence=1)
    receiver = pair.receiver(new)
    assert not has_failed(receiver), "nothing of it can have been in the gap"
    assert pair.target.receive(receiver) == ["order", "order"]
    assert pair.target.state.statistics.gaps == 0


def test_a_record_that_does_not_vouch_waits_for_those_before_it(pair: Pair) -> None:
    conversation = pair.begin()
    lose(pair.client, pair)
    pair.send(conversation, b"behind a gap")
    assert pair.receiver(conversation).received == 1
    (told,) = pair.target.outputs(pair.home.address)
    assert (told.kind, told.detail.reason) == (Kind.NOTICE, NoticeReason.GAP)


def test_records_behind_the_gap_and_before_the_vouching_one_are_lost_as_well(pair: Pair) -> None:
    conversation = pair.begin()
    lose(pair.client, pair)
    pair.send(conversation, b"dropped")
    pair.send(conversation, b"it vouches", flags=ACKED)
    assert has_failed(pair.receiver(conversation))
    writer = pair.target.state.writers[pair.client.id]
    assert [(hole.start, hole.end) for hole in writer.holes] == [(1, 1 + LOST + 1)]


def test_a_vouching_record_without_a_gap_is_a_record_like_any_other(pair: Pair) -> None:
    conversation = pair.begin()
    for number in (1, 2, 3):
        pair.send(conversation, b"", sequence=number, flags=ACKED * (number % 2))
    assert pair.receiver(conversation).received == 4
    assert len(pair.receiver(conversation).lanes()) == 1, "it is predicted like the others"
    assert pair.target.outputs(pair.home.address) == []


def test_a_gap_of_more_records_than_a_writer_may_lose_is_not_believed(pair: Pair) -> None:
    conversation = pair.begin()
    lose(pair.client, pair, WRITER_HOLE_RECORDS_MAX + 1)
    pair.send(conversation, b"far ahead", flags=ACKED)
    assert not has_failed(pair.receiver(conversation))
    assert pair.target.state.statistics.gaps == 1


def test_the_first_record_of_a_session_may_tell_that_all_before_it_are_lost(pair: Pair) -> None:
    conversation = identifier("a conversation")
    pair.client.next[pair.target.address] = LOST
    pair.send(conversation, b"", flags=ACKED)
    back, no_peer = pair.target.outputs(pair.home.address)
    assert (back.kind, back.detail.reason) == (Kind.BOUNCE, BounceReason.NO_ENDPOINT)
    assert (no_peer.kind, no_peer.body) == (Kind.NO_PEER, ACKED_LOST_BODY), "its FIRST may have been among them"


def test_a_closed_writer_is_not_believed(pair: Pair) -> None:
    conversation = pair.begin()
    pair.target.take(session(2).close(pair.target.address, pair.client.id))
    lose(pair.client, pair)
    pair.send(conversation, b"", flags=ACKED)
    assert not has_failed(pair.receiver(conversation))


# --------------------------------------------------------------------------------------------------------- what fails


def test_the_conversations_of_the_session_fail_on_both_sides_and_no_others(pair: Pair) -> None:
    quiet, speaking = pair.begin("quiet"), pair.begin("speaking", messages=2)
    other = session(2)
    foreign = identifier("of another session")
    pair.target.take(other.first(pair.target.address, foreign, begin_block(group=foreign)), b"")
    lose(pair.client, pair)
    pair.send(speaking, b"", flags=ACKED)
    assert has_failed(pair.receiver(quiet))
    assert has_failed(pair.receiver(speaking))
    assert not has_failed(pair.receiver(foreign))
    pair.target.deliver(pair.home)
    assert has_failed(pair.initiator(quiet))
    assert has_failed(pair.initiator(speaking))


def test_what_was_received_before_can_be_received_behind_the_error(pair: Pair) -> None:
    conversation = pair.begin(messages=2)
    lose(pair.client, pair)
    pair.send(conversation, b"too late", flags=ACKED)
    assert pair.target.receive(pair.receiver(conversation))[1:] == ["order", "order"]


def test_a_session_may_be_missed_by_a_conversation_whose_id_a_caller_chose(pair: Pair) -> None:
    """Several sessions may begin one id, and the begin of this one may be lost."""
    named = identifier("named")
    other = session(2)
    pair.target.take(other.first(pair.target.address, named, begin_block(group=named), flags=FIRST | NAMED), b"")
    conversation = pair.begin()
    lose(pair.client, pair)
    pair.send(conversation, b"", flags=ACKED)
    assert has_failed(pair.receiver(named))


def test_a_session_whose_first_record_is_lost_may_have_continued_the_conversations_of_another(pair: Pair) -> None:
    """Its CLOSE_WRITER for its earlier id, and messages to conversations of that id, can both be in the gap."""
    conversation = pair.begin()
    successor = session(2)
    lose(successor, pair)
    pair.target.take(successor.message(pair.target.address, identifier("a new one"), flags=ACKED), b"it vouches")
    assert has_failed(pair.receiver(conversation))
    pair.target.deliver(pair.home)
    assert has_failed(pair.initiator(conversation))


def test_a_session_that_is_closed_here_is_continued_by_its_heir_alone(pair: Pair) -> None:
    conversation, heir, stranger = pair.begin(), session(2), session(3)
    pair.target.take(heir.write(Kind.CLOSE_WRITER, pair.target.address, pair.client.id, flags=HEIR, sequence=1))
    pair.target.take(stranger.write(Kind.VOID, pair.target.address, bytes(16)))
    lose(stranger, pair)
    pair.target.take(stranger.message(pair.target.address, identifier("another"), flags=ACKED), b"it vouches")
    assert not has_failed(pair.receiver(conversation))
    lose(heir, pair)
    pair.target.take(heir.message(pair.target.address, identifier("another"), flags=ACKED), b"it vouches")
    assert has_failed(pair.receiver(conversation))


def test_a_loss_of_any_session_fails_conversations_whose_session_is_forgotten_here(pair: Pair) -> None:
    """The partition has pruned the id that began them, and with it the name of its heir."""
    conversation, other = pair.begin(), session(2)
    receiver = pair.receiver(conversation)
    receiver.lane = None
    del pair.target.state.writers[pair.client.id]
    pair.target.take(other.write(Kind.VOID, pair.target.address, bytes(16)))
    lose(other, pair)
    pair.target.take(other.write(Kind.VOID, pair.target.address, bytes(16), flags=ACKED))
    assert has_failed(receiver)


@pytest.mark.parametrize("heir", [NO_HEIR, (session(4).id, 0)])
def test_a_loss_spares_conversations_whose_session_has_another_heir_or_never_gets_one(pair: Pair, heir: Heir) -> None:
    conversation, other = pair.begin(), session(2)
    pair.target.state.writers[pair.client.id].heir = heir
    pair.target.state.writers[session(4).id] = Writer(session(4).id)
    pair.target.take(other.write(Kind.VOID, pair.target.address, bytes(16)))
    lose(other, pair)
    pair.target.take(other.write(Kind.VOID, pair.target.address, bytes(16), flags=ACKED))
    assert not has_failed(pair.receiver(conversation))


def test_a_conversation_that_an_owner_began_misses_nothing_of_a_session(pair: Pair) -> None:
    owner, begun = Scribe("an owner"), identifier("begun by a handler")
    pair.target.take(owner.first(pair.target.address, begun, begin_block(group=begun)), b"")
    stranger = session(2)
    lose(stranger, pair)
    pair.target.take(stranger.message(pair.target.address, identifier("another"), flags=ACKED), b"it vouches")
    assert not has_failed(pair.receiver(begun))


def test_a_side_that_moved_here_may_have_missed_a_session_that_wrote_to_it_elsewhere(pair: Pair) -> None:
    """The session continues one whose closing is unknown here; records that it wrote elsewhere are forwarded."""
    conversation = pair.begin()
    receiver, writer = pair.receiver(conversation), session(2)
    pair.target.take(writer.write(Kind.VOID, pair.target.address, bytes(16)))
    far_lane(receiver, writer.id)
    lose(writer, pair)
    pair.target.take(writer.write(Kind.VOID, pair.target.address, bytes(16), flags=ACKED))
    assert has_failed(receiver)


def test_an_owner_whose_answers_are_lost_fails_every_conversation_there(pair: Pair) -> None:
    first, second = pair.begin("first"), pair.begin("second")
    stream = pair.target.state.stream_to(pair.home.address)
    pair.target.send(pair.receiver(first), b"lost", b"lost too")
    pair.target.commit(output_acks=[(pair.home.address, stream.next)])
    pair.target.send(pair.receiver(first), b"it vouches")
    (sent,) = pair.target.deliver(pair.home)
    assert sent.envelope.flags == ACKED
    assert has_failed(pair.initiator(first))
    assert has_failed(pair.initiator(second))
    told = pair.home.deliver(pair.target)
    assert [one.kind for one in told] == [Kind.ERROR, Kind.ERROR]


def test_a_side_that_has_ended_does_not_wait_for_an_end_that_may_be_lost(pair: Pair) -> None:
    conversation = pair.begin()
    pair.target.end(pair.receiver(conversation))
    pair.target.deliver(pair.home)
    lose(pair.client, pair)
    pair.send(identifier("another"), b"", flags=ACKED)
    assert pair.target.state.live() == []


def test_a_record_of_the_gap_that_comes_nevertheless_returns_once(pair: Pair) -> None:
    conversation = pair.begin()
    pair.send(conversation, b"it vouches", counter=2, flags=ACKED)
    pair.target.deliver(pair.home)
    for _ in range(2):
        pair.send(conversation, b"late", counter=1)
    (back,) = pair.target.outputs(pair.home.address)
    assert (back.kind, back.body) == (Kind.BOUNCE, b"late")


# ------------------------------------------------------------------------------------------------------------ by heirs


@pytest.mark.parametrize("known", [NO_SEQUENCE, 0, 1, 1 + LOST, WRITER_HOLE_RECORDS_MAX + 2])
def test_an_heir_tells_how_many_records_were_acknowledged(pair: Pair, known: int) -> None:
    conversation = pair.begin()
    heir = session(2)
    header = heir.write(Kind.CLOSE_WRITER, pair.target.address, pair.client.id, flags=HEIR, sequence=known)
    pair.target.take(header)
    lost = known == 1 + LOST
    assert has_failed(pair.receiver(conversation)) == lost
    assert pair.target.state.writers[pair.client.id].closed_at == (known if lost else 1)


def test_a_stranger_that_closes_a_session_tells_nothing_of_its_records(pair: Pair) -> None:
    conversation = pair.begin()
    asker = session(2)
    pair.target.take(asker.write(Kind.CLOSE_WRITER, pair.target.address, pair.client.id, sequence=9))
    assert not has_failed(pair.receiver(conversation))


# ------------------------------------------------------------------------------------------------- sessions that vouch


def test_a_session_that_has_sent_only_messages_vouches_for_them_once_a_minute() -> None:
    session = Session(identifier("w"))
    dialog, _ = session.begin(identifier("a"), begin_block())
    session.drained()
    for number in range(3):
        session.send(dialog, "order", b"%d" % number)
        assert [one for hand in session.drained() for one in hand.records] == []
    session.check_age(LOOK_EVERY_MS)
    (hand,) = [hand for hand in session.drained() if hand.address == dialog.begin.target]
    ((header, _, body),) = hand.records
    envelope = decode(header)
    assert (envelope.kind, envelope.flags, envelope.counter, body) == (Kind.VOID, ACKED, 3, None)
    session.drained()
    session.check_age(2 * LOOK_EVERY_MS)
    assert session.drained() == [], "there is nothing new to vouch for"


def test_a_record_without_effect_changes_nothing_but_the_counter(pair: Pair) -> None:
    conversation = pair.begin()
    void = pair.client.write(Kind.VOID, pair.target.address, bytes(16), flags=ACKED)
    pair.target.take(void)
    pair.send(conversation, b"1", sequence=1)
    assert pair.receiver(conversation).received == 2
    assert pair.target.state.statistics.undeliverable == 0


# ------------------------------------------------------------------------------------------------------------- alarms


def test_the_owner_that_leads_raises_an_alarm_that_names_the_records(pair: Pair) -> None:
    pair.target.state.recent.decides = True
    conversation = pair.begin()
    lose(pair.client, pair)
    pair.send(conversation, b"", flags=ACKED)
    (loss,) = pair.target.state.recent.losses
    assert (loss.writer, loss.first, loss.end) == (pair.client.id, 1, 1 + LOST)
    text = alarm_of_loss(loss, "orders/0").text
    assert "orders/0 lacks the records 1 to 3" in text
    assert pair.client.id.hex() in text


def test_why_names_the_acknowledged_records_that_are_missing(pair: Pair) -> None:
    conversation = pair.begin()
    assert describe_loss(pair.target.state) == ""
    lose(pair.client, pair)
    pair.send(conversation, b"", flags=ACKED)
    told = describe_loss(pair.target.state)
    assert told.startswith("3 records that Kafka had acknowledged are missing from orders/0"), told


def test_the_side_that_moved_away_fails_as_well(pair: Pair) -> None:
    elsewhere = address_of("elsewhere")
    conversation = pair.begin()
    receiver = pair.receiver(conversation)
    pair.target.commit(rare=[Relocate(receiver.index, elsewhere, 0, 1)])
    lose(pair.client, pair)
    pair.send(identifier("another"), b"", flags=ACKED)
    (_, sent) = pair.target.outputs(elsewhere)[-2:]
    assert (sent.kind, sent.body) == (Kind.FORWARD, ACKED_LOST_BODY)
    assert pair.target.state.endpoint(Role.TARGET, conversation) is None
