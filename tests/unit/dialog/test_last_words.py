"""The last word of a side: an id begins anew behind it alone, and whatever comes before it is for the old conversation.

Source: M268, M269. A side says its last word once: END or ERROR when it ends, or the answer to the other side's END
when it does not live. The ERROR of a failure is none, because the END of its sender follows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from konverse.dialog.state.transitions import State
from konverse.schemas.identifiers import Role
from konverse.schemas.wire.envelope import encode_envelope
from konverse.schemas.wire.operations import Cleanup, Fail, Lost
from konverse.schemas.wire.records import ANEW, FIRST, FOLLOWED, NAMED, BounceReason, Kind, Opened, Suffix
from tests.kit.builders import Pair, Scribe, Side, begin_block, identifier
from tests.kit.moving import World, move

ORDER: Final = identifier("an order")
BLOCK: Final = begin_block(group=ORDER)
NEW: Final = NAMED | ANEW
AT_HOME: Final = (Role.INITIATOR, ORDER)
AT_TARGET: Final = (Role.TARGET, ORDER)


def begin(pair: Pair, who: Scribe, flags: int = NAMED, *, sends: bytes | None = b"0") -> None:
    pair.home.take(who.write(Kind.BEGIN, pair.home.address, ORDER, flags=flags, suffix=Suffix(begin=BLOCK)))
    if sends is not None:
        pair.target.take(who.first(pair.target.address, ORDER, BLOCK, flags=FIRST | flags), sends)


def end(pair: Pair, who: Scribe) -> None:
    """The session ends its side."""
    suffix = Suffix("EndDialog", detail=Opened(who.id))
    pair.home.take(who.write(Kind.END_CALL, pair.home.address, ORDER, suffix=suffix))


def fail(side: Side, role: Role) -> None:
    """The broker gives the conversation up here, on behalf of both sides."""
    endpoint = side.state.endpoint(role, ORDER)
    assert endpoint is not None
    side.commit(rare=[Fail(endpoint.index, -9001, "too many failures")])


def exchange(pair: Pair) -> None:
    """Deliver everything that waits, both ways, until nothing is left."""
    while pair.home.deliver(pair.target) or pair.target.deliver(pair.home):
        pass


def kinds(pair: Pair, *, to_home: bool) -> list[Kind]:
    one, other = (pair.target, pair.home) if to_home else (pair.home, pair.target)
    return [sent.kind for sent in one.outputs(other.address)]


@pytest.fixture
def pair() -> Pair:
    return Pair()


@pytest.fixture
def other() -> Scribe:
    return Scribe("another session")


# ------------------------------------------------------------------------------------------- a failure, and an END then


def test_home_waits_for_the_end_of_a_target_that_has_failed(pair: Pair, other: Scribe) -> None:
    begin(pair, pair.client)
    fail(pair.target, Role.TARGET)
    exchange(pair)
    pair.home.end(pair.initiator(ORDER))
    exchange(pair)
    begin(pair, other, NEW, sends=None)
    assert pair.home.state.live() == [], "the END of the old target would end the new conversation"
    pair.target.end(pair.receiver(ORDER))
    exchange(pair)
    begin(pair, Scribe("anew"), NEW)
    exchange(pair)
    assert pair.initiator(ORDER).committed is State.STARTED_OUTBOUND
    assert pair.receiver(ORDER).committed is State.CONVERSING


def test_a_target_waits_for_the_end_of_an_initiator_that_has_failed(pair: Pair, other: Scribe) -> None:
    begin(pair, pair.client)
    fail(pair.home, Role.INITIATOR)
    exchange(pair)
    pair.target.end(pair.receiver(ORDER))
    exchange(pair)
    begin(pair, other, NEW)
    assert pair.target.state.live() == [], "the END of the old initiator would end the new target"
    pair.home.end(pair.initiator(ORDER))
    exchange(pair)
    begin(pair, Scribe("anew"), NEW)
    exchange(pair)
    assert pair.receiver(ORDER).committed is State.CONVERSING


def test_a_target_that_never_was_answers_an_initiator_that_has_failed_once(pair: Pair) -> None:
    begin(pair, pair.client, sends=None)
    fail(pair.home, Role.INITIATOR)
    pair.home.deliver(pair.target)
    assert kinds(pair, to_home=True) == []
    assert AT_TARGET not in pair.target.state.named.heard
    pair.target.take(pair.client.first(pair.target.address, ORDER, BLOCK, flags=FIRST | NAMED), b"late")
    assert pair.target.state.live() == [], "its first message is for a conversation that has failed"
    pair.home.end(pair.initiator(ORDER))
    pair.home.deliver(pair.target)
    assert kinds(pair, to_home=True) == [Kind.BOUNCE, Kind.END]
    exchange(pair)
    assert AT_HOME in pair.home.state.named.heard
    assert AT_TARGET in pair.target.state.named.heard


# ----------------------------------------------------------------------------------------------- answers of who is gone


def test_an_initiator_waits_for_the_answer_to_its_end_when_its_target_was_cleaned_up(pair: Pair, other: Scribe) -> None:
    """Its message is answered as well, by NO_PEER, and its END would be answered behind a new BEGIN."""
    begin(pair, pair.client)
    pair.target.commit(rare=[Cleanup(pair.receiver(ORDER).index)])
    suffix = Suffix("order", home=BLOCK.home, detail=Opened(pair.client.id))
    pair.target.take(pair.client.message(BLOCK.target, ORDER, flags=NAMED, suffix=suffix), b"1")
    assert kinds(pair, to_home=True) == [Kind.BOUNCE, Kind.NO_PEER]
    pair.target.deliver(pair.home)
    assert pair.initiator(ORDER).committed is State.ERROR
    pair.home.end(pair.initiator(ORDER))
    begin(pair, other, NEW, sends=None)
    assert pair.home.state.live() == []
    exchange(pair)
    begin(pair, Scribe("anew"), NEW)
    exchange(pair)
    assert pair.initiator(ORDER).committed is State.STARTED_OUTBOUND


def test_a_target_waits_for_the_answer_to_its_end_when_its_initiator_was_cleaned_up(pair: Pair, other: Scribe) -> None:
    begin(pair, pair.client)
    pair.home.commit(rare=[Cleanup(pair.initiator(ORDER).index)])
    pair.target.send(pair.receiver(ORDER), b"reply")
    exchange(pair)
    assert pair.receiver(ORDER).committed is State.ERROR
    pair.target.end(pair.receiver(ORDER))
    begin(pair, other, NEW)
    assert pair.target.state.live() == [], "NO_PEER would be an Error for the new target"
    exchange(pair)
    begin(pair, Scribe("anew"), NEW)
    exchange(pair)
    assert pair.receiver(ORDER).committed is State.CONVERSING
    assert pair.initiator(ORDER).committed is State.STARTED_OUTBOUND


def failed_at_home_meanwhile(pair: Pair) -> None:
    """END of the target and the failure of its initiator cross."""
    pair.target.end(pair.receiver(ORDER))
    fail(pair.home, Role.INITIATOR)
    exchange(pair)


def cleaned_up_after_its_end(pair: Pair) -> None:
    pair.target.end(pair.receiver(ORDER))
    pair.target.deliver(pair.home)
    pair.target.commit(rare=[Cleanup(pair.receiver(ORDER).index)])


@pytest.mark.parametrize("leaves", [failed_at_home_meanwhile, cleaned_up_after_its_end])
def test_an_answer_to_the_former_end_does_not_end_the_new_conversation(
    pair: Pair, other: Scribe, leaves: Callable[[Pair], None]
) -> None:
    """A target that has ended, and left before the END of its initiator came, answers that END once more."""
    begin(pair, pair.client)
    leaves(pair)
    assert AT_TARGET in pair.target.state.named.over
    pair.home.end(pair.initiator(ORDER))
    begin(pair, other, NEW, sends=None)
    exchange(pair)
    assert pair.initiator(ORDER).committed is State.STARTED_OUTBOUND
    end(pair, other)
    assert pair.initiator(ORDER).committed is State.DISCONNECTED_OUTBOUND, "no other END was taken for the answer to it"
    exchange(pair)
    assert pair.home.state.live() == []


def test_a_late_no_peer_is_no_error_of_the_new_target(pair: Pair, other: Scribe) -> None:
    """The initiator has ended, and left when its target failed; so it answers the END of the target as well."""
    begin(pair, pair.client)
    end(pair, pair.client)
    fail(pair.target, Role.TARGET)
    exchange(pair)
    assert pair.home.state.live() == []
    pair.target.end(pair.receiver(ORDER))
    pair.target.deliver(pair.home)
    begin(pair, other, NEW)
    assert kinds(pair, to_home=False) == [Kind.NO_PEER]
    exchange(pair)
    assert pair.receiver(ORDER).committed is State.CONVERSING
    assert pair.receiver(ORDER).urgent == ()


def test_a_late_no_peer_behind_a_message_is_no_error_of_a_target_that_has_sent_nothing(
    pair: Pair, other: Scribe
) -> None:
    begin(pair, pair.client)
    end(pair, pair.client)
    pair.home.commit(rare=[Cleanup(pair.initiator(ORDER).index)])
    pair.target.send(pair.receiver(ORDER), b"late")
    pair.target.end(pair.receiver(ORDER))
    pair.target.deliver(pair.home)
    no_peers = [sent for sent in pair.home.outputs(pair.target.address) if sent.kind is Kind.NO_PEER]
    assert [bool(sent.envelope.flags & FOLLOWED) for sent in no_peers] == [True, False]
    fresh = Pair()
    begin(fresh, other, NEW)
    fresh.target.take(encode_envelope(no_peers[0].envelope._replace(counter=0)), no_peers[0].body)
    assert fresh.receiver(ORDER).committed is State.CONVERSING
    assert fresh.target.state.statistics.undeliverable == 1


def test_an_error_that_an_end_follows_is_not_answered_where_its_target_had_moved_to() -> None:
    world = World()
    begin(world, world.client)
    moved = move(world, world.target, world.receiver(ORDER), world.second)
    world.second.commit(rare=[Cleanup(moved.index)])
    fail(world.home, Role.INITIATOR)
    world.home.deliver(world.target)
    world.target.deliver(world.second)
    assert [sent.kind for sent in world.second.outputs(world.home.address)] == []


def test_a_numbered_error_that_an_end_follows_is_not_answered_either() -> None:
    """An initiator that a handler began: its ERROR has a number, as the records of targets have."""
    world = World()
    begin(world, world.client)
    moved = move(world, world.target, world.receiver(ORDER), world.second)
    world.second.commit(rare=[Cleanup(moved.index)])
    strays = world.second.state.statistics.strays
    world.initiator(ORDER).sent = 7
    fail(world.home, Role.INITIATOR)
    world.home.deliver(world.target)
    world.target.deliver(world.second)
    assert world.second.state.statistics.strays == strays


def test_a_target_that_is_known_to_be_over_sends_no_error_of_lost_data(pair: Pair, other: Scribe) -> None:
    """A session that joined the old conversation does not know of its end; the id is in use again at home."""
    begin(pair, pair.client)
    begin(pair, other)
    end(pair, pair.client)
    exchange(pair)
    pair.target.end(pair.receiver(ORDER))
    exchange(pair)
    pair.target.commit(rare=[Lost(pair.target.state.ingest_to, pair.target.state.ingest_to + 3)])
    begin(pair, Scribe("anew"), NEW, sends=None)
    suffix = Suffix("order", home=BLOCK.home, detail=Opened(other.id))
    pair.target.take(other.message(BLOCK.target, ORDER, flags=NAMED, suffix=suffix), b"late")
    assert kinds(pair, to_home=True) == [Kind.BOUNCE]
    exchange(pair)
    assert pair.initiator(ORDER).committed is State.STARTED_OUTBOUND


def test_a_session_that_begins_anew_behind_lost_data_gets_their_error(pair: Pair) -> None:
    """Its first message may have been among them, and the former target knows nothing of that conversation."""
    begin(pair, pair.client)
    end(pair, pair.client)
    exchange(pair)
    pair.target.end(pair.receiver(ORDER))
    exchange(pair)
    anew = Scribe("anew")
    begin(pair, anew, NEW, sends=None)
    pair.target.commit(rare=[Lost(pair.target.state.ingest_to, pair.target.state.ingest_to + 3)])
    suffix = Suffix("order", home=BLOCK.home, detail=Opened(anew.id))
    pair.target.take(anew.message(BLOCK.target, ORDER, flags=NEW, suffix=suffix), b"second")
    exchange(pair)
    assert pair.initiator(ORDER).committed is State.ERROR


# ------------------------------------------------------------------------------------------------- the opener's own END


def test_a_session_that_sent_nothing_and_has_ended_begins_anew_at_once(pair: Pair) -> None:
    """Its END stands behind all that it sent, so no first message of the old conversation is under way (M92)."""
    begin(pair, pair.client, sends=None)
    end(pair, pair.client)
    exchange(pair)
    assert pair.target.state.tombstones == {}
    begin(pair, pair.client, NEW, sends=b"anew")
    assert [entry[2] for entry in pair.receiver(ORDER).queue] == [b"anew"]


def test_a_cleanup_does_not_take_back_the_answer_to_the_end_of_a_former_conversation(pair: Pair) -> None:
    """The session begins anew before its home has that answer, so home refuses, and its target lives alone."""
    begin(pair, pair.client, sends=None)
    end(pair, pair.client)
    pair.home.deliver(pair.target)
    begin(pair, pair.client, NEW, sends=b"too early")
    pair.target.commit(rare=[Cleanup(pair.receiver(ORDER).index)])
    assert kinds(pair, to_home=True) == [Kind.END]
    pair.target.deliver(pair.home)
    assert pair.home.state.live() == []


def test_the_end_of_its_opener_removes_an_older_tombstone(pair: Pair) -> None:
    """The failure of its home left one, which the END of the opener removes."""
    begin(pair, pair.client, sends=None)
    fail(pair.home, Role.INITIATOR)
    exchange(pair)
    assert pair.target.state.tombstones == {ORDER: pair.client.id}
    end(pair, pair.client)
    exchange(pair)
    begin(pair, pair.client, NEW, sends=b"anew")
    assert [entry[2] for entry in pair.receiver(ORDER).queue] == [b"anew"]


def test_a_first_message_behind_the_end_of_another_session_comes_back(pair: Pair, other: Scribe) -> None:
    begin(pair, pair.client, sends=None)
    begin(pair, other, sends=None)
    end(pair, other)
    exchange(pair)
    begin(pair, pair.client, NEW, sends=b"late")
    assert pair.target.state.live() == []
    pair.target.deliver(pair.home)
    (back,) = pair.home.state.mailbox.entries.values()
    assert (back.body, back.bounce.reason) == (b"late", BounceReason.ENDED)
