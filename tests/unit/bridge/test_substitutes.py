"""Partitions without owners, and their substitutes."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import pytest

from konverse.bridge.kafka.clients import Kafka
from konverse.bridge.reader import substitutes as substituting
from konverse.bridge.reader.orphans import UnownedPartitions
from konverse.bridge.reader.readers import Readers
from konverse.bridge.reader.substitutes import Substitutes
from konverse.dialog.owner.owner import Owner
from konverse.schemas.catalog.objects import Queue, Service
from konverse.schemas.wire.journal import Claim, Commit, CommitOperations, encode_claim, encode_commit
from tests.kit.builders import identifier
from tests.kit.shop import DEADLINE_S

QUEUE = Queue("Orders", "k.d.Orders", "queue", 3, identifier("incarnation"), identifier("data"), identifier("journal"))


def commit(*, release: bool) -> bytes:
    return encode_commit(Commit(1, identifier("claim"), 1, bytes(32), 0, CommitOperations(), [], [], release=release))


class Log:
    """Stands in for a reader of journals: their last records."""

    def __init__(self, records: dict[int, bytes]) -> None:
        self.records = records

    def read(self, _topic: str, number: int, start: int, end: int) -> Any:
        if end > start:
            yield [SimpleNamespace(value=lambda: self.records[number])], end

    def close(self) -> None:
        pass


@pytest.fixture
def unowned(monkeypatch: pytest.MonkeyPatch) -> UnownedPartitions:
    kafka = cast("Kafka", SimpleNamespace(settings=SimpleNamespace(silence_timeout_s=600.0)))
    found = UnownedPartitions(kafka, QUEUE)
    claim = Claim(1, identifier("claim"), 1, QUEUE.incarnation, QUEUE.data_topic_id, QUEUE.journal_topic_id, clean=True)
    records = {0: commit(release=True), 1: commit(release=False), 2: encode_claim(claim)}
    monkeypatch.setattr(found, "_reader", Log(records))
    return found


def readers(*fakes: Any) -> Readers:
    known = Readers()
    for fake in fakes:
        known.add(fake)
    return known


def test_a_partition_that_its_owner_has_left_is_taken_when_its_journal_stands_still(
    unowned: UnownedPartitions, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = iter([{0: 4, 1: 4, 2: 4}, {0: 5, 1: 4, 2: 4}, None, {0: 5, 1: 4, 2: 4}])
    monkeypatch.setattr(unowned, "ends", lambda _ours: next(ends))
    assert [unowned.find(()) for _ in range(4)] == [[], [], [], [0]]


@pytest.mark.parametrize(("claim", "taken"), [("claim", [2]), ("an older claim", [])])
def test_a_partition_is_claimed_again_when_the_claim_that_stands_last_is_ours_and_failed(
    unowned: UnownedPartitions, claim: str, taken: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unowned, "ends", lambda _ours: {2: 4})
    assert [unowned.find(()) for _ in range(2)] == [[], []], "another process may be recovering"
    unowned.failed(2, cast("Owner", SimpleNamespace(claim_id=identifier(claim))))
    assert unowned.find(()) == taken


def test_a_partition_that_never_had_an_owner_is_taken(
    unowned: UnownedPartitions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unowned, "ends", lambda _ours: {1: 0})
    assert [unowned.find(()) for _ in range(2)] == [[], [1]]


def test_unowned_partitions_are_checked_more_often_than_silent_ones(unowned: UnownedPartitions) -> None:
    assert unowned.every_s == 1.0


def test_a_queue_is_looked_after_again_when_its_reader_here_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    moved = Service("//order/service", "Later", (), (QUEUE.name,))
    catalog = SimpleNamespace(all=lambda kind: [moved] if kind is Service else [QUEUE])
    later = SimpleNamespace(queue=SimpleNamespace(name="Later"), closed=False)
    orders = SimpleNamespace(queue=QUEUE, closed=False)
    made: list[Queue] = []
    substitutes = Substitutes(cast("Any", catalog), readers(later, orders), cast("Any", made.append))
    monkeypatch.setattr(substituting, "in_background", lambda *_: None)
    substitutes.look_after(QUEUE)
    substitutes._choose()
    assert made == [], "a reader of ours has it"
    orders.closed = True
    substitutes._choose()
    assert made == [QUEUE]


@pytest.mark.parametrize("when", ["while the readers are listed", "while the former substitute is closed"])
def test_a_wish_that_comes_while_the_former_one_is_dropped_counts(when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behaviour 19: the reader of the new queue was closed, and another one is opened a moment later."""
    monkeypatch.setattr(substituting, "in_background", lambda *_: None)
    moved = Service("//order/service", "Later", (), (QUEUE.name,))
    catalog = SimpleNamespace(all=lambda kind: [moved] if kind is Service else [QUEUE])
    later = SimpleNamespace(queue=SimpleNamespace(name="Later"), closed=False)
    made: list[Queue] = []

    def wish() -> None:
        open_here.add(cast("Any", later))
        substitutes.look_after(QUEUE)

    class Opening(Readers):
        def open(self) -> Any:
            found = super().open()
            if when == "while the readers are listed" and not found:
                wish()
            return found

    open_here = Opening()
    substitutes = Substitutes(cast("Any", catalog), open_here, cast("Any", made.append))
    if when == "while the former substitute is closed":
        substitutes.look_after(QUEUE)  # by the reader that was closed
        substitutes._open[QUEUE.name] = cast("Any", SimpleNamespace(close=wish))
    substitutes._choose()
    substitutes._choose()
    assert made == [QUEUE]


class Failing:
    """Stands in for a reader with an unexpected error."""

    def __init__(self, queue: Queue) -> None:
        self.queue, self.closed = queue, False

    def keep_up(self) -> None:
        raise ZeroDivisionError

    def check(self) -> None:
        pass

    def close(self) -> None:
        raise LookupError


def test_a_queue_gets_a_substitute_again_after_unexpected_errors(caplog: pytest.LogCaptureFixture) -> None:
    moved = Service("//order/service", "Later", (), (QUEUE.name,))
    catalog = SimpleNamespace(all=lambda kind: [moved] if kind is Service else [QUEUE])
    later = SimpleNamespace(queue=SimpleNamespace(name="Later"), closed=False)
    made: list[Queue] = []
    again = threading.Event()

    def make(queue: Queue) -> Any:
        made.append(queue)
        if len(made) == 3:
            again.set()
        if len(made) == 2:
            raise AttributeError
        return Failing(queue)

    with patch.multiple(substituting, WANTED_EVERY=1, PUMP_EVERY_S=0.001):
        substitutes = Substitutes(cast("Any", catalog), readers(later), make)
        substitutes.look_after(QUEUE)
        try:
            assert again.wait(DEADLINE_S)
        finally:
            substitutes.close()
    found = [line.exc_info[0] for line in caplog.records if line.exc_info is not None]
    assert found[:3] == [ZeroDivisionError, LookupError, AttributeError], "each is said"
