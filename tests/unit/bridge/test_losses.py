"""The loss of a partition is given up only by a process that keeps the partition until that is on record."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Self

import pytest

from konverse.bridge.admin import loss
from konverse.bridge.admin.loss import LossAcceptance
from konverse.dialog.owner.events import Phase, Stopped
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.errors import InvalidState

QUEUE = Queue("Orders", "k.d.Orders", "queue", 1, bytes(16), bytes(16), bytes(16))
OVERTAKEN = "another process claimed the partition first"


class Following:
    """Stands in for a `Follower` of a partition that has sent nothing."""

    def __init__(self, *_: object, **__: object) -> None:
        self.acceptance = SimpleNamespace(destinations=lambda _state: ())

    def catch_up(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...


class Driver:
    """Stands in for an `OwnerDriver` whose owner leads, and commits until `then` happens to it."""

    def __init__(self, then: Callable[[Any], None]) -> None:
        self._then = then
        snapshots = SimpleNamespace(urgent=False)
        self.owners: dict[int, Any] = {
            0: SimpleNamespace(phase=Phase.LEADING, committing=True, snapshots=snapshots),
        }

    def take_over(self, _number: int) -> int:
        return 0

    def pump(self, _wait_s: float) -> None:
        self.owners[0].committing = False
        self._then(self.owners[0])

    def stopped(self) -> list[tuple[int, Any, Stopped]]:
        return [(0, self.owners[0], Stopped(OVERTAKEN))]

    def close(self) -> None: ...


def accept(monkeypatch: pytest.MonkeyPatch, then: Callable[[Any], None]) -> None:
    monkeypatch.setattr(loss, "Follower", Following)
    monkeypatch.setattr(loss, "OwnerDriver", lambda *_: Driver(then))
    acceptance: Any = LossAcceptance.__new__(LossAcceptance)
    acceptance._kafka, acceptance._catalog = None, SimpleNamespace(check_send=None)
    acceptance._places = lambda _state: []
    acceptance.give_up(QUEUE, 0)


def test_a_loss_is_not_accepted_if_another_process_takes_the_partition_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def lose(owner: Any) -> None:
        owner.phase = Phase.STOPPED

    with pytest.raises(InvalidState, match=f"before its loss was given up: {OVERTAKEN}. Stop its readers"):
        accept(monkeypatch, lose)


def test_a_loss_is_accepted_when_its_commit_counts_and_the_state_is_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    accept(monkeypatch, lambda _owner: None)
