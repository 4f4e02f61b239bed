"""How much waits in each partition of a queue, for how long, and what is parked; folded from the logs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import NamedTuple

from konverse.bridge.kafka.clients import Kafka
from konverse.bridge.kafka.clock import kafka_time_ms
from konverse.bridge.kafka.log_reader import LogReader
from konverse.bridge.owner.follower import UNREADABLE, Follower
from konverse.dialog.state.endpoint import timestamp_ms
from konverse.dialog.state.partition import Partition
from konverse.schemas.catalog.objects import Queue

from .reading_state import reading_of


class PartitionLag(NamedTuple):
    """What waits in one partition. Messages that a handler has, and has not committed, wait too."""

    queue: str
    partition: int
    messages: int = 0
    """Messages that were accepted and not received."""
    offsets: int = 0
    """Offsets at the end of the data log that no owner has ingested. Some may hold no message."""
    oldest_s: float | None = None
    """Seconds since the oldest of them was written, by Kafka's time; None when nothing waits."""
    parked: int = 0
    """Suspended conversations."""
    parked_messages: int = 0
    """Messages among `messages` that wait in suspended conversations."""
    reader: bool = False
    """A process owns the partition and is alive."""
    unreadable: str = ""
    """Why the logs of the partition cannot be read; then the other fields mean nothing. Empty if they can."""


def lag_of(kafka: Kafka, queue: Queue) -> Iterator[PartitionLag]:
    """The lag of each partition; claims nothing and needs no Redis. Raises KafkaUnavailable."""
    for number in range(queue.partitions):
        with Follower(kafka, queue, number) as following:
            try:
                state = following.catch_up()
            except UNREADABLE as error:
                yield PartitionLag(queue.name, number, unreadable=str(error))
                continue
            reading = reading_of(kafka, queue, number, following)
            written = _oldest(kafka, queue, number, state, reading.waiting)
        suspended = [endpoint for endpoint in state.live() if endpoint.suspended]
        yield PartitionLag(
            queue.name,
            number,
            sum(len(endpoint.queue) + len(endpoint.urgent) for endpoint in state.live()),
            reading.waiting,
            None if written is None else max(0, kafka_time_ms(kafka) - written) / 1000,
            len(suspended),
            sum(len(endpoint.queue) + len(endpoint.urgent) for endpoint in suspended),
            reading.reader,
        )


def _oldest(kafka: Kafka, queue: Queue, number: int, state: Partition, behind: int) -> int | None:
    """Time of the oldest record that waits, in milliseconds; None when nothing waits."""
    waiting = [entry for endpoint in state.live() for entry in (*endpoint.urgent[:1], *endpoint.queue[:1])]
    times = [timestamp_ms(entry[3]) for entry in waiting]
    if behind:
        ends = state.ingest_to, state.ingest_to + behind
        with closing(LogReader(kafka)) as log, closing(log.read(queue.topic, number, *ends)) as chunks:
            first = next((message for messages, _ in chunks for message in messages), None)
        if first is not None:
            times.append(first.timestamp()[1])
    return min(times, default=None)
