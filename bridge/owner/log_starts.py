"""The first offsets of a queue's data logs, watched while the queue is read.

An administrator may delete waiting records that no snapshot holds yet. The owner still has them in memory and saves
them in a snapshot. Kafka is asked every few seconds, without waiting for the answer.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from concurrent.futures import Future
from typing import Final

from confluent_kafka import TopicPartition
from confluent_kafka.admin import ListOffsetsResultInfo, OffsetSpec

from konverse.bridge.kafka.clients import Kafka
from konverse.bridge.kafka.topic_watch import WATCH_EVERY_S
from konverse.schemas.catalog.objects import Queue

_BEGINNING: Final[OffsetSpec] = OffsetSpec.earliest()  # type: ignore[no-untyped-call]


class Beginnings:
    """Asks Kafka for the first offsets of a queue's data logs."""

    def __init__(self, kafka: Kafka, queue: Queue) -> None:
        self._kafka = kafka
        self._topic = queue.topic
        self._ask_at = time.monotonic() + WATCH_EVERY_S
        self._asked: dict[TopicPartition, Future[ListOffsetsResultInfo]] = {}

    def look(self, partitions: Collection[int]) -> list[tuple[int, int]]:
        """Ask Kafka when a look is due. Returns the answers since the last call: partition and first offset."""
        if self._asked:
            if not all(answer.done() for answer in self._asked.values()):
                return []
            asked, self._asked = self._asked, {}
            return [(at.partition, one.result().offset) for at, one in asked.items() if one.exception() is None]
        now = time.monotonic()
        if partitions and now >= self._ask_at:
            self._ask_at = now + WATCH_EVERY_S
            places = [TopicPartition(self._topic, number) for number in sorted(partitions)]
            self._asked = self._kafka.admin.list_offsets(dict.fromkeys(places, _BEGINNING))
        return []
