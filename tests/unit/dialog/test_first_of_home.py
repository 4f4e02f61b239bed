"""A handler sends on a dialog of a session before its target has answered: home sends FIRST, too (M288, M289)."""

from __future__ import annotations

from typing import Any

import pytest

from konverse.dialog.state.relocations import Stub
from konverse.dialog.state.transitions import State
from konverse.schemas.identifiers import Role, session_writer
from konverse.schemas.wire.operations import Cleanup, Fail, Lost
from konverse.schemas.wire.records import FIRST, NAMED, NO_SEQUENCE, BounceReason, Closed, Kind, Opened, Suffix, Timer
from tests.kit.builders import Pair, Scribe, Side, begin_block, identifier
from tests.kit.moving import World, living, move, relocate

SESSION = session_writer(1, 4711)


@pytest.fixture
def pair() -> Pair:
    made = Pair()
    made.client.id = SESSION
    return made


@pytest.fixture
def world() -> World:
    made = World()
    made.client.id = SESSION
    return made


def lose(side: Side) -> None:
    """The next three records are gone, and a COMMIT reports that."""
    lost = Lost(side.state.ingest_to, side.state.ingest_to + 3)
    side.state.ingest_to = lost.end
    side.commit(rare=[lost])


def spoken(pair: Pair, messages: int = 0, **begin: Any) -> bytes:
    """A conversation on which a handler at home has sent a message; the session has sent `messages`."""
    conversation = pair.begin(messages=messages, **begin)
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
    assert not more.envelope.flags & FIRST


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


@pytest.mark.parametrize("opener", ["a session", "a query of Spark"])
@pytest.mark.parametrize("end", ["its lifetime is over", "data was lost"])
def test_homes_first_does_not_revive_a_target_that_ended_and_waits_for_its_home_no_more(
    pair: Pair, end: str, opener: str
) -> None:
    """The target has ended first, and is then forgotten without the END of its home."""
    if opener != "a session":
        pair.client.id = identifier("a query")
    conversation = spoken(pair, messages=1, lifetime_ms=60_000)
    pair.target.end(pair.receiver(conversation))
    if end == "data was lost":
        lose(pair.target)
    else:
        pair.target.state.now_ms = 100_000
        pair.target.commit()
    assert pair.target.state.live() == []
    pair.home.deliver(pair.target)
    assert pair.target.state.live() == []
    assert pair.target.state.tombstones == {}


def test_homes_first_does_not_revive_a_querys_target_that_was_cleaned_up(pair: Pair) -> None:
    pair.client.id = identifier("a query")
    conversation = spoken(pair, messages=1)
    pair.target.commit(rare=(Cleanup(pair.receiver(conversation).index),))
    pair.home.deliver(pair.target)
    assert pair.target.state.live() == []
    assert Kind.NO_PEER in [sent.kind for sent in pair.target.deliver(pair.home)]
    assert pair.initiator(conversation).state is State.ERROR


@pytest.mark.parametrize("who", ["home, first", "home, later", "the session"])
@pytest.mark.parametrize("moves", [1, 2])
def test_a_sender_learns_that_its_target_moved_away_and_was_cleaned_up_there(
    world: World, who: str, moves: int
) -> None:
    """Its stubs are gone when the next message comes: the first place answers by NO_PEER (M148)."""
    conversation = world.begin(messages=1)
    if who != "the session":
        world.home.send(world.initiator(conversation), b"from a handler")
    if who == "home, later":
        world.settle()
    side, target = world.target, world.receiver(conversation)
    for there in (world.second, world.third)[:moves]:
        relocate(side, target, there)
        side.deliver(there)
        side, target = there, living(there, Role.TARGET, conversation)
    side.commit(rare=(Cleanup(target.index),))
    for source, to in ((world.third, world.second), (world.second, world.target)):
        source.deliver(to)
    assert not world.target.state.moves.stubs
    if who == "the session":
        world.send(conversation, b"1", sequence=1)
    elif who == "home, later":
        world.home.send(world.initiator(conversation), b"more")
    world.settle()
    assert world.initiator(conversation).state is State.ERROR
    for place in (world.target, world.second, world.third):
        assert place.state.live() == []
        left = who != "home, first" and place is world.target
        assert place.state.tombstones == ({conversation: conversation} if left else {})


def test_the_end_of_home_drops_the_tombstone_of_a_target_that_moved_away_and_was_cleaned_up(world: World) -> None:
    conversation = world.begin(messages=1)
    relocate(world.target, world.receiver(conversation), world.second)
    world.target.deliver(world.second)
    world.second.commit(rare=(Cleanup(living(world.second, Role.TARGET, conversation).index),))
    world.second.deliver(world.target)
    assert world.target.state.tombstones == {conversation: conversation}
    world.end_call(conversation)
    world.settle()
    assert {one for side in (world.target, world.second) for one in side.state.tombstones.values()} <= {world.client.id}
    assert world.home.state.live() == []


def test_a_message_of_the_session_behind_its_lost_first_fails_the_target_that_homes_first_made(pair: Pair) -> None:
    """The numbers alone do not show the gap: the handler's message was counted as well (M213)."""
    conversation = pair.begin(messages=0)
    pair.client.message(pair.target.address, conversation)  # FIRST, which is deleted before it is read
    lose(pair.target)
    pair.home.send(pair.initiator(conversation), b"from a handler")
    pair.home.deliver(pair.target)
    pair.send(conversation, b"1", sequence=1)
    target = pair.receiver(conversation)
    assert (target.state, pair.target.waiting(target)) == (State.ERROR, ["reply"])
    kinds = [sent.kind for sent in pair.target.deliver(pair.home)]
    assert kinds == [Kind.ERROR, Kind.BOUNCE]
    assert pair.initiator(conversation).state is State.ERROR


def test_a_handlers_message_on_a_pools_conversation_makes_the_target(pair: Pair) -> None:
    conversation = pair.begin(messages=0)
    timer = Suffix(detail=Timer(60_000, "EndOfStream"))
    pair.home.take(pair.client.write(Kind.SET_TIMER, pair.home.address, conversation, suffix=timer))
    pair.home.send(pair.initiator(conversation), b"from a handler")
    pair.home.send(pair.initiator(conversation), b"", message_type="EndOfStream")
    pair.home.deliver(pair.target)
    assert pair.target.waiting(pair.receiver(conversation)) == ["reply", "EndOfStream"]


def test_what_comes_back_of_a_home_that_moved_twice_reaches_the_mailbox_that_its_session_reads(world: World) -> None:
    conversation = world.begin(messages=1)
    here = move(world, world.home, world.initiator(conversation), world.second)
    here = move(world, world.second, here, world.third)
    world.target.commit(rare=(Cleanup(world.receiver(conversation).index),))
    world.third.send(here, b"from a handler")
    world.settle()
    assert [one.body for one in world.home.state.mailbox.entries.values()] == [b"from a handler"]
    assert not world.second.state.mailbox.entries


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


@pytest.mark.parametrize("when", ["before it ends", "after it has ended"])
def test_homes_first_does_not_revive_a_target_that_moved_and_failed_by_a_loss_where_it_had_lived(
    world: World, when: str
) -> None:
    """The ERROR that the first place forwards is no word of home: its FIRST may still come."""
    conversation = world.begin(messages=1)
    world.home.send(world.initiator(conversation), b"from a handler")
    relocate(world.target, world.receiver(conversation), world.second)
    world.target.deliver(world.second)
    target = living(world.second, Role.TARGET, conversation)
    if when == "after it has ended":
        world.second.end(target)
    lose(world.target)
    world.target.deliver(world.second)
    if when == "before it ends":
        assert target.state is State.ERROR
        world.second.end(target)
    world.second.deliver(world.target)
    world.home.deliver(world.target)
    assert [side.state.live() for side in (world.target, world.second)] == [[], []]


def test_a_message_to_a_target_whose_install_was_lost_tells_home(world: World) -> None:
    conversation = world.begin(messages=2)
    relocate(world.target, world.receiver(conversation), world.second)
    lose(world.second)  # with the INSTALL
    world.send(conversation, b"2", sequence=2)
    (forward,) = [sent for sent in world.target.outputs(world.second.address) if sent.kind is Kind.FORWARD]
    world.second.take(
        Scribe("a place").write(Kind.FORWARD, world.second.address, conversation, suffix=forward.envelope.suffix), b"2"
    )
    kinds = [sent.kind for sent in world.second.deliver(world.home)]
    assert kinds == [Kind.BOUNCE, Kind.NO_PEER]
    assert world.initiator(conversation).state is State.ERROR


def test_a_loss_does_not_overtake_records_that_are_on_their_way_round_to_an_endpoint_that_came_back(
    world: World,
) -> None:
    conversation = world.begin(messages=1)
    there = move(world, world.home, world.initiator(conversation), world.second)
    here = move(world, world.second, there, world.home)
    world.target.send(world.receiver(conversation), b"reply")
    world.target.deliver(world.home)  # it is forwarded, and comes back here
    lose(world.home)
    assert here.error is None
    world.settle()
    assert (here.state, world.home.waiting(here)) == (State.ERROR, ["reply"])


def test_a_loss_where_it_had_lived_does_not_fail_a_moved_conversation_that_has_sent_nothing(world: World) -> None:
    conversation = identifier("begun by a handler")
    world.home.commit(begins=[(conversation, begin_block(group=conversation))])
    initiator = move(world, world.home, world.initiator(conversation), world.second)
    lose(world.home)
    world.settle()
    assert (initiator.state, initiator.error) == (State.STARTED_OUTBOUND, None)


def test_what_comes_back_to_the_home_of_an_initiator_that_moved_keeps_its_key(world: World) -> None:
    conversation = world.begin(messages=1, key=b"K")
    move(world, world.home, world.initiator(conversation), world.second)
    world.target.commit(rare=(Cleanup(world.receiver(conversation).index),))
    world.send(conversation, b"1", sequence=1)
    world.settle()
    assert [one.key for one in world.home.state.mailbox.entries.values()] == [b"K"]


def test_an_id_of_the_callers_choice_stays_one_when_its_home_moves_and_speaks_first(world: World) -> None:
    """Else the target would not remember the end, and a second BEGIN of the id would be received again."""
    conversation, block = identifier("an order"), begin_block(group=identifier("an order"))
    world.home.take(
        world.client.write(Kind.BEGIN, world.home.address, conversation, flags=NAMED, suffix=Suffix(begin=block))
    )
    here = move(world, world.home, world.initiator(conversation), world.second)
    world.second.send(here, b"pay")
    world.settle()
    world.target.end(world.receiver(conversation))
    world.settle()
    world.second.end(here)
    world.settle()
    again = Scribe("another")
    world.target.take(again.first(world.target.address, conversation, block, flags=FIRST | NAMED), b"pay")
    assert world.target.state.live() == []


def test_the_closed_of_an_initiator_leaves_what_is_expected_of_home_to_the_target(world: World) -> None:
    """Both sides of a conversation may have begun in one partition."""
    conversation = world.begin(messages=1)
    world.target.commit(rare=(Cleanup(world.receiver(conversation).index),))
    expected = dict(world.target.state.tombstones)
    stub = Stub(world.second.address, None, None, opened=True)
    world.target.state.moves.leave((Role.INITIATOR, conversation), 0, stub)
    header = Scribe("a place").write(
        Kind.CLOSED, world.target.address, conversation, role=Role.INITIATOR, suffix=Suffix(detail=Closed(0))
    )
    world.target.take(header)
    assert world.target.state.moves.stubs == {}
    assert world.target.state.tombstones == expected == {conversation: conversation}
