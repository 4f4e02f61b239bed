"""A begin with ANEW of a conversation that lives: it does not lead into that conversation (M268, M269, M271, M281)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from konverse.dialog.fold.snapshot import Freeze, restore
from konverse.dialog.rules.reused_ids import refusal
from konverse.dialog.session.dialogs import BeginOptions
from konverse.dialog.session.session import Session
from konverse.dialog.session.transactions import StagedTransaction
from konverse.dialog.state import named
from konverse.dialog.state.partition import Partition
from konverse.dialog.state.transitions import State
from konverse.schemas.errors import ConversationEnded, InvalidState
from konverse.schemas.identifiers import Role
from konverse.schemas.wire.operations import Cleanup
from konverse.schemas.wire.records import ANEW, FIRST, NAMED, BounceReason, Kind, Opened, Suffix, Timer
from tests.kit.builders import Pair, Scribe, Side, begin_block, identifier, log_of
from tests.kit.digests import digest
from tests.kit.moving import World, move
from tests.kit.transmission import arrived, expanded, records, transmitting

ORDER: Final = identifier("an order")
BLOCK: Final = begin_block(group=ORDER)
NEW: Final = NAMED | ANEW


def begin(pair: Pair, who: Scribe, flags: int = NAMED, *, at_home: bool = True, sends: bytes | None = None) -> None:
    """BEGIN at home, and perhaps the first message."""
    if at_home:
        pair.home.take(who.write(Kind.BEGIN, pair.home.address, ORDER, flags=flags, suffix=Suffix(begin=BLOCK)))
    if sends is not None:
        pair.target.take(who.first(pair.target.address, ORDER, BLOCK, flags=FIRST | flags), sends)


def say(pair: Pair, who: Scribe, body: bytes, flags: int = NEW) -> None:
    """A message behind the first one."""
    suffix = Suffix("order", home=BLOCK.home, detail=Opened(who.id))
    pair.target.take(who.message(BLOCK.target, ORDER, flags=flags, suffix=suffix), body)


def end(pair: Pair, who: Scribe) -> None:
    suffix = Suffix("EndDialog", detail=Opened(who.id))
    pair.home.take(who.write(Kind.END_CALL, pair.home.address, ORDER, suffix=suffix))


def heard(pair: Pair) -> list[bytes | None]:
    return [entry[2] for entry in pair.receiver(ORDER).queue]


def returned(pair: Pair) -> list[tuple[bytes | None, BounceReason]]:
    pair.target.deliver(pair.home)
    return [(one.body, one.bounce.reason) for one in pair.home.state.mailbox.entries.values()]


@pytest.fixture
def pair() -> Pair:
    """An order that lives and was begun without ANEW; its first message has arrived."""
    pair = Pair()
    begin(pair, pair.client, sends=b"client")
    return pair


@pytest.fixture
def other() -> Scribe:
    return Scribe("another session")


# -------------------------------------------------------------------------------------------------- it lives, plainly


def test_nothing_sent_on_a_new_conversation_is_received_in_one_that_lives(pair: Pair, other: Scribe) -> None:
    begin(pair, other, NEW, sends=b"first")
    say(pair, other, b"second")
    pair.home.deliver(pair.target)
    assert heard(pair) == [b"client"]
    assert pair.receiver(ORDER).error is None
    assert returned(pair) == [(b"first", BounceReason.ENDED), (b"second", BounceReason.ENDED)]


def test_nor_when_home_has_not_read_the_begin_yet(pair: Pair, other: Scribe) -> None:
    begin(pair, other, NEW, at_home=False, sends=b"first")
    assert heard(pair) == [b"client"]
    assert returned(pair) == [(b"first", BounceReason.ENDED)]


def ends(pair: Pair, who: Scribe) -> None:
    end(pair, who)


def sets_a_timer(pair: Pair, who: Scribe) -> None:
    suffix = Suffix(origin=who.id, detail=Timer(1_000))
    pair.home.take(who.write(Kind.SET_TIMER, pair.home.address, ORDER, suffix=suffix))


@pytest.mark.parametrize("does", [ends, sets_a_timer])
def test_whoever_was_refused_has_no_part_in_it(pair: Pair, other: Scribe, does: Callable[[Pair, Scribe], None]) -> None:
    begin(pair, other, NEW)
    does(pair, other)
    side = pair.initiator(ORDER)
    assert (side.committed, side.clock) == (State.STARTED_OUTBOUND, None)
    does(pair, pair.client)
    assert side.committed is State.DISCONNECTED_OUTBOUND or side.clock is not None


def test_the_fin_of_whoever_was_refused_finishes_nothing(pair: Pair, other: Scribe) -> None:
    begin(pair, other, NEW, sends=b"first")
    pair.target.take(
        other.write(Kind.FIN, BLOCK.target, ORDER, suffix=Suffix(home=BLOCK.home, detail=Opened(other.id)))
    )
    assert pair.receiver(ORDER).finished is None


def test_whoever_was_refused_may_still_take_part_without_anew(pair: Pair, other: Scribe) -> None:
    begin(pair, other, NEW, sends=b"first")
    begin(pair, other, NAMED, sends=b"again")
    assert heard(pair) == [b"client", b"again"]
    end(pair, other)
    assert pair.initiator(ORDER).committed is State.DISCONNECTED_OUTBOUND


def test_nor_what_its_own_session_sends_behind_its_end_before_its_target_knows_that(pair: Pair) -> None:
    end(pair, pair.client)
    begin(pair, pair.client, NEW, sends=b"first")
    say(pair, pair.client, b"second")
    assert heard(pair) == [b"client"]
    assert returned(pair) == [(b"first", BounceReason.ENDED), (b"second", BounceReason.ENDED)]


def test_nor_what_it_sends_with_the_header_that_was_predicted_for_its_former_messages() -> None:
    """Writer, counter and header are those that the old conversation expects."""
    pair = Pair()
    begin(pair, pair.client, NEW, sends=b"old")
    say(pair, pair.client, b"older")
    end(pair, pair.client)
    begin(pair, pair.client, NEW, sends=b"0")
    for number in range(1, 6):
        say(pair, pair.client, b"%d" % number)
    assert heard(pair) == [b"old", b"older"]
    assert [body for body, _ in returned(pair)] == [b"%d" % number for number in range(6)]


def test_its_own_session_that_asks_for_a_new_one_keeps_its_part(pair: Pair) -> None:
    begin(pair, pair.client, NEW, sends=b"anew")
    pair.home.deliver(pair.target)
    assert heard(pair) == [b"client"]
    assert pair.receiver(ORDER).error is None
    end(pair, pair.client)
    assert pair.initiator(ORDER).committed is State.DISCONNECTED_OUTBOUND


def test_an_id_that_konverse_made_is_in_use_as_well(other: Scribe) -> None:
    pair = Pair()
    begin(pair, pair.client, 0, sends=b"client")
    begin(pair, other, NEW, sends=b"first")
    say(pair, other, b"second")
    assert heard(pair) == [b"client"]
    assert [body for body, _ in returned(pair)] == [b"first", b"second"]
    end(pair, pair.client)
    pair.home.deliver(pair.target)
    pair.target.end(pair.receiver(ORDER))
    pair.target.deliver(pair.home)
    for side in (pair.home, pair.target):
        known = side.state.named
        assert (known.living, known.over, known.former) == ({}, {}, {})


@pytest.mark.parametrize("role", list(Role))
def test_it_lives_where_it_has_moved(role: Role, other: Scribe) -> None:
    world = World()
    begin(world, world.client, sends=b"client")
    side = world.home if role is Role.INITIATOR else world.target
    moved = move(world, side, world.initiator(ORDER) if role is Role.INITIATOR else world.receiver(ORDER), world.second)
    begin(world, other, NEW, sends=b"first")
    end(world, other)
    world.settle()
    assert moved.committed not in (State.DISCONNECTED_OUTBOUND, State.ERROR)
    target = world.receiver(ORDER) if role is Role.INITIATOR else moved
    assert [entry[2] for entry in target.queue] == [b"client"]
    assert [one.body for one in world.home.state.mailbox.entries.values()] == [b"first"]


# -------------------------------------------------------------------------- it lives at its home, and not at its target


def test_behind_a_target_that_was_cleaned_up_nothing_begins_anew_before_it_knows_the_end_of_its_initiator(
    pair: Pair, other: Scribe
) -> None:
    """The initiator lives, and would take the replies of a new target for those of the old one."""
    pair.target.commit(rare=[Cleanup(pair.receiver(ORDER).index)])
    begin(pair, other, NEW, sends=b"first")
    assert pair.target.state.live() == []
    assert returned(pair) == [(b"first", BounceReason.ENDED)]
    end(pair, pair.client)
    pair.home.deliver(pair.target)
    pair.target.deliver(pair.home)
    begin(pair, Scribe("anew"), NEW, sends=b"anew")
    assert heard(pair) == [b"anew"]
    assert pair.initiator(ORDER).opener == identifier("anew")


def test_the_answer_to_a_begin_that_was_refused_is_not_the_end_of_the_target() -> None:
    """A session was closed before its BEGIN came, so the target answers END; another session has begun meanwhile."""
    pair = Pair()
    closed = Scribe("closed")
    pair.home.take(Scribe("asker").close(pair.home.address, closed.id))
    begin(pair, closed)
    pair.home.deliver(pair.target)
    begin(pair, pair.client)
    assert [one.kind for one in pair.target.deliver(pair.home)] == [Kind.END]
    assert pair.initiator(ORDER).opener == pair.client.id
    assert (Role.INITIATOR, ORDER) not in pair.home.state.named.heard


def test_nothing_was_said_yet_so_whoever_speaks_first_opens_it(other: Scribe) -> None:
    pair = Pair()
    begin(pair, pair.client)
    begin(pair, other, NEW, sends=b"first")
    begin(pair, pair.client, at_home=False, sends=b"client")
    assert heard(pair) == [b"first", b"client"]
    end(pair, other)
    assert pair.initiator(ORDER).committed is State.STARTED_OUTBOUND


# ----------------------------------------------------------------------------------------- it lives, and was begun anew


def test_a_begin_anew_that_is_tried_again_takes_part(other: Scribe) -> None:
    pair = Pair()
    begin(pair, pair.client, NEW, sends=b"client")
    begin(pair, other, NEW, sends=b"again")
    assert heard(pair) == [b"client", b"again"]
    end(pair, other)
    assert pair.initiator(ORDER).committed is State.DISCONNECTED_OUTBOUND


def test_a_session_that_has_ended_it_and_begins_it_anew_before_its_target_knows_is_not_heard_there() -> None:
    pair = Pair()
    begin(pair, pair.client, NEW, sends=b"client")
    end(pair, pair.client)
    begin(pair, pair.client, NEW, sends=b"too early")
    say(pair, pair.client, b"second")
    assert heard(pair) == [b"client"]
    pair.home.deliver(pair.target)
    assert [body for body, _ in returned(pair)] == [b"too early", b"second"]


# ----------------------------------------------------------------------------------------- it was over, and lives again


@pytest.mark.parametrize("flags", [NAMED, NEW])
def test_a_begin_that_came_too_late_or_too_early_has_no_part_in_the_next_conversation(
    pair: Pair, other: Scribe, flags: int
) -> None:
    end(pair, pair.client)
    begin(pair, other, flags, sends=b"refused")
    pair.home.deliver(pair.target)
    pair.target.end(pair.receiver(ORDER))
    pair.target.deliver(pair.home)
    begin(pair, Scribe("anew"), NEW, sends=b"anew")
    say(pair, other, b"goes on", flags)
    end(pair, other)
    assert pair.initiator(ORDER).committed is State.STARTED_OUTBOUND
    assert b"goes on" not in heard(pair)
    assert (b"goes on", BounceReason.NO_ENDPOINT) in returned(pair)


def test_the_first_one_that_came_back_from_a_target_which_waits_has_no_part_either(pair: Pair, other: Scribe) -> None:
    pair.target.end(pair.receiver(ORDER))
    begin(pair, other, NEW, sends=b"first")
    say(pair, other, b"second")
    assert returned(pair) == [(b"first", BounceReason.ENDED), (b"second", BounceReason.NO_ENDPOINT)]


# ------------------------------------------------------------------------------------------------- state and its bounds


def test_refused_sessions_are_state_up_to_a_bound(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(named, "NAMED_OPENER_ENTRIES_MAX", 2)
    for number in range(3):
        begin(pair, Scribe(f"refused {number}"), NEW, sends=b"first")
    for side, role in ((pair.home, Role.INITIATOR), (pair.target, Role.TARGET)):
        assert side.state.named.former[role, ORDER] == (identifier("refused 1"), identifier("refused 2"))
        assert side.state.named.openers[role, ORDER] == (pair.client.id,)


@pytest.mark.parametrize("flags", [NAMED, NEW])
def test_how_it_was_begun_is_state(flags: int, other: Scribe) -> None:
    pair = Pair()
    begin(pair, pair.client, flags, sends=b"client")
    begin(pair, other, NEW, sends=b"first")
    for side in (pair.home, pair.target):
        again = Partition(log_of(side.queue))
        restore(again, b"".join(Freeze(side.state).pieces()))
        assert (
            again.named.living
            == side.state.named.living
            == {(role, ORDER): flags == NEW for role in _roles(side.state)}
        )
        assert again.named.former == side.state.named.former
        assert digest(again) == digest(side.state)
    assert (refusal(pair.home.state, ORDER, anew=True) is None) is (flags == NEW)


def _roles(state: Partition) -> list[Role]:
    return [endpoint.role for endpoint in state.live()]


# ------------------------------------------------------------------------------------------------------- begin calls


@pytest.mark.parametrize(("flags", "refused"), [(NAMED, True), (NEW, False), (0, False)])
def test_a_caller_beside_the_home_is_told_that_it_lives(flags: int, *, refused: bool) -> None:
    pair = Pair()
    begin(pair, pair.client, flags)
    error = refusal(pair.home.state, ORDER, anew=True)
    assert (error is not None) is refused
    if error is not None:
        assert isinstance(error, InvalidState)
        assert error.number == 8429
        for text in ("still open", "End it and wait", "without `anew`"):
            assert text in str(error)
    assert refusal(pair.home.state, ORDER, anew=False) is None


def _directly(session: Session, manner: BeginOptions) -> object:
    return session.begin(ORDER, BLOCK, manner)[0]


def _in_a_transaction(session: Session, manner: BeginOptions) -> object:
    return StagedTransaction(session).begin(ORDER, BLOCK, manner)


PLAIN: Final = BeginOptions(named=True)
ASKED: Final = BeginOptions(named=True, anew=True)


@pytest.mark.parametrize("again", [_directly, _in_a_transaction])
def test_a_session_says_that_it_has_begun_it_itself(again: Callable[[Session, BeginOptions], object]) -> None:
    session = Session(identifier("session"))
    dialog, _ = session.begin(ORDER, BLOCK, PLAIN)
    with pytest.raises(InvalidState, match="is still open and was begun without `anew`") as caught:
        again(session, ASKED)
    assert caught.value.number == 8429
    assert again(session, PLAIN) is dialog
    session.drained()
    session.end(dialog)
    assert again(session, ASKED) is not dialog


@pytest.mark.parametrize("again", [_directly, _in_a_transaction])
def test_a_session_begins_anew_what_it_has_begun_anew_only_when_it_has_ended_it(
    again: Callable[[Session, BeginOptions], object],
) -> None:
    session = Session(identifier("session"))
    dialog, _ = session.begin(ORDER, BLOCK, ASKED)
    assert again(session, ASKED) is dialog
    session.send(dialog, "order", b"waits for BEGIN")
    session.end(dialog)
    with pytest.raises(InvalidState, match=r"is ending.*Flush"):
        again(session, ASKED)


@pytest.mark.parametrize("peer_ends", ["never", "before", "behind"])
def test_what_is_ended_in_a_transaction_is_begun_anew_only_when_that_has_arrived(peer_ends: str) -> None:
    """The END goes another way than the new BEGIN, which would overtake it."""
    session, transmission = transmitting(), Side("transmission")
    dialog, _ = session.begin(ORDER, BLOCK, ASKED)
    session.drained()
    if peer_ends == "before":
        session.ended_by_peer(ORDER)
    transaction = StagedTransaction(session)
    transaction.end(dialog)
    expanded(transmission, session.commit(transaction))
    session.drained()
    if peer_ends == "behind":
        session.ended_by_peer(ORDER)
    with pytest.raises(InvalidState, match=r"is ending.*Flush"):
        session.begin(ORDER, BLOCK, ASKED)
    session.transmitted(transmission.state)
    arrived(transmission)
    session.transmitted(transmission.state)
    assert session.begin(ORDER, BLOCK, ASKED)[0] is not dialog


def test_a_dialog_that_only_its_peer_has_ended_does_not_end_the_next_one() -> None:
    session = Session(identifier("session"))
    former, _ = session.begin(ORDER, BLOCK, PLAIN)
    session.drained()
    session.ended_by_peer(ORDER)
    session.begin(ORDER, BLOCK, ASKED)
    with pytest.raises(ConversationEnded) as caught:
        session.end(former)
    assert caught.value.number == 8427


@pytest.mark.parametrize("undo", ["rollback", "drop"])
def test_a_begin_anew_that_did_not_happen_leaves_the_former_dialog_to_be_ended(undo: str) -> None:
    session = transmitting()
    former, _ = session.begin(ORDER, BLOCK, PLAIN)
    session.drained()
    session.ended_by_peer(ORDER)
    transaction = StagedTransaction(session)
    transaction.savepoint("before")
    transaction.begin(ORDER, BLOCK, ASKED)
    if undo == "drop":
        transaction.drop()
    else:
        transaction.rollback("before")
    assert [address for address, _ in session.end(former)] == [BLOCK.home]


def test_one_transaction_ends_the_former_dialog_and_begins_it_anew() -> None:
    session = transmitting()
    former, _ = session.begin(ORDER, BLOCK, PLAIN)
    session.drained()
    session.ended_by_peer(ORDER)
    transaction = StagedTransaction(session)
    transaction.end(former)
    anew = transaction.begin(ORDER, BLOCK, ASKED)
    with pytest.raises(ConversationEnded, match="begun anew in this transaction"):
        transaction.end(former)
    transaction.send(anew, "order", b"0")
    ((kind, said),) = records(session.commit(transaction))
    assert kind is Kind.TRANSACTION
    assert said is not None
    assert [step.kind for step in said.steps] == [Kind.OPEN, Kind.END_CALL, Kind.BEGIN, Kind.MESSAGE]
    assert session.dialogs[ORDER] is anew
    assert session.begin(ORDER, BLOCK, PLAIN)[0] is anew


def test_an_end_that_waits_when_the_peer_ends_is_not_overtaken_either() -> None:
    session = Session(identifier("session"))
    dialog, _ = session.begin(ORDER, BLOCK, ASKED)
    session.drained()
    session.send(dialog, "order", b"not acknowledged")
    session.end(dialog)
    session.ended_by_peer(ORDER)
    with pytest.raises(InvalidState, match=r"is ending.*Flush"):
        session.begin(ORDER, BLOCK, ASKED)
    session.drained()
    assert session.begin(ORDER, BLOCK, ASKED)[0] is not dialog


def test_of_two_former_dialogs_the_one_that_still_ends_counts() -> None:
    session, transmission = transmitting(), Side("transmission")
    first, _ = session.begin(ORDER, BLOCK, PLAIN)
    session.drained()
    transaction = StagedTransaction(session)
    transaction.send(first, "order", b"under way")
    expanded(transmission, session.commit(transaction))
    session.drained()
    session.ended_by_peer(ORDER)
    second, _ = session.begin(ORDER, BLOCK, PLAIN)
    session.drained()
    session.end(first)
    session.end(second)
    with pytest.raises(InvalidState, match=r"is ending.*Flush"):
        session.begin(ORDER, BLOCK, ASKED)
    session.transmitted(transmission.state)
    arrived(transmission)
    assert [address for address, _ in session.transmitted(transmission.state)] == [BLOCK.home]
    session.begin(ORDER, BLOCK, ASKED)


def test_a_dialog_that_its_peer_has_ended_may_be_joined_and_ended_in_one_transaction() -> None:
    session = transmitting()
    former, _ = session.begin(ORDER, BLOCK, PLAIN)
    session.drained()
    session.ended_by_peer(ORDER)
    transaction = StagedTransaction(session)
    transaction.begin(ORDER, BLOCK, PLAIN)
    transaction.end(former)
    session.commit(transaction)


def test_of_two_former_dialogs_neither_ends_the_next_one() -> None:
    session = Session(identifier("session"))
    first, _ = session.begin(ORDER, BLOCK, PLAIN)
    session.drained()
    session.ended_by_peer(ORDER)
    second, _ = session.begin(ORDER, BLOCK, PLAIN)
    session.drained()
    session.end(second)
    anew, _ = session.begin(ORDER, BLOCK, ASKED)
    with pytest.raises(ConversationEnded):
        session.end(first)
    assert session.dialogs[ORDER] is anew


def test_a_dialog_that_only_its_peer_has_ended_can_be_joined_and_ended() -> None:
    session = Session(identifier("session"))
    former, _ = session.begin(ORDER, BLOCK, PLAIN)
    session.drained()
    session.ended_by_peer(ORDER)
    again, _ = session.begin(ORDER, BLOCK, PLAIN)
    session.drained()
    assert [address for address, _ in session.end(former)] == [BLOCK.home]
    assert [address for address, _ in session.end(again)] == [BLOCK.home]


def test_two_begins_in_one_transaction_are_of_one_kind() -> None:
    transaction = StagedTransaction(Session(identifier("session")))
    dialog = transaction.begin(ORDER, BLOCK, PLAIN)
    assert transaction.begin(ORDER, BLOCK, PLAIN) is dialog
    with pytest.raises(InvalidState, match="still open"):
        transaction.begin(ORDER, BLOCK, ASKED)
