"""The topic of an instance's catalog: reads it, appends to it, and watches it for deletion and changed settings."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from confluent_kafka import Message, Producer, TopicPartition

from konverse.bridge.kafka.appends import TopicRecord, append
from konverse.bridge.kafka.clients import Kafka, LogTruncated, connect_producer, discard
from konverse.bridge.kafka.log_reader import LogReader, ends_around
from konverse.bridge.kafka.offsets import log_ends
from konverse.bridge.kafka.open_transactions import check_readable
from konverse.bridge.kafka.topic_watch import WATCH_EVERY_S
from konverse.bridge.kafka.topics import JOURNAL_CONFIG, Topics
from konverse.bridge.runtime.log_throttle import LogThrottle
from konverse.bridge.runtime.threads import EXPECTED_ERRORS
from konverse.schemas.counting import counted
from konverse.schemas.errors import KafkaUnavailable, OutcomeUnknown, TopicMismatch
from konverse.schemas.identifiers import catalog_topic

log: Final = logging.getLogger("konverse.catalog")


class CatalogLog:
    """Access of one process to the topic.

    Not thread-safe: the catalog's lock guards all calls but `check_settings` and `log_problem`.
    """

    def __init__(self, kafka: Kafka, instance: str) -> None:
        self._kafka = kafka
        self._instance = instance
        self._topic = catalog_topic(instance)
        self._topics = Topics(kafka)
        self.topic_id = b""
        """Kafka's id of the topic; empty until it is open."""
        self._reader: LogReader | None = None
        self._producer: Producer | None = None
        self._first = 0
        self._look_at = 0.0
        self._said = LogThrottle()
        self._has_grown = False

    def open(self) -> None:
        """Find the topic or create it. Raises TopicMismatch when it was deleted while topics of its queues remain."""
        self._open()

    def added(self, position: int) -> Iterator[tuple[list[Message], int]]:
        """Chunks of records from `position` on, each with the position after it.

        Raises TopicMismatch when the topic was deleted, created again or truncated.
        """
        reader = self._open()
        try:
            identifier = self._topics.topic_id(self._topic)
        except TopicMismatch:
            raise self._lost("was deleted") from None
        if identifier != self.topic_id:
            raise self._lost("was deleted and created again")
        self._first, end = ends_around(reader, self._topic, 0, position)
        if end < position:
            raise self._lost(f"ends at {end} although it was read to {position}")
        try:
            yield from reader.read(self._topic, 0, position, end)
        except LogTruncated:
            raise self._lost(f"does not hold offset {position} any more") from None

    def all(self) -> Iterator[list[Message]]:
        """Chunks of all records that the topic still holds."""
        reader = self._open()
        first, end = reader.ends(self._topic, 0)
        with suppress(LogTruncated):
            yield from (messages for messages, _ in reader.read(self._topic, 0, first, end))

    def append(self, record: bytes, what: str) -> int:
        """Append a record and return its offset. Raises TopicMismatch, KafkaUnavailable, OutcomeUnknown.

        `what` names the change in errors.
        """
        if self._producer is None:
            self._open()  # the topic exists
            self._producer = self._kafka.journal_producer()
            connect_producer(self._producer, self._topic)
        within_s = self._kafka.settings.append_timeout_s
        try:
            (answer,) = append(self._kafka, self._producer, self._topic, [TopicRecord(record)], within_s)
        except KafkaUnavailable:
            self._discard_producer()
            raise
        if isinstance(answer, Message):
            return answer.offset() or 0
        self._discard_producer()
        if answer is not None:
            self._check()
        said = "Kafka gave no answer" if answer is None else f"Kafka answered {answer}"
        raise OutcomeUnknown(
            f"whether {what} was written is unknown: {said}. Check whether it is there; if not, repeat it"
        )

    def check_readable(self, what: str) -> None:
        """Raise KafkaUnavailable while an open transaction holds up the topic; `what` names the change in the error."""
        try:
            check_readable(self._kafka, self._topic)
        except KafkaUnavailable as error:
            raise KafkaUnavailable(f"{what} was not made: {error}") from None

    def check_settings(self) -> None:
        """Check the topic's settings at most every WATCH_EVERY_S, and log what is wrong."""
        now = time.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + WATCH_EVERY_S
        try:
            self._check()
            if self._first:
                raise self._lost(
                    f"lacks {counted(self._first, 'offset')} at its beginning, so a process that starts now cannot "
                    "read it"
                )
        except TopicMismatch as error:
            self.log_problem(error)
        except EXPECTED_ERRORS as error:
            log.debug("the settings of the catalog topic %s cannot be checked: %s", self._topic, error)

    def log_problem(self, problem: TopicMismatch) -> None:
        """Log what is wrong with the topic, at most every 30 s."""
        if self._said.due(str(problem)):
            log.error("%s", problem)

    def close(self) -> None:
        """Close the clients."""
        self._discard_producer()
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _open(self) -> LogReader:
        if self._reader is None:
            journals = self._topics.journals_without(self._topic, self._instance)
            left = [name for name in journals if self._was_used(name)]  # an administrator may have made others
            if left:
                raise self._lost(f"does not exist although topics of its queues do, such as {left[0]}: it was deleted")
            self._topics.ensure(self._topic, 1, JOURNAL_CONFIG, may_grow=True)
            self.topic_id = self._topics.topic_id(self._topic)
            self._reader = LogReader(self._kafka)
        return self._reader

    def _was_used(self, journal: str) -> bool:
        places = [TopicPartition(journal, number) for number in range(self._topics.partitions(journal) or 0)]
        return any(log_ends(self._kafka, places, "DESCRIBE").values())

    def _check(self) -> None:
        """Raise TopicMismatch for a setting that would lose the catalog. Warn once of extra partitions."""
        self._topics.check(self._topic, 1, JOURNAL_CONFIG, may_grow=True)
        found = self._topics.partitions(self._topic) or 1
        if found > 1 and not self._has_grown:
            self._has_grown = True
            log.warning(
                "the catalog topic %s has %d partitions; konverse uses the first one alone and ignores the others. "
                "Kafka cannot remove partitions",
                self._topic,
                found,
            )

    def _discard_producer(self) -> None:
        if self._producer is not None:
            discard(self._producer)
            self._producer = None

    def _lost(self, what: str) -> TopicMismatch:
        prefix = self._topic.removesuffix("catalog")
        return TopicMismatch(
            f"topic {self._topic}, which holds the catalog, {what}. Restore it from a backup, with each record at its "
            "offset. Or give up all data in the queues of the instance: stop its programs and delete its topics: "
            f"kafka-topics --delete --topic '{prefix.replace('.', chr(92) + '.')}.*'"
        )
