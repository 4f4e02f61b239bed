"""Watches where the logs of a queue begin and end while the queue is read.

An administrator may delete waiting records that no snapshot contains yet, or snapshots that contain the only copy of
deleted records. The owner still has the state in memory and saves it in a snapshot. Kafka is asked every few seconds,
without waiting for the answer.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping

from confluent_kafka.admin import OffsetSpec

from konverse.bridge.kafka.clients import Kafka
from konverse.bridge.kafka.offsets import BEGINNING, END, OffsetRequest
from konverse.bridge.kafka.topic_watch import WATCH_EVERY_S
from konverse.dialog.owner.events import SnapshotsHeld


class OffsetWatch:
    """Asks Kafka for the first offsets of a topic's partitions, or for their ends, or for both."""

    def __init__(self, kafka: Kafka, topic: str, *which: OffsetSpec) -> None:
        self._kafka = kafka
        self._topic = topic
        self._which = which
        self._ask_at = time.monotonic() + WATCH_EVERY_S
        self._asked: list[OffsetRequest] = []

    @property
    def asks(self) -> bool:
        """Whether an answer is awaited, so that `poll` asks nothing new."""
        return bool(self._asked)

    def poll(self, partitions: Collection[int]) -> dict[int, tuple[int, ...]]:
        """Ask Kafka when a check is due. Returns the answers since the last call: partition -> offsets."""
        if self._asked:
            if not all(request.done for request in self._asked):
                return {}
            answered, self._asked = [request.offsets() for request in self._asked], []
            return {
                number: tuple(offsets[number] for offsets in answered)
                for number in answered[0]
                if all(number in offsets for offsets in answered)
            }
        now = time.monotonic()
        if partitions and now >= self._ask_at:
            self._ask_at = now + WATCH_EVERY_S
            self._asked = [OffsetRequest(self._kafka, self._topic, partitions, which) for which in self._which]
        return {}


class SnapshotWatch:
    """Asks Kafka whether the snapshots on which owners rely are still in their topic."""

    def __init__(self, kafka: Kafka, topic: str) -> None:
        self._offsets = OffsetWatch(kafka, topic, BEGINNING, END)
        self._newest: dict[int, int] = {}
        """Partition -> first offset of its last snapshot when Kafka was asked. A later one may be beyond the answer."""

    def poll(self, newest: Mapping[int, int]) -> list[tuple[int, SnapshotsHeld]]:
        """Ask about partitions and their last snapshots when a check is due. Returns answers since the last call."""
        if not self._offsets.asks:
            self._newest = dict(newest)
        answers = self._offsets.poll(newest)
        return [(at, SnapshotsHeld(self._newest[at], start, end)) for at, (start, end) in answers.items()]
