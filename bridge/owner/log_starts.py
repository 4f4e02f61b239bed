"""Watches where the logs of a queue begin and end while the queue is read.

An administrator may delete waiting records that no snapshot contains yet, or snapshots that contain the only copy of
deleted records. The owner still has the state in memory and saves it in a snapshot. Kafka is asked every few seconds,
without waiting for the answer.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from concurrent.futures import Future
from typing import Final

from confluent_kafka import TopicPartition
from confluent_kafka.admin import ListOffsetsResultInfo, OffsetSpec

from konverse.bridge.kafka.clients import Kafka
from konverse.bridge.kafka.topic_watch import WATCH_EVERY_S
from konverse.dialog.owner.events import SnapshotsHeld

BEGINNING: Final[OffsetSpec] = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
END: Final[OffsetSpec] = OffsetSpec.latest()  # type: ignore[no-untyped-call]


class OffsetWatch:
    """Asks Kafka for the first offsets of a topic's partitions, or for their ends, or for both."""

    def __init__(self, kafka: Kafka, topic: str, *which: OffsetSpec) -> None:
        self._kafka = kafka
        self._topic = topic
        self._which = which
        self._ask_at = time.monotonic() + WATCH_EVERY_S
        self._asked: list[dict[TopicPartition, Future[ListOffsetsResultInfo]]] = []

    @property
    def asks(self) -> bool:
        """Whether an answer is awaited, so that `poll` asks nothing new."""
        return bool(self._asked)

    def poll(self, partitions: Collection[int]) -> dict[int, tuple[int, ...]]:
        """Ask Kafka when a look is due. Returns the answers since the last call: partition -> offsets."""
        if self._asked:
            if not all(answer.done() for asked in self._asked for answer in asked.values()):
                return {}
            answered, self._asked = self._asked, []
            return {
                at.partition: tuple(one[at].result().offset for one in answered)
                for at in answered[0]
                if all(one[at].exception() is None for one in answered)
            }
        now = time.monotonic()
        if partitions and now >= self._ask_at:
            self._ask_at = now + WATCH_EVERY_S
            places = [TopicPartition(self._topic, number) for number in sorted(partitions)]
            self._asked = [self._kafka.admin.list_offsets(dict.fromkeys(places, which)) for which in self._which]
        return {}


class SnapshotWatch:
    """Asks Kafka whether the snapshots on which owners rely are still in their topic."""

    def __init__(self, kafka: Kafka, topic: str) -> None:
        self._offsets = OffsetWatch(kafka, topic, BEGINNING, END)
        self._newest: dict[int, int] = {}
        """Partition -> first offset of its last snapshot when Kafka was asked. A later one may be beyond the answer."""

    def poll(self, newest: Mapping[int, int]) -> list[tuple[int, SnapshotsHeld]]:
        """Ask about partitions and their last snapshots when a look is due. Returns answers since the last call."""
        if not self._offsets.asks:
            self._newest = dict(newest)
        answers = self._offsets.poll(newest)
        return [(at, SnapshotsHeld(self._newest[at], start, end)) for at, (start, end) in answers.items()]
