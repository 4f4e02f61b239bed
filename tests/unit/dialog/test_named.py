"""Caller-chosen ids: an ended conversation begins again only on request, at home and target (protocol.md 6)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from konverse.dialog.fold.snapshot import Freeze, restore
from konverse.dialog.rules.reused_ids import refusal
from konverse.dialog.session import dialogs as manner
from konverse.dialog.session.dialogs import BeginOptions
from konverse.dialog.session.session import Session
from konverse.dialog.session.transactions import StagedTransaction
from konverse.dialog.state import named
from konverse.dialog.state.named import How
from konverse.dialog.state.partition import Partition
from konverse.schemas.errors import ConversationEnded, ConversationOver
from konverse.schemas.identifiers import Role
from konverse.schemas.system_messages import read_error
from konverse.schemas.wire.operations import Cleanup, Prune
from konverse.schemas.wire.records import ANEW, FIRST, NAMED, REFUSED, BounceReason, Kind, Suffix
from tests.kit.builders import Pair, Scribe, begin_block, identifier, log_of
from tests.kit.digests import digest
from tests.kit.moving import World, move

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
    How.BEHIND_PEER: peer_first,
    How.FAILED: failed,
    How.BEHIND_ERROR: peer_failed,
    How.CLEANED_UP: cleaned_up,
}

ways_to_end = pytest.mark.parametrize(("how", "end"), list(ENDS.items()), ids=[how.name for how in ENDS])
HEARD: Final = {how: end for how, end in ENDS.items() if how is not How.CLEANED_UP}
"""Ends in which home hears the end of the target."""
ways_to_hear = pytest.mark.parametrize(("how", "end"), list(HEARD.items()), ids=[how.name for how in HEARD])


@pytest.fixture
def pair() -> Pair:
    return Pair()


def mailbox(pair: Pair) -> list[tuple[bytes | None, BounceReason]]:
    pair.target.deliver(pair.home)
    return [(one.body, one.bounce.reason) for one in pair.home.state.mailbox.entries.values()]


# ---------------------------------------------------------------------------------------------------- it is not begun


@ways_to_end
def test_an_id_of_what_is_over_is_not_begun_again_and_its_message_comes_back(
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


@ways_to_hear
def test_it_is_begun_anew_when_that_is_asked_for(pair: Pair, how: How, end: Callable[[Pair], None]) -> None:
    begin(pair)
    end(pair)
    begin(pair, "anew", NAMED | ANEW)
    assert [entry[2] for entry in pair.receiver(ORDER).queue] == [b"anew"]
    assert pair.initiator(ORDER).opener == identifier("anew")
    pair.end_call(ORDER)
    begin(pair, "late")
    pair.home.deliver(pair.target)
    pair.target.end(pair.receiver(ORDER))
    pair.target.deliver(pair.home)
    begin(pair, "later")
    assert pair.home.state.live() == pair.target.state.live() == []


@ways_to_end
def test_a_caller_beside_the_home_is_told_how_it_ended_when_and_what_to_do(
    pair: Pair, how: How, end: Callable[[Pair], None]
) -> None:
    begin(pair)
    pair.home.state.now_ms = 1_764_166_530_250
    end(pair)
    error = refusal(pair.home.state, ORDER, anew=False)
    assert isinstance(error, ConversationOver)
    assert isinstance(error, ConversationEnded)
    assert error.number == 8429
    words = {
        How.ENDED: "this side ended it,",
        How.BEHIND_PEER: "the other side ended it, and then this one",
        How.FAILED: "this side ended it WITH ERROR",
        How.BEHIND_ERROR: "it failed with an Error",
        How.CLEANED_UP: "WITH CLEANUP",
    }
    for text in (words[how], "2025-11-26T14:15:30.250+00:00", "anew=True"):
        assert text in str(error)
    again = refusal(pair.home.state, ORDER, anew=True)
    assert (again is None) is (how in HEARD)
    assert again is None or "has not received the end of the other side" in str(again)
    assert refusal(pair.home.state, identifier("another"), anew=False) is None


def outlived(pair: Pair) -> None:
    """This side has ended, and its lifetime is over before the other side ends."""
    pair.end_call(ORDER)
    pair.home.state.forget(pair.initiator(ORDER))


@pytest.mark.parametrize("end", [cleaned_up, outlived])
def test_it_is_not_begun_anew_when_home_did_not_hear_the_end_of_its_target(
    pair: Pair, end: Callable[[Pair], None]
) -> None:
    begin(pair)
    end(pair)
    begin(pair, "anew", NAMED | ANEW, sends=False)
    assert pair.home.state.live() == []


def test_it_is_begun_anew_when_the_end_of_its_target_comes_late(pair: Pair) -> None:
    begin(pair)
    outlived(pair)
    pair.home.deliver(pair.target)
    pair.target.end(pair.receiver(ORDER))
    pair.target.deliver(pair.home)
    begin(pair, "anew", NAMED | ANEW)
    assert pair.initiator(ORDER).opener == identifier("anew")


def test_what_one_side_has_ended_is_over_before_the_other_one_has(pair: Pair) -> None:
    begin(pair)
    pair.end_call(ORDER)
    for anew in (False, True):
        error = refusal(pair.home.state, ORDER, anew=anew)
        assert error is not None
        assert "has not received the end of the other side" in str(error)
    pair.home.deliver(pair.target)
    begin(pair, "late", NAMED | ANEW)
    assert mailbox(pair) == [(b"late", BounceReason.ENDED)]


def test_a_second_begin_of_what_lives_changes_nothing(pair: Pair) -> None:
    begin(pair)
    begin(pair, "again")
    assert refusal(pair.home.state, ORDER, anew=False) is None
    assert [entry[2] for entry in pair.receiver(ORDER).queue] == [b"client", b"again"]
    assert len(pair.home.state.live()) == 1


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
    assert (sent.kind, sent.envelope.flags) == (Kind.ERROR, REFUSED | NAMED)
    pair.target.take(Scribe("late").first(pair.target.address, ORDER, BLOCK, flags=FIRST | NAMED), b"late")
    assert mailbox(pair) == [(b"late", BounceReason.ENDED)]
    assert pair.target.state.tombstones == {}


def test_a_target_knows_of_what_ended_before_anything_was_sent(pair: Pair) -> None:
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
def test_what_moved_away_and_ended_there_is_over_where_it_began(role: Role) -> None:
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
        for anew in (False, True):
            error = refusal(side.state, ORDER, anew=anew)
            assert "ended in another partition" in str(error)
            assert "begin with another id" in str(error)
            assert "anew=True" not in str(error)
    begin(world, "late")
    world.settle()
    assert [one.state.live() for one in (world.home, world.target, world.second)] == [[], [], []]
    assert [one.body for one in world.home.state.mailbox.entries.values()] == [b"late"]


# ------------------------------------------------------------------------------------------------- state and its bounds


def test_what_is_known_of_chosen_ids_is_state(pair: Pair) -> None:
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


def test_of_too_many_the_oldest_goes(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(named, "NAMED_OVER_ENTRIES_MAX", 2)
    sides = pair.home.state.named
    for number in range(3):
        sides.begin((Role.INITIATOR, b"%d" % number), b"a session", anew=False)
        sides.end((Role.INITIATOR, b"%d" % number), How.ENDED, number)
    assert [key[1] for key in sides.over] == [b"1", b"2"]


def test_what_is_older_than_the_horizon_of_writers_is_forgotten(pair: Pair) -> None:
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


@pytest.mark.parametrize("end", [ended_directly, ended_in_a_transaction])
def test_a_session_does_not_begin_what_it_has_ended_itself(end: Callable[[Session], None]) -> None:
    session = Session(identifier("session"))
    end(session)
    with pytest.raises(ConversationOver, match="this session has ended it") as caught:
        session.begin(ORDER, BLOCK, BeginOptions(named=True))
    assert caught.value.number == 8429
    with pytest.raises(ConversationOver, match="anew=True"):
        StagedTransaction(session).begin(ORDER, BLOCK, BeginOptions(named=True))


def test_a_session_remembers_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manner, "SESSION_OVER_ENTRIES_MAX", 1)
    session = Session(identifier("session"))
    for name in ("first", "second"):
        dialog, _ = session.begin(identifier(name), BLOCK, BeginOptions(named=True))
        session.end(dialog)
    session.former.check(identifier("first"), BeginOptions(named=True))
    with pytest.raises(ConversationOver):
        session.former.check(identifier("second"), BeginOptions(named=True))
