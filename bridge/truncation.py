"""Deleting what nobody needs any more (protocol.md section 7.5): old journal, data and snapshots of a partition.

An owner says what its state does not need. Two bounds of others come on top: the queue's `keep`, and registered
readers. A reader registers by committing offsets of the data topic, and of the journal if it reads that, in a consumer
group whose name begins with that of the queue's own group and a dot. Kafka forgets a group that nobody uses
(`offsets.retention.minutes`), and so do we.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from confluent_kafka import KafkaException, TopicPartition

from konverse.dialog.events import Truncate
from konverse.schemas.catalog import KEEP_FOR_EVER, Queue
from konverse.schemas.errors import KafkaUnavailable, TopicMismatch
from konverse.schemas.identifiers import consumer_group, journal_topic, snapshot_topic

from .background import said
from .kafka import Kafka, LogReader
from .kafka_time import kafka_time_ms

log: Final = logging.getLogger("konverse.truncation")


class Truncation:
    """Truncates the logs of one queue, in a thread of its own: Kafka is asked several things for each partition."""

    def __init__(self, kafka: Kafka, queue: Queue) -> None:
        self._kafka = kafka
        self._queue = queue
        self._timeout_s = kafka.settings.connect_timeout_s
        self._worker = ThreadPoolExecutor(1, "konverse-truncation")

    def truncate(self, partition: int, effect: Truncate) -> None:
        """Delete what stands before these offsets and the bounds of others, soon."""
        if self._queue.keep_ms != KEEP_FOR_EVER:
            self._worker.submit(said, "konverse-truncation", partial(self._truncate, partition, effect))

    def close(self) -> None:
        """Finish what was begun."""
        self._worker.shutdown(cancel_futures=True)

    def _truncate(self, partition: int, effect: Truncate) -> None:
        queue = self._queue
        logs = (journal_topic(queue.topic, queue.subscription), queue.topic)
        try:
            since_ms = kafka_time_ms(self._kafka) - queue.keep_ms
            reader = LogReader(self._kafka)
            try:
                kept = [reader.offset_at(topic, partition, since_ms) for topic in logs]
            finally:
                reader.close()
            read_to = self._registered(partition, logs)
            offsets = {
                topic: min(unneeded, since, *read)
                for topic, unneeded, since, read in zip(logs, (effect.journal, effect.data), kept, read_to, strict=True)
            }
            offsets[snapshot_topic(queue.topic, queue.subscription)] = effect.snapshots
            places = [TopicPartition(topic, partition, offset) for topic, offset in offsets.items() if offset > 0]
            if places:
                asked = self._kafka.admin.delete_records(places, request_timeout=self._timeout_s)
                for answer in asked.values():
                    answer.result()
        except (KafkaException, KafkaUnavailable, TopicMismatch) as error:
            log.warning("%s/%d is not truncated: %s", queue.topic, partition, error)
        else:
            log.info("%s/%d is truncated: %s", queue.topic, partition, offsets)

    def _registered(self, partition: int, topics: Sequence[str]) -> list[list[int]]:
        """Positions of the registered readers in each of these topics.

        A reader that has committed nothing for the partition holds the data from their beginning, and no journal.
        """
        queue, admin = self._queue, self._kafka.admin
        prefix = consumer_group(queue.topic, queue.subscription) + "."
        listed = admin.list_consumer_groups(request_timeout=self._timeout_s).result()
        for error in listed.errors:  # a broker that has not answered may know a reader
            raise KafkaException(error)  # KafkaError, whatever the client's documentation says
        positions: dict[str, list[int]] = {topic: [] for topic in topics}
        for group in (group.group_id for group in listed.valid if group.group_id.startswith(prefix)):
            # not the administrator's client: in librdkafka 2.16 it aborts the process when its connection breaks
            member = self._kafka.consumer(**{"group.id": group})
            try:
                known = member.committed([TopicPartition(topic, partition) for topic in topics], self._timeout_s)
            finally:
                member.close()
            for found in known:
                if found.error is not None:
                    raise KafkaException(found.error)
                if found.offset >= 0 or found.topic == queue.topic:
                    positions[found.topic].append(max(0, found.offset))
        return [positions[topic] for topic in topics]
