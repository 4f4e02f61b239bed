"""Answers an owner's reads: a range of the journal, the data log or the snapshot topic becomes an event."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, Final

from confluent_kafka import Message, TopicPartition

from konverse.bridge.kafka.clients import EndCut, Kafka, LogTruncated
from konverse.bridge.kafka.columns import columns_of, journal_record
from konverse.bridge.kafka.log_reader import LogReader, ends_around
from konverse.bridge.kafka.offsets import log_ends
from konverse.dialog.owner.events import (
    Appended,
    DataGone,
    DataRead,
    JournalRead,
    OutOfRange,
    ReadData,
    ReadJournal,
    ReadSnapshots,
    Recover,
    SnapshotsRead,
)
from konverse.dialog.state.recent import RecordColumns
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.errors import AccessDenied, KafkaUnavailable
from konverse.schemas.identifiers import journal_topic, snapshot_topic
from konverse.schemas.limits import VIEW_AHEAD_BYTES_MAX, VIEW_AHEAD_RECORDS_MAX

log: Final = logging.getLogger("konverse.logs")

READ_BYTES_MAX: Final = 64 * 1024 * 1024
"""Approximate size of the part of a log that is in memory at a time while the log is folded."""

Question = ReadJournal | ReadData | ReadSnapshots


class QueueLogs:
    """Reads the logs of one queue."""

    def __init__(self, kafka: Kafka, queue: Queue) -> None:
        self._kafka = kafka
        self._reader = LogReader(kafka)
        self._topics: dict[type, str] = {
            ReadJournal: journal_topic(queue.topic, queue.subscription),
            ReadData: queue.topic,
            ReadSnapshots: snapshot_topic(queue.topic, queue.subscription),
        }
        self._trouble: KafkaUnavailable | LogTruncated | None = None
        """The error of the last failed read."""

    def bounds(self, partition: int) -> Recover:
        """First offsets and ends of the logs.

        Kafka is asked about the snapshots last. So if another log was truncated before its answer, the snapshot that
        covers the deleted records is included.
        """
        journal, data, snapshots = (self._reader.ends(topic, partition) for topic in self._topics.values())
        return Recover(*journal, data[0], *snapshots, data[1])

    def data_end(self, partition: int) -> int | None:
        """Present end of the readable part of the data log; None when Kafka does not answer."""
        try:
            return self._reader.ends(self._topics[ReadData], partition)[1]
        except KafkaUnavailable:
            return None

    def whole_data_end(self, partition: int) -> int:
        """Present end of the data log, after the records that open transactions hold up. Raises KafkaUnavailable."""
        place = TopicPartition(self._topics[ReadData], partition)
        return log_ends(self._kafka, [place])[place.topic, partition]

    def is_bare(self, partition: int, start: int, end: int) -> bool:
        """Whether the data log has no record in a range: only markers and aborted records of foreign transactions.

        False when that is unknown, and while an open transaction holds up a part of the range.
        """
        topic = self._topics[ReadData]
        try:
            if self._reader.ends(topic, partition)[1] < end:
                return False
            with closing(self._reader.read(topic, partition, start, end)) as chunks:
                return not any(chunk for chunk, _ in chunks)
        except (KafkaUnavailable, LogTruncated):
            return False

    def data_behind(self, partition: int, start: int) -> Iterator[RecordColumns]:
        """Data from `start` to the log's present end, within VIEW_AHEAD_…; ends early where data were deleted.

        Raises KafkaUnavailable.
        """
        end = self._reader.ends(self._topics[ReadData], partition)[1]
        records, size = 0, 0
        while start < end and records < VIEW_AHEAD_RECORDS_MAX and size < VIEW_AHEAD_BYTES_MAX:
            read = self.answer(partition, ReadData(start, min(end, start + VIEW_AHEAD_RECORDS_MAX - records)))
            if isinstance(read, OutOfRange):
                return
            if not isinstance(read, DataRead):
                raise self.unreadable(f"{self._topics[ReadData]}/{partition}")
            yield read.columns
            records += len(read.columns.offsets)
            size += sum(len(body) for body in read.columns.bodies if body)
            start = read.columns.next_offset

    def data_gone(self, partition: int, offset: int, why: LogTruncated) -> DataGone | OutOfRange | Appended:
        """Event for an owner whose next offset, or whose records before that offset, are not in the data log."""
        topic = self._topics[ReadData]
        if isinstance(why, EndCut):  # new records may have the lost offsets, so the present end says nothing
            return OutOfRange(beginning=False) if why.at < offset else self._stop_owner(topic, partition, why)
        try:
            start, end = ends_around(self._reader, topic, partition, offset)
        except KafkaUnavailable as error:
            return self._stop_owner(topic, partition, error)
        return DataGone(start) if offset <= end else OutOfRange(beginning=False)

    def answer(self, partition: int, question: Question) -> Any:
        """Event with the records of a range, or with the first part of a large one: the owner asks for the rest."""
        topic, at, size = self._topics[type(question)], question.start, 0
        messages: list[Message] = []
        try:
            with closing(self._reader.read(topic, partition, question.start, question.end)) as chunks:
                for chunk, at in chunks:  # noqa: B007  # where the last chunk ended
                    messages += chunk
                    size += sum(len(message) for message in chunk)
                    if size >= READ_BYTES_MAX:
                        break
        except LogTruncated as error:
            return self._gone(topic, partition, at, question.end, error)
        except KafkaUnavailable as error:
            return self._stop_owner(topic, partition, error)
        return _EVENTS[type(question)](messages, question.start, at)

    def _gone(self, topic: str, partition: int, offset: int, to: int, why: LogTruncated) -> OutOfRange | Appended:
        """Event for a range outside the log; stops the owner if the log has the range after all, as after a restart."""
        try:
            start, end = ends_around(self._reader, topic, partition, to)
        except KafkaUnavailable as error:
            return self._stop_owner(topic, partition, error)
        if start <= offset and to <= end:
            return self._stop_owner(topic, partition, why)
        return OutOfRange(beginning=offset < start)

    def _stop_owner(self, topic: str, partition: int, error: KafkaUnavailable | LogTruncated) -> Appended:
        """Event that stops the owner until a later recovery: Kafka is unreachable, or refuses records that it has."""
        self._trouble = error
        log.warning(
            "the owner of %s/%d stops because a log cannot be read; the partition will be recovered again: %s",
            topic,
            partition,
            error,
        )
        return Appended(None)

    def unreadable(self, what: str) -> KafkaUnavailable:
        """Error for a range that was not read: AccessDenied when a right was missing, else KafkaUnavailable."""
        if isinstance(self._trouble, AccessDenied):
            return self._trouble
        return KafkaUnavailable(f"{what} cannot be read; check that the broker runs and is reachable")

    def close(self) -> None:
        """Close the client."""
        self._reader.close()


def _journal_read(messages: list[Message], _start: int, next_offset: int) -> JournalRead:
    return JournalRead([*map(journal_record, messages)], next_offset)


def _data_read(messages: list[Message], start: int, next_offset: int) -> DataRead:
    return DataRead(columns_of(messages, (start, next_offset))[0])


def _snapshots_read(messages: list[Message], _start: int, next_offset: int) -> SnapshotsRead:
    return SnapshotsRead([(m.offset() or 0, m.value() or b"") for m in messages], next_offset)


_EVENTS: Final[dict[type, Callable[[list[Message], int, int], Any]]] = {
    ReadJournal: _journal_read,
    ReadData: _data_read,
    ReadSnapshots: _snapshots_read,
}
