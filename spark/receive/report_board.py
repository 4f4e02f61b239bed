"""Counts of running tasks, reported to the driver through Kafka.

Spark passes on the counts of a task, accumulators among them, only when the task ends, and these tasks end with the
job. So each task commits its counts as the metadata of an offset, in a consumer group of the job's own, and the driver
reads them there. The offset itself means nothing. This needs no port of the driver and no further topic, and works with
Spark Connect. Only the progress line depends on it: the result has all counts, even if reports are refused, lost or
late.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, replace
from functools import reduce
from typing import Final, NamedTuple
from uuid import uuid4

from confluent_kafka import Consumer, KafkaException, TopicPartition
from pyspark import TaskContext

from konverse.bridge.kafka.clients import Kafka
from konverse.bridge.kafka.refusals import Need, is_refusal
from konverse.bridge.runtime.log_throttle import LogThrottle
from konverse.bridge.runtime.threads import in_background
from konverse.routing.routed import Routed
from konverse.schemas.identifiers import consumer_group, data_topic
from konverse.spark.connection.clients import kafka_of
from konverse.spark.read.registration import NOTHING_NEEDED

from .mapping import QueueSource

log: Final = logging.getLogger("konverse.spark")

EVERY_S: Final = 1.0
"""Interval at which a task reports its counts, and the driver reads them."""

NOTE_BYTES_MAX: Final = 4_000
"""Within Kafka's bound on the metadata of an offset, which is 4,096 bytes by default (`offset.metadata.max.bytes`)."""

Shown = Callable[[Routed], object]


class Board(NamedTuple):
    """The place of the tasks' counts: metadata of the committed offset of the partition with the task's number."""

    source: QueueSource
    topic: str
    group: str

    def client(self) -> Consumer:
        """A client that writes and reads the counts."""
        return kafka_of(self.source.settings).consumer(**{"group.id": self.group})


@contextmanager
def collected_reports(source: QueueSource, shown: Shown | None) -> Iterator[Board | None]:
    """Call `shown` with the counts of all tasks together while they work. Yields the board; None without `shown`."""
    if shown is None:
        yield None
        return
    settings = source.settings
    topic = data_topic(settings.instance, settings.database, source.queue)
    board = Board(source, topic, f"{consumer_group(topic)}-progress-{uuid4().hex}")
    over = threading.Event()
    thread = in_background("konverse-progress", lambda: _watch(board, shown, over))
    try:
        yield board
    finally:
        over.set()
        thread.join()


@contextmanager
def reporting(board: Board | None) -> Iterator[Shown]:
    """In a task: a function to call with the counts so far."""
    context = TaskContext.get()
    if board is None or context is None:
        yield lambda routed: routed
        return
    with closing(board.client()) as client:
        yield _Reporter(client, TopicPartition(board.topic, context.partitionId(), NOTHING_NEEDED))


class _Reporter:
    def __init__(self, client: Consumer, place: TopicPartition) -> None:
        self._client = client
        self._place = place
        self._reported_s = -EVERY_S

    def __call__(self, routed: Routed) -> None:
        now_s = time.monotonic()
        if now_s - self._reported_s < EVERY_S:
            return
        self._reported_s = now_s
        place = self._place
        noted = TopicPartition(place.topic, place.partition, place.offset, note(routed))
        with suppress(KafkaException):
            self._client.commit(offsets=[noted], asynchronous=True)


def note(routed: Routed) -> str:
    """The counts as metadata of an offset; without `targets` when they would be too long."""
    text = json.dumps(asdict(routed), separators=(",", ":"))
    return text if len(text) <= NOTE_BYTES_MAX else note(replace(routed, targets={}))


def _watch(board: Board, shown: Shown, over: threading.Event) -> None:
    places = [TopicPartition(board.topic, number) for number in range(board.source.partitions())]
    kafka, unread = kafka_of(board.source.settings), LogThrottle()
    before = Routed()
    with closing(board.client()) as client:
        while not over.wait(EVERY_S):
            try:
                found = client.committed(places, timeout=EVERY_S)
            except KafkaException as error:
                if unread.due():
                    need = Need.of_member(error.args[0], board.topic, board.group)
                    log.warning(
                        "the progress counts of tasks on queue %r cannot be shown: %s",
                        board.source.queue,
                        kafka.words(error, need),
                    )
                continue
            noted = [Routed(**json.loads(place.metadata)) for place in found if place.metadata]
            counts = reduce(Routed.plus, noted, Routed())
            if counts != before:
                before = counts
                shown(counts)
    _delete(board, kafka)


def _delete(board: Board, kafka: Kafka) -> None:
    """Delete the group of the counts. If that fails, Kafka deletes it a week later."""
    try:
        kafka.admin.delete_consumer_groups([board.group])[board.group].result()
    except KafkaException as error:
        if is_refusal(error.args[0]):
            log.warning(
                "the group with the progress counts of queue %r is left to expire: %s",
                board.source.queue,
                kafka.words(error.args[0], Need("DELETE", f"group {board.group}")),
            )
