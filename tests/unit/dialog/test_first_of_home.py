"""A handler sends on a dialog of a session before its target has answered: home sends FIRST, too (M288, M289)."""

from __future__ import annotations

import pytest

from konverse.dialog.state.transitions import State
from konverse.schemas.identifiers import Role, session_writer
from konverse.schemas.wire.operations import Cleanup, Fail, Relocate
from konverse.schemas.wire.records import FIRST, NO_SEQUENCE, BounceReason, Kind, Opened, Suffix, Timer
from tests.kit.builders import Pair, Scribe, Side, begin_block

SESSION = session_writer(1, 4711)


@pytest.fixture
def pair() -> Pair:
    made = Pair()
    made.client.id = SESSION
    return made


def spoken(pair: Pair, messages: int = 0) -> bytes:
    """A conversation on which a handler at home has sent a message; the session has sent `messages`."""
    conversation = pair.begin(messages=messages)
    pair.home.send(pair.initiator(conversation), b"from a handler")
    return conversation


def first_of_the_session(pair: Pair, conversation: bytes) -> None:
    pair.target.take(pair.client.first(pair.target.address, conversation, begin_block(group=conversation)), b"0")


def test_the_message_of_a_handler_makes_the_target_when_the_session_has_sent_nothing(pair: Pair) -> None:
    conversation = spoken(pair)
    (sent,) = pair.home.deliver(pair.target)
    assert (sent.envelope.flags, sent.detail) == (FIRST, Opened(SESSION))
    receiver = pair.receiver(conversation)
    assert (receiver.opener, receiver.received, receiver.state) == (SESSION, 1, State.CONVERSING)
    pair.target.send(receiver, b"answer")
    pair.target.deliver(pair.home)
    assert pair.initiator(conversation).received == 1


@pytest.mark.parametrize("session_first", [True, False], ids=["behind the session", "before the session"])
def test_the_second_first_is_a_message_like_any_other(pair: Pair, session_first: bool) -> None:
    conversation = spoken(pair, messages=int(session_first))
    pair.home.deliver(pair.target)
    if not session_first:
        first_of_the_session(pair, conversation)
    assert pair.receiver(conversation).received == 2
    assert pair.target.state.tombstones == {}
    pair.home.send(pair.initiator(conversation), b"more")
    (more,) = pair.home.deliver(pair.target)
    assert more.envelope.flags == 0


def test_home_makes_no_target_to_end_the_stream_of_a_pool(pair: Pair) -> None:
    conversation = pair.begin(messages=0)
    timer = Suffix(detail=Timer(60_000, "EndOfStream"))
    pair.home.take(pair.client.write(Kind.SET_TIMER, pair.home.address, conversation, suffix=timer))
    pair.home.send(pair.initiator(conversation), b"", message_type="EndOfStream")
    (sent,) = pair.home.outputs(pair.target.address)
    assert sent.envelope.flags == 0


def test_the_target_lives_as_long_as_the_conversation_has_left(pair: Pair) -> None:
    conversation = pair.begin(messages=0, lifetime_ms=60_000)
    pair.home.state.now_ms = (pair.initiator(conversation).clock or pytest.fail("no clock")).expires_ms - 1_000
    pair.home.send(pair.initiator(conversation), b"late")
    (sent,) = pair.home.outputs(pair.target.address)
    begin = sent.envelope.suffix.begin
    assert begin is not None
    assert begin.lifetime_ms == 1_000


def test_a_session_that_is_late_revives_no_target_that_has_ended(pair: Pair) -> None:
    conversation = spoken(pair)
    pair.home.end(pair.initiator(conversation))
    pair.home.deliver(pair.target)
    pair.target.end(pair.receiver(conversation))
    assert pair.target.state.live() == []
    first_of_the_session(pair, conversation)
    assert pair.target.state.live() == []
    bounce = pair.target.outputs(pair.home.address)[-1]
    assert (bounce.kind, bounce.detail.reason, bounce.body) == (Kind.BOUNCE, BounceReason.ENDED, b"0")
    assert pair.target.state.tombstones == {}


def test_a_tombstone_behind_homes_first_goes_when_the_session_is_closed(pair: Pair) -> None:
    conversation = spoken(pair)
    pair.home.deliver(pair.target)
    assert pair.target.state.tombstones == {conversation: SESSION}
    pair.target.take(pair.client.close(pair.target.address, SESSION))
    assert pair.target.state.tombstones == {}


def test_homes_first_is_heard_when_the_session_is_closed_at_the_target(pair: Pair) -> None:
    pair.begin("another conversation")
    pair.target.take(pair.client.close(pair.target.address, SESSION))
    conversation = spoken(pair)
    pair.home.deliver(pair.target)
    assert pair.receiver(conversation).received == 1
    assert pair.target.state.tombstones == {}


@pytest.mark.parametrize("told", [True, False], ids=["home was told", "home was not told"])
@pytest.mark.parametrize("closed", [True, False], ids=["session closed", "session open"])
def test_homes_first_does_not_revive_a_target_that_was_cleaned_up(pair: Pair, told: bool, closed: bool) -> None:
    conversation = spoken(pair, messages=1)
    pair.target.commit(rare=(Cleanup(pair.receiver(conversation).index),))
    if told:
        pair.send(conversation, b"1", sequence=1)
    if closed:
        pair.target.take(pair.client.close(pair.target.address, SESSION))
    pair.home.deliver(pair.target)
    assert pair.target.state.live() == []
    kinds = [sent.kind for sent in pair.target.deliver(pair.home)]
    assert kinds.count(Kind.NO_PEER) == 1, "home learns of it once (behaviour 121)"
    assert pair.initiator(conversation).state is State.ERROR
    assert [one.body for one in pair.home.state.mailbox.entries.values()] == [b"1"] * told + [b"from a handler"]


@pytest.mark.parametrize("closed", [True, False], ids=["session closed", "session open"])
def test_homes_first_does_not_revive_a_target_that_has_failed_by_itself(pair: Pair, closed: bool) -> None:
    conversation = spoken(pair, messages=1)
    pair.target.commit(rare=(Fail(pair.receiver(conversation).index, -9719, "given up"),))
    pair.target.end(pair.receiver(conversation))
    assert pair.target.state.live() == []
    if closed:
        pair.target.take(pair.client.close(pair.target.address, SESSION))
    pair.home.deliver(pair.target)
    assert pair.target.state.live() == []
    assert pair.target.state.tombstones == {}


def test_homes_first_does_not_revive_a_target_that_has_moved_away_and_ended(pair: Pair) -> None:
    """Its stub is gone when home's FIRST comes."""
    conversation = spoken(pair, messages=1)
    there = Side("elsewhere")
    pair.target.commit(rare=(Relocate(pair.receiver(conversation).index, there.address, 0, 1),))
    pair.target.deliver(there)
    moved = there.state.endpoint(Role.TARGET, conversation)
    assert moved is not None
    there.commit(rare=(Cleanup(moved.index),))
    there.deliver(pair.target)
    assert not pair.target.state.moves.stubs
    pair.home.deliver(pair.target)
    assert pair.target.state.live() == []
    assert pair.target.state.tombstones == {}


def test_what_home_sends_to_a_target_that_has_failed_leaves_no_tombstone(pair: Pair) -> None:
    conversation = spoken(pair, messages=1)
    pair.target.commit(rare=(Fail(pair.receiver(conversation).index, -9719, "given up"),))
    assert pair.target.state.tombstones == {conversation: conversation}
    pair.home.deliver(pair.target)
    assert pair.target.state.tombstones == {}


def test_another_session_may_begin_the_id_of_a_target_that_was_cleaned_up(pair: Pair) -> None:
    conversation = pair.begin()
    pair.target.commit(rare=(Cleanup(pair.receiver(conversation).index),))
    pair.client = Scribe("another")
    pair.client.id = session_writer(2, 4712)
    first_of_the_session(pair, conversation)
    assert pair.receiver(conversation).opener == pair.client.id
    assert pair.target.state.tombstones == {}


def test_a_message_of_a_handler_behind_the_fin_of_its_session_comes_back_to_that_session(pair: Pair) -> None:
    conversation = pair.begin()
    pair.target.take(
        pair.client.write(Kind.FIN, pair.target.address, conversation, suffix=Suffix(home=pair.home.address))
    )
    pair.home.send(pair.initiator(conversation), b"too late")
    pair.home.deliver(pair.target)
    assert pair.receiver(conversation).received == 1
    pair.target.deliver(pair.home)
    (kept,) = pair.home.state.mailbox.entries.values()
    assert (kept.session, kept.body, kept.bounce.reason) == (SESSION, b"too late", BounceReason.FINISHED)
    assert pair.target.state.statistics.undeliverable == 0


def test_home_does_not_number_its_messages_on_a_sessions_dialog(pair: Pair) -> None:
    conversation = spoken(pair, messages=1)
    (sent,) = pair.home.deliver(pair.target)
    assert sent.envelope.sequence == NO_SEQUENCE
    assert pair.initiator(conversation).sent == NO_SEQUENCE
