"""Snapshots on their way into their topic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError

from konverse.bridge.owner.snapshots import SnapshotTopic
from konverse.dialog.owner.events import AppendSnapshot, SnapshotWritten, Truncate
from konverse.dialog.owner.owner import Owner
from konverse.dialog.owner.settings import OwnerSettings
from tests.kit.builders import anything, identifier, log_of


class Record:
    """Kafka's report about a record."""

    def __init__(self, offset: int) -> None:
        self._offset = offset

    def offset(self) -> int:
        return self._offset


class Producers:
    """Makes producers whose records wait for their fate. A purge ends all records."""

    def __init__(self) -> None:
        self.made: list[Producers.Producer] = []

    def journal_producer(self, _timeout_s: float) -> Producers.Producer:
        self.made.append(Producers.Producer())
        return self.made[-1]

    def words(self, error: KafkaError, _need: object) -> str:
        return error.str()

    class Producer:
        def __init__(self) -> None:
            self.reports: list[Callable[[Any, Any], None]] = []

        def produce(self, _topic: str, _record: bytes, _key: None, _partition: int, report: Any) -> None:
            self.reports.append(report)

        def purge(self) -> None:
            while self.reports:
                self.reports.pop(0)(KafkaError(KafkaError._PURGE_QUEUE), None)

        def flush(self, _timeout_s: float) -> int:
            return 0

        def poll(self, _timeout_s: float) -> int:
            return 0

        def __len__(self) -> int:
            return len(self.reports)


def owner(number: int) -> Owner:
    return Owner(log_of(partition=number), identifier(f"owner {number}"), anything, OwnerSettings())


def test_after_a_failure_the_next_snapshot_has_a_producer_of_its_own() -> None:
    producers = Producers()
    topic = SnapshotTopic(producers, "snapshots")  # type: ignore[arg-type]
    one, other = owner(0), owner(1)
    topic.append(one, AppendSnapshot([b"chunk", b"end"], last=True))
    topic.append(other, AppendSnapshot([b"chunk"], last=False))
    (failed,) = producers.made
    failed.reports.pop(0)(KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER), None)
    topic.append(other, AppendSnapshot([b"end"], last=True))
    assert failed.reports == [], "nothing of it is waited for"
    assert list(topic.poll()) == [(one, SnapshotWritten(None)), (other, SnapshotWritten(None))]
    topic.poll().clear()
    topic.append(one, AppendSnapshot([b"end"], last=True))
    _, fresh = producers.made
    fresh.reports.pop(0)(None, Record(8))
    assert list(topic.poll()) == [(one, SnapshotWritten(8))]


def test_offsets_of_a_topic_that_was_made_again_delete_nothing_of_the_newest_snapshot() -> None:
    producers = Producers()
    topic = SnapshotTopic(producers, "snapshots")  # type: ignore[arg-type]
    one, asked = owner(0), Truncate(7, 5, 2)
    assert topic.spared(0, asked) == asked
    for first, spared in ((4, 2), (0, 0)):  # in the first topic, and in the one that has its name now
        topic.append(one, AppendSnapshot([b"chunk", b"end"], last=True))
        (made,) = producers.made
        for offset in (first, first + 1):
            made.reports.pop(0)(None, Record(offset))
        topic.poll().clear()
        assert topic.spared(0, asked) == Truncate(7, 5, spared)
    assert topic.spared(1, asked) == asked, "of another partition nothing is known"


def test_a_snapshot_that_the_topic_refuses_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    producers = Producers()
    topic = SnapshotTopic(producers, "snapshots")  # type: ignore[arg-type]
    topic.append(owner(0), AppendSnapshot([b"chunk", b"chunk", b"end"], last=True))
    (made,) = producers.made
    while made.reports:
        made.reports.pop(0)(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), Record(-1))
    assert len(caplog.records) == 1
