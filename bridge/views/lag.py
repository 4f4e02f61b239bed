"""The backlog of each partition: waiting messages, their age, and suspended conversations; folded from the logs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import NamedTuple

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME

from konverse.bridge.kafka.clients import Kafka, LogTruncated
from konverse.bridge.kafka.clock import kafka_time_ms
from konverse.bridge.kafka.log_reader import LogReader
from konverse.bridge.kafka.open_transactions import stalled
from konverse.bridge.owner.follower import UNREADABLE, Follower
from konverse.bridge.reader.operations import awaits_operator
from konverse.dialog.state.endpoint import timestamp_ms
from konverse.dialog.state.partition import Partition
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.errors import AccessDenied

from .membership import ConsumerGroups
from .reading_state import ReadingState, describe_unknown, reading_of


class PartitionLag(NamedTuple):
    """The backlog of one partition. Messages that a handler has received but not committed count as waiting."""

    queue: str
    partition: int
    messages: int | None = None
    """Messages that were accepted and not received; None, here and below, for a partition that cannot be read."""
    offsets: int | None = None
    """Offsets at the end of the data log that no owner has ingested. Some may hold no message."""
    oldest_s: float | None = None
    """Seconds since the oldest waiting message or record was written, by topic timestamps; None when nothing waits, or
    only records with their senders' timestamps that no owner has ingested."""
    suspended: int | None = None
    """Conversations that wait for an operator, as `konverse suspended` lists them."""
    suspended_messages: int | None = None
    """Messages among `messages` that wait in suspended conversations."""
    reader: bool | None = None
    """A process owns the partition and is alive; None also where that is not known."""
    held_up: str = ""
    """Which records an open transaction of a foreign producer holds up, and how to fix it; empty if there is none."""
    unreadable: str = ""
    """Why the logs of the partition cannot be read; empty if they can."""
    unknown: str = ""
    """Why it is not known whether there is a reader; empty if it is."""


def lag_of(kafka: Kafka, queue: Queue, groups: ConsumerGroups) -> Iterator[PartitionLag]:
    """The lag of each partition; claims nothing and needs no Redis. Raises KafkaUnavailable."""
    for number in range(queue.partitions):
        with Follower(kafka, queue, number) as following:
            try:
                state = following.catch_up()
                yield _lag(kafka, queue, number, state, reading_of(kafka, queue, number, following, groups))
            except (*UNREADABLE, AccessDenied) as error:
                yield PartitionLag(queue.name, number, unreadable=str(error))


def _lag(kafka: Kafka, queue: Queue, number: int, state: Partition, reading: ReadingState) -> PartitionLag:
    sides = state.live()
    times = [timestamp_ms(entry[3]) for one in sides for entry in (*one.urgent[:1], *one.queue[:1])]
    times += _first_unread(kafka, queue.topic, number, state.ingest_to)
    suspended = [one for one in sides if awaits_operator(one)]
    held_up = stalled(kafka, queue.topic, number) if reading.waiting else None
    return PartitionLag(
        queue.name,
        number,
        sum(len(one.queue) + len(one.urgent) for one in sides),
        reading.waiting,
        max(0, kafka_time_ms(kafka) - min(times)) / 1000 if times else None,
        len(suspended),
        sum(len(one.queue) + len(one.urgent) for one in suspended),
        reading.reader,
        "" if held_up is None else held_up.describe(queue.topic, number),
        unknown=describe_unknown(reading),
    )


def _first_unread(kafka: Kafka, topic: str, number: int, ingested_to: int) -> list[int]:
    """Time of the first record that no owner has ingested, in milliseconds; empty when there is none.

    Records may have been deleted before they were read, and those of an open transaction cannot be read yet. A stamp
    that is the sender's says nothing about Kafka's time.
    """
    with closing(LogReader(kafka)) as log:
        start, end = log.ends(topic, number)
        with closing(log.read(topic, number, max(start, ingested_to), end)) as chunks:
            try:
                first = next((message for messages, _ in chunks for message in messages), None)
            except LogTruncated:  # between the two requests
                return []
    kind, written = (None, 0) if first is None else first.timestamp()
    return [written] if kind == TIMESTAMP_LOG_APPEND_TIME else []
