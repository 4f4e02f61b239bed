"""`set_timer` in a handler's transaction (behaviours 102 to 104)."""

from __future__ import annotations

from typing import Any

import pytest

import konverse.dialog.transaction.transaction
from konverse.dialog.owner.settings import OwnerSettings
from konverse.dialog.owner.staging import Staging
from konverse.dialog.session.session import Session
from konverse.dialog.session.transactions import StagedTransaction
from konverse.dialog.state.endpoint import Clock
from konverse.dialog.state.transitions import State
from konverse.schemas.errors import InvalidTimeout, QueueFull, TimerBeyondLifetime, TimerRefused, TransactionTooLarge
from konverse.schemas.limits import TIMEOUT_MS_MAX
from konverse.schemas.wire.client_transaction import decode
from konverse.schemas.wire.operations import SetTimer
from konverse.schemas.wire.records import NO_TIMER, Kind, Suffix, Timer
from tests.kit.builders import Pair, Scribe, Side, address_of, anything, begin_block, identifier, of


@pytest.fixture
def pair() -> Pair:
    return Pair()


def test_a_timer_of_a_handler_comes_with_its_commit_or_not_at_all_behaviour_103(pair: Pair) -> None:
    target = pair.receiver(pair.begin())
    staging = Staging(pair.target.state, anything, OwnerSettings())
    transaction = staging.take()
    assert transaction is not None
    transaction.set_timer(target, 1.5)
    assert not transaction.idle
    staging.roll_back(transaction)
    assert (transaction.timers, transaction.size_bytes) == ([], 0)
    again = staging.take()
    assert again is not None
    again.set_timer(target, 1.5)
    again.set_timer(target, 2)
    staging.finish(again)
    operations, _ = staging.merge()
    assert operations.rare == [SetTimer(target.index, 2_000)]


def test_the_end_in_the_same_transaction_cancels_the_timer(pair: Pair) -> None:
    target = pair.receiver(pair.begin())
    transaction = of(pair.target, target)
    transaction.set_timer(target, 1)
    transaction.end(target)
    assert transaction.timers == []
    with pytest.raises(TimerRefused, match="has ended it") as refusal:
        transaction.set_timer(target, 1)
    assert refusal.value.number == 8458


def test_no_timer_is_set_where_the_peer_has_ended_and_one_is_cancelled_behaviour_102() -> None:
    session = Session(identifier("session"))
    session.transmit_to(address_of("transmission"))
    dialog = session.begin(identifier("a"), begin_block())[0]
    staged = StagedTransaction(session)
    staged.set_timer(dialog, 5)
    session.ended_by_peer(dialog.conversation)
    for call in (
        lambda: session.set_timer(dialog, Timer(5)),
        lambda: StagedTransaction(session).set_timer(dialog, 5),
        lambda: session.commit(staged),
    ):
        with pytest.raises(TimerRefused) as refused:
            call()
        assert refused.value.number == 8458
    session.set_timer(dialog, Timer(NO_TIMER))
    assert dialog.home.next == 2, "a timer that was set before is cancelled"


@pytest.mark.parametrize("finished", [False, True])
def test_a_timer_call_does_not_overtake_the_timer_of_a_transaction_behaviour_98(finished: bool) -> None:
    session = Session(identifier("session"))
    session.transmit_to(address_of("transmission"))
    dialog = session.begin(identifier("a"), begin_block())[0]
    session.drained()
    session.send(dialog, "order", b"0")
    if finished:
        session.finish(dialog)
    staged = StagedTransaction(session)
    staged.set_timer(dialog, 5)
    session.commit(staged)
    with pytest.raises(QueueFull, match="have not arrived"):
        session.set_timer(dialog, Timer(NO_TIMER))


@pytest.mark.parametrize("error", [0, 5])
def test_a_timer_is_refused_where_the_peer_has_ended_behaviour_102(pair: Pair, error: int) -> None:
    (initiator,) = pair.answered("a")
    state = State.ERROR if error else State.DISCONNECTED_INBOUND
    transaction = of(pair.home, initiator)
    transaction.set_timer(initiator, 1)
    pair.target.end(pair.receiver(initiator.conversation), error, "no" * bool(error))
    pair.target.deliver(pair.home)
    assert initiator.committed is state
    with pytest.raises(TimerRefused, match=state.name) as refusal:
        transaction.set_timer(initiator, 2)
    assert refusal.value.number == 8458
    transaction.cancel_timer(initiator)
    assert transaction.timers == [SetTimer(initiator.index, NO_TIMER)]


@pytest.mark.parametrize("timeout", [0, -1, TIMEOUT_MS_MAX / 1000 + 1, float("nan"), True, "1", None])
def test_a_timeout_that_is_none_is_refused(pair: Pair, timeout: Any) -> None:
    target = pair.receiver(pair.begin())
    with pytest.raises(InvalidTimeout, match="seconds above 0") as refusal:
        of(pair.target, target).set_timer(target, timeout)
    assert refusal.value.number == 8411


def test_a_timer_beyond_the_lifetime_is_refused_behaviour_102(pair: Pair) -> None:
    target = pair.receiver(pair.begin(lifetime_ms=5_000))
    pair.target.state.now_ms = 2_000
    transaction = of(pair.target, target)
    transaction.set_timer(target, 3)
    with pytest.raises(TimerBeyondLifetime, match="3 s are left") as refusal:
        transaction.set_timer(target, 3.1)
    assert refusal.value.number == 8410


def test_timers_take_room_in_a_transaction_each_once(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    one, another = pair.answered("one", "another")
    transaction = of(pair.home, one)
    for _ in range(3):
        transaction.set_timer(one, 1)
    assert transaction.size_bytes == 24
    monkeypatch.setattr(konverse.dialog.transaction.transaction, "TRANSACTION_BYTES_MAX", 40)
    transaction.set_timer(one, 2)
    with pytest.raises(TransactionTooLarge):
        transaction.set_timer(another, 1)
    assert transaction.timers == [SetTimer(one.index, 2_000)]


# ------------------------------------------------------------------------------------------------------------ cancelled


def test_a_handler_cancels_the_timer_that_was_set_before(pair: Pair) -> None:
    target = pair.receiver(pair.begin())
    pair.target.commit(rare=[SetTimer(target.index, 500)])
    staging = Staging(pair.target.state, anything, OwnerSettings())
    transaction = staging.take()
    assert transaction is not None
    transaction.cancel_timer(target)
    staging.finish(transaction)
    operations, _ = staging.merge()
    assert operations.rare == [SetTimer(target.index, NO_TIMER)]
    pair.target.commit(rare=operations.rare)
    assert target.clock is None
    pair.target.state.now_ms = 9_000
    pair.target.commit()
    assert not target.rings


def test_the_last_timer_call_of_a_transaction_counts(pair: Pair) -> None:
    target = pair.receiver(pair.begin())
    transaction = of(pair.target, target)
    transaction.set_timer(target, 1)
    transaction.cancel_timer(target)
    assert transaction.timers == [SetTimer(target.index, NO_TIMER)]
    transaction.set_timer(target, 2)
    assert transaction.timers == [SetTimer(target.index, 2_000)]


def test_a_timer_that_rang_before_it_is_cancelled_is_received(pair: Pair) -> None:
    target = pair.receiver(pair.begin())
    pair.target.commit(rare=[SetTimer(target.index, 500)])
    pair.target.commit()
    pair.target.state.now_ms = 1_000
    pair.target.commit()
    pair.target.commit(rare=[SetTimer(target.index, NO_TIMER)])
    assert target.rings


def test_the_timer_of_a_side_that_has_ended_is_not_cancelled(pair: Pair) -> None:
    target = pair.receiver(pair.begin())
    transaction = of(pair.target, target)
    transaction.end(target)
    with pytest.raises(TimerRefused) as refusal:
        transaction.cancel_timer(target)
    assert refusal.value.number == 8458


def test_a_session_cancels_the_timer_of_its_side_and_the_lifetime_stays(pair: Pair) -> None:
    conversation = pair.begin(lifetime_ms=5_000)
    for timeout_ms in (700, NO_TIMER):
        suffix = Suffix(detail=Timer(timeout_ms))
        pair.home.take(pair.client.write(Kind.SET_TIMER, pair.home.address, conversation, suffix=suffix))
    assert pair.initiator(conversation).clock == Clock(expires_ms=5_000)


def test_a_client_cancels_a_timer_in_a_transaction() -> None:
    session = Session(identifier("session"))
    session.transmit_to(address_of("transmission"))
    transaction = StagedTransaction(session)
    dialog = transaction.begin(identifier("a"), begin_block())
    transaction.set_timer(dialog, 500)
    transaction.set_timer(dialog, NO_TIMER)
    lane = session.transactions.lane
    assert lane is not None
    session.commit(transaction)
    content = decode(lane.bodies[-1] or b"")
    assert [step.timeout_ms for step in content.steps if step.kind is Kind.SET_TIMER] == [500, NO_TIMER]
    again = Side("transmission")
    again.take(Scribe("session").write(Kind.TRANSACTION, again.address, identifier("a")), lane.bodies[-1])
    timers = [sent.detail for sent in again.outputs(begin_block().home) if sent.kind is Kind.SET_TIMER]
    assert timers == [Timer(500), Timer(NO_TIMER)]
