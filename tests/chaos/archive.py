"""Keeps every record that the logs of a run ever held, for the judgement at its end.

Queues with `keep` delete records, but a run is judged by all of them. So an archive follows the logs as a registered
reader (protocol.md 7.5). This also tests the promise that records which a registered reader has not read are kept.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Final, Self

from confluent_kafka import KafkaException, Message, TopicPartition

from konverse.bridge.kafka.clients import Kafka, LogTruncated
from konverse.bridge.kafka.log_reader import LogReader
from konverse.bridge.runtime.settings import Settings
from konverse.bridge.verifier.check import Finding, PartitionVerdict
from konverse.bridge.verifier.reading import LogPart, PartitionReader, Verification, Views, measure, shorten
from konverse.bridge.verifier.records import Record
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.errors import KafkaUnavailable
from konverse.schemas.identifiers import Address, consumer_group, journal_topic
from konverse.schemas.wire.records import BounceId

from .topics import bodies_in

EVERY_S: Final = 1.0
CLOSE_S: Final = 30.0


@dataclass
class _Log:
    """The records of one log so far."""

    topic: str
    partition: int
    group: str
    messages: list[Message] = field(default_factory=list)
    at: int = 0
    """Every record before this offset was read."""


class Archive:
    """Reads data logs and journals of some queues in a thread of its own, from their first record."""

    def __init__(self, bootstrap: str, queues: Sequence[Queue]) -> None:
        self._kafka = Kafka(Settings(kafka=f"kafka://{bootstrap}"))
        self._logs = {
            (topic, number): _Log(topic, number, f"{consumer_group(queue.topic, queue.subscription)}.archive")
            for queue in queues
            for topic in (queue.topic, journal_topic(queue.topic, queue.subscription))
            for number in range(queue.partitions)
        }
        self.holes: list[str] = []
        """Records deleted before they were read, in words."""
        self._reader = LogReader(self._kafka)
        self._members = {group: self._kafka.consumer(**{"group.id": group}) for group in self._groups()}
        """These commit positions. An AdminClient of librdkafka 2.16 aborts the process when its connection breaks."""
        self._reading = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="archive", daemon=True)

    def __enter__(self) -> Self:
        for group, member in self._members.items():  # before anything can be deleted
            member.commit(offsets=self._positions(group), asynchronous=False)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(CLOSE_S)
        self._reader.close()
        for member in self._members.values():
            member.close()

    def holds(self, topic: str, partition: int) -> bool:
        """Whether the archive reads this log."""
        return (topic, partition) in self._logs

    def records(self, topic: str, partition: int, start: int, end: int) -> list[Message]:
        """The records from `start` to before `end`, deleted ones included. Raises KafkaUnavailable."""
        log = self._logs[topic, partition]
        with self._reading:
            self._read_on(log, end)
            first, last = (bisect_left(log.messages, at, key=_offset) for at in (start, end))
            return log.messages[first:last]

    def _run(self) -> None:
        while not self._over.wait(EVERY_S):
            try:
                for log in self._logs.values():
                    with self._reading:
                        self._read_on(log, self._reader.ends(log.topic, log.partition)[1])
                for group, member in self._members.items():
                    member.commit(offsets=self._positions(group))  # if it is lost, the next one follows in a second
            except (KafkaUnavailable, KafkaException):
                continue  # Kafka is not available

    def _read_on(self, log: _Log, end: int) -> None:
        try:
            with closing(self._reader.read(log.topic, log.partition, log.at, end)) as chunks:
                for messages, at in chunks:
                    log.messages += messages
                    log.at = at
        except LogTruncated:
            start, _ = self._reader.ends(log.topic, log.partition)
            self.holes.append(f"{log.topic}/{log.partition} was deleted up to {start}, and read up to {log.at}")
            log.at = max(start, log.at)

    def _groups(self) -> set[str]:
        return {log.group for log in self._logs.values()}

    def _positions(self, group: str) -> list[TopicPartition]:
        """How far each log of the group was read."""
        logs = (log for log in self._logs.values() if log.group == group)
        return [TopicPartition(log.topic, log.partition, log.at) for log in logs]


def _offset(message: Message) -> int:
    return message.offset() or 0


class _ArchivedLogs(LogReader):
    """A log reader that takes archived logs from the archive."""

    def __init__(self, kafka: Kafka, archive: Archive) -> None:
        super().__init__(kafka)
        self._archive = archive

    def ends(self, topic: str, partition: int) -> tuple[int, int]:
        """An archived log begins at offset 0."""
        first, end = super().ends(topic, partition)
        return (0 if self._archive.holds(topic, partition) else first), end

    def read(self, topic: str, partition: int, start: int, end: int) -> Generator[tuple[list[Message], int]]:
        """An archived range comes in one piece."""
        if self._archive.holds(topic, partition):
            yield self._archive.records(topic, partition, start, end), end
        else:
            yield from super().read(topic, partition, start, end)


class Proof(Verification):
    """The product's verification, which also notes the bodies of each record; with an archive, it judges that."""

    def __init__(self, kafka: Kafka, queues: Sequence[Queue], archive: Archive | None = None) -> None:
        super().__init__(kafka, queues)
        self._log = LogReader(kafka) if archive is None else _ArchivedLogs(kafka, archive)
        self.extents = measure(kafka, self._log, queues)
        self._reading = _Noting(self._log, self.owners)
        self._reading.places = {(one.place.topic, one.place.partition): one.place.address for one in self.extents}

    @property
    def bodies(self) -> dict[BounceId, tuple[str, ...]]:
        """Name of a record → digests of the bodies in it."""
        return self._reading.bodies

    def look(self, views: Views) -> tuple[list[PartitionVerdict], list[Finding]]:
        """Like `run`, and note the bodies."""
        return self.run(
            views=views,
            judged=lambda _, views, progress: (
                self._reading.judge(extent, views.get((extent.place.topic, extent.place.partition)), progress)
                for extent in self.extents
            ),
        )

    def close(self) -> None:
        """Close the client."""
        self._log.close()


class _Noting(PartitionReader):
    """Reads partitions and notes bodies."""

    def __init__(self, log: LogReader, owners: Collection[bytes]) -> None:
        super().__init__(log, owners)
        self.places: dict[tuple[str, int], Address] = {}
        self.bodies: dict[BounceId, tuple[str, ...]] = {}

    def _read(self, part: LogPart, progress: Callable[[int], None], log: LogReader | None = None) -> Iterator[Record]:
        address = self.places.get((part.topic, part.partition))
        for record in super()._read(part, progress, log):
            if address is not None:
                self.bodies.update(bodies_in(address, [shorten(record)]))
            yield record
