"""`set_timer` in a handler's transaction (behaviours 102 to 104)."""

from __future__ import annotations

from typing import Any

import pytest

import konverse.dialog.transaction
from konverse.dialog.staging import OwnerSettings, Staging
from konverse.schemas.errors import InvalidTimeout, TimerBeyondLifetime, TimerRefused, TransactionTooLarge
from konverse.schemas.limits import TIMEOUT_MS_MAX
from konverse.schemas.operations import SetTimer
from tests.kit.builders import Pair, anything, of


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
    monkeypatch.setattr(konverse.dialog.transaction, "TRANSACTION_BYTES_MAX", 40)
    transaction.set_timer(one, 2)
    with pytest.raises(TransactionTooLarge):
        transaction.set_timer(another, 1)
    assert transaction.timers == [SetTimer(one.index, 2_000)]
