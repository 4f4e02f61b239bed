"""Writes snapshots of partitions, and deletes the records that they make superfluous (protocol.md section 7.5).

`SnapshotTopic` hands the records of snapshots to a producer and keeps their outcomes until it is polled.

`Truncation` deletes old journal, data and snapshot records. The owner says below which offsets it needs no records. Two
more bounds protect journal and data: the queue's `keep`, and registered readers. A reader registers by committing
offsets of the data topic, and of the journal if it reads the journal, in a consumer group whose name begins with the
name of the queue's own group and a dot. Kafka forgets an unused group (`offsets.retention.minutes`), which ends the
protection.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final

from confluent_kafka import KafkaException, Message, Producer, TopicPartition

from konverse.bridge.kafka.clients import Kafka, discard
from konverse.bridge.kafka.clock import kafka_time_ms
from konverse.bridge.kafka.log_reader import LogReader
from konverse.bridge.kafka.refusals import Need
from konverse.bridge.runtime.threads import log_exceptions
from konverse.dialog.owner.events import AppendSnapshot, SnapshotWritten, Truncate
from konverse.dialog.owner.owner import Owner
from konverse.schemas.catalog.objects import KEEP_FOR_EVER, Queue
from konverse.schemas.counting import listed
from konverse.schemas.errors import KafkaUnavailable, TopicMismatch
from konverse.schemas.identifiers import consumer_group, journal_topic, snapshot_topic

log: Final = logging.getLogger("konverse.snapshots")
TIMEOUT_S: Final = 120.0
"""Generous, as a snapshot may have a hundred megabytes and the network may be busy."""


class Truncation:
    """Truncates the logs of one queue, in a thread of its own, because a truncation takes several requests."""

    def __init__(self, kafka: Kafka, queue: Queue) -> None:
        self._kafka = kafka
        self._queue = queue
        self._timeout_s = kafka.settings.connect_timeout_s
        self._worker = ThreadPoolExecutor(1, "konverse-truncation")

    def truncate(self, partition: int, effect: Truncate) -> None:
        """Delete, in the background, unprotected records below the effect's offsets."""
        if self._queue.keep_ms != KEEP_FOR_EVER:
            self._worker.submit(log_exceptions, "konverse-truncation", partial(self._truncate, partition, effect))

    def close(self) -> None:
        """Finish the running truncation, and cancel the others."""
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
                self._delete(places)
        except (KafkaException, KafkaUnavailable, TopicMismatch) as error:
            log.warning("the logs of %s/%d were not truncated: %s", queue.topic, partition, error)
        else:
            log.info("the logs of %s/%d were truncated below these offsets: %s", queue.topic, partition, offsets)

    def _delete(self, places: list[TopicPartition]) -> None:
        """Delete the records below these offsets. Raises KafkaUnavailable."""
        for place, answer in self._kafka.admin.delete_records(places, request_timeout=self._timeout_s).items():
            try:
                answer.result()
            except KafkaException as error:
                what = f"the records of {place.topic}/{place.partition} below {place.offset} cannot be deleted"
                raise self._kafka.unavailable(what, error, Need.topic("DELETE", place.topic)) from None

    def _registered(self, partition: int, topics: Sequence[str]) -> list[list[int]]:
        """Positions of the registered readers, for each of `topics`. Raises KafkaUnavailable, KafkaException.

        A reader that has committed nothing for the partition protects all of its data, and no journal.
        """
        queue, admin = self._queue, self._kafka.admin
        prefix = consumer_group(queue.topic, queue.subscription) + "."
        places = [TopicPartition(topic, partition) for topic in topics]
        # Kafka leaves out of its list, without an error, the groups that this principal may not describe. A group
        # with the prefix alone for its name has the same rights, so a question about it is refused.
        self._committed(prefix, prefix, places)
        listed = admin.list_consumer_groups(request_timeout=self._timeout_s).result()
        for error in listed.errors:  # a broker that has not answered may know another reader
            raise KafkaException(error)  # KafkaError, whatever the client's documentation says
        positions: dict[str, list[int]] = {topic: [] for topic in topics}
        for group in (group.group_id for group in listed.valid if group.group_id.startswith(prefix)):
            for found in self._committed(group, prefix, places):
                if found.offset >= 0 or found.topic == queue.topic:
                    positions[found.topic].append(max(0, found.offset))
        return [positions[topic] for topic in topics]

    def _committed(self, group: str, prefix: str, places: list[TopicPartition]) -> list[TopicPartition]:
        """Offsets that a group has committed. Raises KafkaUnavailable."""
        # not the admin client: in librdkafka 2.16 it aborts the process when its connection breaks
        member = self._kafka.consumer(**{"group.id": group})
        try:
            known = member.committed(places, self._timeout_s)
            for found in known:
                if found.error is not None:
                    raise KafkaException(found.error)
        except KafkaException as error:
            event = member.poll(0)  # a refused question times out, and the refusal is an event of the client
            cause = error if event is None else event.error() or error
            need = Need("DESCRIBE", f"groups with the prefix {prefix}")
            raise self._kafka.unavailable(f"offsets of group {group} cannot be read", cause, need) from None
        finally:
            member.close()
        return known


class _SnapshotFlight:
    """A snapshot in flight."""

    __slots__ = ("complete", "failed", "first", "waiting")

    def __init__(self) -> None:
        self.waiting = 0
        self.first: int | None = None
        self.complete = False
        self.failed = False


class SnapshotTopic:
    """Writes the snapshots of all partitions of a queue. The first one creates the producer."""

    def __init__(self, kafka: Kafka, topic: str) -> None:
        self.topic = topic
        self._kafka = kafka
        self._producer: Producer | None = None
        self._broken = False
        self._flights: dict[Owner, _SnapshotFlight] = {}
        self._outcomes: deque[tuple[Owner, SnapshotWritten]] = deque()
        self._newest: dict[int, int] = {}
        """Partition -> first offset of the last snapshot that was written here."""

    def spared(self, partition: int, effect: Truncate) -> Truncate:
        """The same truncation, limited so that it keeps the newest snapshot.

        In a topic that was created again, an older snapshot's offset may lie beyond the newest one. A truncation to it
        would delete the newest, without which no owner could recover.
        """
        return effect._replace(snapshots=min(effect.snapshots, self._newest.get(partition, effect.snapshots)))

    def append(self, owner: Owner, effect: AppendSnapshot) -> None:
        """Hand records to the producer. When the last ones are acknowledged or failed, `poll` returns the outcome."""
        if self._broken:  # a producer that failed may never take a record again
            self.close()
        if self._producer is None:
            self._producer = self._kafka.journal_producer(TIMEOUT_S)
        flight = self._flights.setdefault(owner, _SnapshotFlight())
        report = partial(self._reported, owner, flight)
        try:
            for record in () if flight.failed else effect.records:
                self._producer.produce(self.topic, record, None, owner.identity.partition, report)
                flight.waiting += 1
        except (BufferError, KafkaException) as error:
            self._warn("given up", error, owner)
            flight.failed = self._broken = True
        flight.complete = effect.last
        self._look(owner, flight)

    def poll(self) -> deque[tuple[Owner, SnapshotWritten]]:
        """Outcomes of snapshots since the last call. The caller empties the deque."""
        if self._producer is not None:
            try:
                self._producer.poll(0)
            except KafkaException as error:  # the producer has failed for good
                self._warn("not written", error, *self._flights)
                self.close()
            else:
                if not len(self._producer):
                    self._fail_unreported()
        return self._outcomes

    def _fail_unreported(self) -> None:
        """Fail snapshots that wait although the producer is empty: reports were lost, as in `JournalAppender.poll`."""
        for owner, flight in list(self._flights.items()):
            if flight.waiting or flight.complete:
                flight.failed, flight.waiting = True, 0
                self._look(owner, flight)

    def forget(self, owner: Owner) -> None:
        """Ignore the outcome of the owner's snapshot."""
        self._flights.pop(owner, None)

    def close(self) -> None:
        """Give up snapshots in flight, and discard the producer."""
        producer, self._producer = self._producer, None
        if producer is not None:
            discard(producer)
        self._broken = False

    def _reported(self, owner: Owner, flight: _SnapshotFlight, error: Any, message: Message) -> None:
        if error is not None:
            if not flight.failed:  # a large snapshot has hundreds of records
                self._warn("not written", error, owner)
            flight.failed = self._broken = True
        else:
            offset = message.offset() or 0
            flight.first = offset if flight.first is None else min(flight.first, offset)
        flight.waiting -= 1  # last, so that an interrupted report does not count
        self._look(owner, flight)

    def _warn(self, what: str, error: object, *owners: Owner) -> None:
        why = self._kafka.words(error, Need.topic("WRITE", self.topic))
        places = sorted(owner.identity.partition for owner in owners)
        log.warning(
            "a snapshot in topic %s, partition %s, was %s: %s", self.topic, listed(map(str, places)) or "-", what, why
        )

    def _look(self, owner: Owner, flight: _SnapshotFlight) -> None:
        if flight.complete and not flight.waiting and self._flights.pop(owner, None) is flight:
            if not flight.failed and flight.first is not None:
                self._newest[owner.identity.partition] = flight.first
            self._outcomes.append((owner, SnapshotWritten(None if flight.failed else flight.first)))
