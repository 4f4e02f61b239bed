"""Caller-chosen ids: an ended conversation never begins again, neither at home nor at its target (protocol.md 9e)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from konverse.dialog.fold.snapshot import Freeze, restore
from konverse.dialog.session import dialogs as manner
from konverse.dialog.session.dialogs import BeginOptions
from konverse.dialog.session.session import Session
from konverse.dialog.session.transactions import StagedTransaction
from konverse.dialog.state import named
from konverse.dialog.state.named import How
from konverse.dialog.state.partition import Partition
from konverse.dialog.state.transitions import State
from konverse.schemas.errors import ConversationEnded, ConversationOver
from konverse.schemas.identifiers import Role
from konverse.schemas.system_messages import read_error
from konverse.schemas.wire.operations import Cleanup, Prune
from konverse.schemas.wire.records import ACKED, FIRST, NAMED, REFUSED, BounceReason, Kind, Suffix
from tests.kit.builders import Pair, Scribe, Side, begin_block, identifier, log_of
from tests.kit.digests import digest
from tests.kit.moving import World, move
from tests.kit.transmission import TRANSMISSION, expanded, transmitting

ORDER: Final = identifier("an order")
BLOCK: Final = begin_block(group=ORDER)


def begin(pair: Pair, client: str = "client", flags: int = NAMED, *, sends: bool = True) -> None:
    """A session begins the conversation of the order and sends on it."""
    scribe = pair.client if client == "client" else Scribe(client)
    pair.home.take(scribe.write(Kind.BEGIN, pair.home.address, ORDER, flags=flags, suffix=Suffix(begin=BLOCK)))
    if sends:
        pair.target.take(scribe.first(pair.target.address, ORDER, BLOCK, flags=FIRST | flags), client.encode())


def both_ended(pair: Pair) -> None:
    pair.end_call(ORDER)
    pair.home.deliver(pair.target)
    pair.target.end(pair.receiver(ORDER))
    pair.target.deliver(pair.home)


def peer_first(pair: Pair) -> None:
    pair.target.end(pair.receiver(ORDER))
    pair.target.deliver(pair.home)
    pair.home.end(pair.initiator(ORDER))
    pair.home.deliver(pair.target)


def failed(pair: Pair) -> None:
    pair.end_call(ORDER, (17, "cancelled"))
    pair.home.deliver(pair.target)
    pair.target.end(pair.receiver(ORDER))
    pair.target.deliver(pair.home)


def peer_failed(pair: Pair) -> None:
    pair.target.end(pair.receiver(ORDER), 17, "sold out")
    pair.target.deliver(pair.home)
    pair.home.end(pair.initiator(ORDER))
    pair.home.deliver(pair.target)


def cleaned_up(pair: Pair) -> None:
    pair.home.commit(rare=[Cleanup(pair.initiator(ORDER).index)])
    pair.target.commit(rare=[Cleanup(pair.receiver(ORDER).index)])


ENDS: Final = {
    How.ENDED: both_ended,
    How.AFTER_PEER: peer_first,
    How.FAILED: failed,
    How.AFTER_ERROR: peer_failed,
    How.CLEANED_UP: cleaned_up,
}

ways_to_end = pytest.mark.parametrize(("how", "end"), list(ENDS.items()), ids=[how.name for how in ENDS])


@pytest.fixture
def pair() -> Pair:
    return Pair()


def mailbox(pair: Pair) -> list[tuple[bytes | None, BounceReason]]:
    pair.target.deliver(pair.home)
    return [(one.body, one.bounce.reason) for one in pair.home.state.mailbox.entries.values()]


# ---------------------------------------------------------------------------------------------------- it is not begun


@ways_to_end
def test_the_id_of_an_ended_conversation_is_not_begun_again_and_its_message_comes_back(
    pair: Pair, how: How, end: Callable[[Pair], None]
) -> None:
    begin(pair)
    end(pair)
    assert pair.home.state.live() == pair.target.state.live() == []
    assert pair.home.state.named.over[Role.INITIATOR, ORDER].how is how
    begin(pair, "late")
    assert pair.home.state.live() == pair.target.state.live() == []
    assert mailbox(pair) == [(b"late", BounceReason.ENDED)]
    pair.home.deliver(pair.target)
    assert pair.target.state.live() == []


@ways_to_end
def test_the_refusal_of_an_ended_conversation_id_names_the_kind_and_time_of_its_end_and_the_remedy(
    pair: Pair, how: How, end: Callable[[Pair], None]
) -> None:
    begin(pair)
    pair.home.state.now_ms = 1_764_166_530_250
    end(pair)
    error = pair.home.state.named.refusal(ORDER)
    assert isinstance(error, ConversationOver)
    assert isinstance(error, ConversationEnded)
    assert error.number == 8429
    words = {
        How.ENDED: "this side ended it,",
        How.AFTER_PEER: "the other side ended it, and then this one",
        How.FAILED: "this side ended it WITH ERROR",
        How.AFTER_ERROR: "it failed with an Error",
        How.CLEANED_UP: "WITH CLEANUP",
    }
    for text in (words[how], "2025-11-26T14:15:30.250+00:00", "Begin with another id"):
        assert text in str(error)
    assert pair.home.state.named.refusal(identifier("another")) is None


def test_an_id_cannot_begin_again_after_only_one_side_has_ended(pair: Pair) -> None:
    begin(pair)
    pair.end_call(ORDER)
    error = pair.home.state.named.refusal(ORDER)
    assert error is not None
    assert "this side ended it" in str(error)
    pair.home.deliver(pair.target)
    begin(pair, "late")
    assert mailbox(pair) == [(b"late", BounceReason.ENDED)]


def test_a_second_begin_with_the_id_of_an_open_conversation_opens_no_other(pair: Pair) -> None:
    begin(pair)
    begin(pair, "again")
    assert pair.home.state.named.refusal(ORDER) is None
    assert [entry[2] for entry in pair.receiver(ORDER).queue] == [b"client", b"again"]
    assert len(pair.home.state.live()) == 1


@pytest.mark.parametrize("who", ["client", "another"])
def test_whether_several_sessions_speak_to_a_target_is_known_and_is_state(pair: Pair, who: str) -> None:
    begin(pair)
    begin(pair, who)
    again = Partition(log_of(pair.target.queue))
    restore(again, b"".join(Freeze(pair.target.state).pieces()))
    for state in (pair.target.state, again):
        assert state.named.living == {(Role.TARGET, ORDER): who == "another"}


@pytest.mark.parametrize("who", ["client", "another"])
def test_whether_several_sessions_have_begun_it_is_known_at_home(pair: Pair, who: str) -> None:
    begin(pair, sends=False)
    scribe = pair.client if who == "client" else Scribe(who)
    pair.home.take(scribe.write(Kind.BEGIN, pair.home.address, ORDER, flags=NAMED, suffix=Suffix(begin=BLOCK)))
    assert pair.home.state.named.living == {(Role.INITIATOR, ORDER): who == "another"}


def test_a_first_message_for_a_cleaned_up_target_returns_error_8462_to_the_initiator(pair: Pair) -> None:
    begin(pair)
    pair.target.commit(rare=[Cleanup(pair.receiver(ORDER).index)])
    begin(pair, "another")
    pair.target.deliver(pair.home)
    error = pair.initiator(ORDER).error
    assert error is not None
    assert read_error(error[2] or b"")[0] == -8462


def test_the_end_of_any_session_that_begins_it_ends_it(pair: Pair) -> None:
    begin(pair)
    begin(pair, "another")
    pair.home.take(Scribe("a third").write(Kind.END_CALL, pair.home.address, ORDER))
    assert pair.initiator(ORDER).committed is State.DISCONNECTED_OUTBOUND


# ------------------------------------------------------------------------------- replies to a session that was refused


def refused_then_begun_by_another(pair: Pair, replies: int) -> None:
    """A target replies to a session whose BEGIN is refused; then another session begins the conversation."""
    pair.home.take(Scribe("heir").close(pair.home.address, identifier("client")))
    begin(pair)
    assert pair.home.state.live() == []
    for number in range(replies):
        pair.target.send(pair.receiver(ORDER), b"%d" % number)
    pair.target.deliver(pair.home)
    begin(pair, "another", sends=False)


def test_a_reply_behind_replies_that_found_no_initiator_is_not_received_by_the_next_one(pair: Pair) -> None:
    refused_then_begun_by_another(pair, 2)
    pair.target.send(pair.receiver(ORDER), b"2")
    pair.target.deliver(pair.home)
    initiator = pair.initiator(ORDER)
    assert (initiator.queue, initiator.committed) == ([], State.STARTED_OUTBOUND)
    answers = [sent.kind for sent in pair.home.deliver(pair.target)]
    assert answers == [Kind.END, Kind.NO_PEER, Kind.NO_PEER, Kind.NO_PEER]
    assert pair.receiver(ORDER).committed is State.DISCONNECTED_INBOUND


@pytest.mark.parametrize("code", [0, 17])
def test_the_end_of_such_a_target_is_an_error_for_its_initiator(pair: Pair, code: int) -> None:
    refused_then_begun_by_another(pair, 2)
    pair.target.end(pair.receiver(ORDER), code, "sold out" if code else "")
    pair.target.deliver(pair.home)
    error = pair.initiator(ORDER).error
    assert error is not None
    assert read_error(error[2] or b"")[0] == (code or -8462)


def test_a_target_that_has_not_replied_serves_the_next_initiator(pair: Pair) -> None:
    refused_then_begun_by_another(pair, 0)
    pair.target.send(pair.receiver(ORDER), b"0", b"1")
    pair.target.deliver(pair.home)
    assert [entry[2] for entry in pair.initiator(ORDER).queue] == [b"0", b"1"]


def test_a_message_behind_the_end_of_the_target_comes_back_when_its_id_was_begun_again(pair: Pair) -> None:
    begin(pair)
    pair.target.end(pair.receiver(ORDER))
    begin(pair, "late")
    assert mailbox(pair) == [(b"late", BounceReason.ENDED)]


def test_a_target_that_does_not_remember_it_gets_an_error_of_its_home(pair: Pair) -> None:
    begin(pair)
    both_ended(pair)
    pair.target.state.named.over.clear()
    begin(pair, "late")
    pair.home.deliver(pair.target)
    error = pair.receiver(ORDER).error
    assert error is not None
    code, description = read_error(error[2] or b"")
    assert code == -8429
    assert str(BLOCK.group) not in description
    assert "is over: this side ended it" in description


def test_a_target_that_hears_of_the_refusal_first_sends_the_message_back(pair: Pair) -> None:
    begin(pair)
    both_ended(pair)
    pair.target.state.named.over.clear()
    begin(pair, "late", sends=False)
    (sent,) = pair.home.deliver(pair.target)
    assert (sent.kind, sent.envelope.flags) == (Kind.ERROR, REFUSED | NAMED | ACKED)
    pair.target.take(Scribe("late").first(pair.target.address, ORDER, BLOCK, flags=FIRST | NAMED), b"late")
    assert mailbox(pair) == [(b"late", BounceReason.ENDED)]
    assert pair.target.state.tombstones == {}


def test_a_target_remembers_the_end_of_a_conversation_that_sent_nothing(pair: Pair) -> None:
    begin(pair, sends=False)
    pair.end_call(ORDER)
    pair.home.deliver(pair.target)
    assert pair.target.state.named.over[Role.TARGET, ORDER].how is How.NEVER_BEGUN
    begin(pair, "late")
    pair.target.deliver(pair.home)
    assert pair.target.state.live() == []


def test_an_id_of_our_own_making_is_not_remembered(pair: Pair) -> None:
    begin(pair, flags=0)
    both_ended(pair)
    assert not pair.home.state.named.over
    assert not pair.target.state.named.over


# ------------------------------------------------------------------------------------------------------------- moves


@pytest.mark.parametrize("role", list(Role))
def test_an_id_that_ended_after_a_move_cannot_begin_again_at_its_first_place(role: Role) -> None:
    world = World()
    begin(world)
    side = world.home if role is Role.INITIATOR else world.target
    moved = move(world, side, world.initiator(ORDER) if role is Role.INITIATOR else world.receiver(ORDER), world.second)
    world.second.end(moved)
    world.settle()
    other = world.receiver(ORDER) if role is Role.INITIATOR else world.initiator(ORDER)
    (world.target if role is Role.INITIATOR else world.home).end(other)
    world.settle()
    assert side.state.named.over[role, ORDER].how is How.MOVED
    if role is Role.INITIATOR:
        error = side.state.named.refusal(ORDER)
        assert "ended in another partition" in str(error)
        assert "Begin with another id" in str(error)
    begin(world, "late")
    world.settle()
    assert [one.state.live() for one in (world.home, world.target, world.second)] == [[], [], []]
    assert [one.body for one in world.home.state.mailbox.entries.values()] == [b"late"]


@pytest.mark.parametrize(("flags", "kind"), [(NAMED, Kind.ERROR), (0, Kind.END)])
def test_a_begin_that_follows_a_side_which_is_over_is_refused_as_at_home(flags: int, kind: Kind) -> None:
    """The side is over at its last place, and its first place does not know so yet."""
    world = World()
    begin(world, flags=flags)
    moved = move(world, world.home, world.initiator(ORDER), world.second)
    world.second.state.forget(moved)
    begin(world, "late", flags)
    world.home.deliver(world.second)
    (sent,) = world.second.outputs(world.target.address)
    assert (sent.kind, sent.envelope.flags) == (kind, REFUSED | flags)


# ------------------------------------------------------------------------------------------------- state and its bounds


def test_chosen_conversation_ids_are_restored_from_a_snapshot(pair: Pair) -> None:
    begin(pair)
    pair.begin("of our own")
    for side in (pair.home, pair.target):
        for _ in range(2):  # while it lives, and when it is over
            again = Partition(log_of(side.queue))
            restore(again, b"".join(Freeze(side.state).pieces()))
            assert (again.named.living, again.named.over) == (side.state.named.living, side.state.named.over)
            assert digest(again) == digest(side.state)
            if side.state.named.living:
                side.end(pair.initiator(ORDER) if side is pair.home else pair.receiver(ORDER))
        assert len(side.state.named.over) == 1


def test_the_oldest_ended_ids_are_forgotten_when_there_are_too_many(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(named, "NAMED_OVER_ENTRIES_MAX", 2)
    sides = pair.home.state.named
    for number in range(3):
        sides.begin((Role.INITIATOR, b"%d" % number))
        sides.end((Role.INITIATOR, b"%d" % number), How.ENDED, number)
    assert [key[1] for key in sides.over] == [b"1", b"2"]


def test_a_chosen_id_older_than_the_writer_horizon_is_forgotten(pair: Pair) -> None:
    pair.home.state.now_ms = 1_000
    begin(pair)
    pair.home.end(pair.initiator(ORDER))
    pair.home.commit(rare=[Prune(1_000)])
    assert (Role.INITIATOR, ORDER) in pair.home.state.named.over
    pair.home.commit(rare=[Prune(1_001)])
    assert not pair.home.state.named.over


# ----------------------------------------------------------------------------------------------------------- sessions


def ended_directly(session: Session) -> None:
    session.end(session.begin(ORDER, BLOCK, BeginOptions(named=True))[0])


def ended_in_a_transaction(session: Session) -> None:
    session.transmit_to(BLOCK.home)
    transaction = StagedTransaction(session)
    transaction.end(transaction.begin(ORDER, BLOCK, BeginOptions(named=True)))
    session.commit(transaction)


def test_a_session_may_begin_a_conversation_that_only_a_refused_transaction_has_ended() -> None:
    session, transmission = transmitting(), Side("transmission")
    transmission.take(Scribe("heir").close(TRANSMISSION, session.writer))
    transaction = StagedTransaction(session)
    transaction.end(transaction.begin(ORDER, BLOCK, BeginOptions(named=True)))
    expanded(transmission, session.commit(transaction))
    session.transmitted(transmission.state)
    session.ended_conversations.check(ORDER)


@pytest.mark.parametrize("end", [ended_directly, ended_in_a_transaction])
def test_a_session_does_not_begin_a_conversation_that_it_has_ended_itself(end: Callable[[Session], None]) -> None:
    session = Session(identifier("session"))
    end(session)
    with pytest.raises(ConversationOver, match="this session has ended it") as caught:
        session.begin(ORDER, BLOCK, BeginOptions(named=True))
    assert caught.value.number == 8429
    with pytest.raises(ConversationOver, match="Begin with another id"):
        StagedTransaction(session).begin(ORDER, BLOCK, BeginOptions(named=True))


def test_a_session_remembers_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manner, "SESSION_OVER_ENTRIES_MAX", 1)
    session = Session(identifier("session"))
    for name in ("first", "second"):
        dialog, _ = session.begin(identifier(name), BLOCK, BeginOptions(named=True))
        session.end(dialog)
    session.ended_conversations.check(identifier("first"))
    with pytest.raises(ConversationOver):
        session.ended_conversations.check(identifier("second"))
