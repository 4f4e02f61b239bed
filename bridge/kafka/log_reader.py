"""Reads ranges of a partition in chunks of records, and finds where its log begins and ends."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import suppress
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from konverse.schemas.errors import KafkaUnavailable

from .clients import ELECTING, FETCH_RECORDS, EndCut, Kafka
from .offsets import log_ends
from .open_transactions import stalled
from .refusals import Need

READ_WAIT_MS: Final = 10
"""A range contains only existing records. A long fetch after its end would only delay the next read."""
END_ASKED_AGAIN_MAX: Final = 4
"""How often Kafka is asked again for the end of a log that seems to be cut: an owner that halts stays halted."""
END_ASKED_EVERY_S: Final = 0.5
"""Interval of asking Kafka for the end of such a log."""
_SETTLING: Final = ELECTING | {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001  # one of the topic's partitions has no leader yet
}
"""Errors for a topic that a broker does not serve yet."""


class LogReader:
    """Reads ranges of partitions, one at a time.

    A client that failed once is not used again: after a broker hung, a client of librdkafka 2.16 may answer "unknown
    partition" for the rest of its life.
    """

    def __init__(self, kafka: Kafka, *, aborted: bool = False) -> None:
        """With `aborted`, records of aborted and open transactions are read as well."""
        self._kafka = kafka
        self._isolation = "read_uncommitted" if aborted else "read_committed"
        self._timeout_s = kafka.settings.connect_timeout_s
        self._known: set[str] = set()
        self._failed = False
        self._consumer = self._fresh()

    def _fresh(self) -> Consumer:
        return self._kafka.consumer(**{
            "enable.partition.eof": True,
            "fetch.wait.max.ms": READ_WAIT_MS,
            "isolation.level": self._isolation,
        })  # fmt: skip

    def with_aborted(self) -> LogReader:
        """A further reader of the same Kafka that also reads records of aborted and open transactions."""
        return LogReader(self._kafka, aborted=True)

    def _client(self) -> Consumer:
        if self._failed:
            self._consumer.close()
            self._consumer = self._fresh()
            self._known.clear()
            self._failed = False
        return self._consumer

    def _unavailable(self, what: str, error: KafkaException, topic: str) -> KafkaUnavailable:
        self._failed = True
        return self._kafka.unavailable(what, error, Need.topic("READ", topic))

    def ends(self, topic: str, partition: int) -> tuple[int, int]:
        """First offset and end of the log. Waits for a topic that was just created. Raises KafkaUnavailable."""
        deadline = time.monotonic() + self._timeout_s
        consumer = self._client()
        self._make_known(topic)
        while True:
            try:
                return consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=self._timeout_s)
            except KafkaException as error:
                if error.args[0].code() not in _SETTLING or time.monotonic() > deadline:
                    raise self._unavailable(f"the ends of {topic}/{partition} cannot be read", error, topic) from None
            time.sleep(0.05)

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int:
        """Offset of the first record that is not older than `timestamp_ms`; the log's end when all are older.

        Raises KafkaUnavailable.
        """
        asked = TopicPartition(topic, partition, timestamp_ms)
        try:
            (found,) = self._client().offsets_for_times([asked], timeout=self._timeout_s)
            if found.error is not None:  # its offset is that of a log whose records are all older
                raise KafkaException(found.error)
        except KafkaException as error:
            raise self._unavailable(f"offsets in {topic}/{partition} cannot be found by time", error, topic) from None
        return found.offset if found.offset >= 0 else self.ends(topic, partition)[1]

    def read(self, topic: str, partition: int, start: int, end: int) -> Generator[tuple[list[Message], int]]:
        """Chunks of the records from `start` up to but not including `end`, each with the next offset to read.

        Raises LogTruncated, EndCut, KafkaUnavailable.
        """
        if start >= end:
            return
        consumer = self._client()
        self._make_known(topic)
        consumer.assign([TopicPartition(topic, partition, start)])
        try:
            at, progress = start, time.monotonic()
            while at < end:
                message = consumer.poll(max(0.0, progress + self._timeout_s - time.monotonic()))
                before, found = at, [message, *consumer.consume(FETCH_RECORDS, 0)] if message is not None else []
                messages, at = self._usable(found, at)
                if at > before:
                    yield [m for m in messages if (m.offset() or 0) < end], min(at, end)
                    progress = time.monotonic()  # the caller may have taken long with the chunk
                elif message is None or time.monotonic() > progress + self._timeout_s:  # events are not progress
                    self._failed = True
                    ends_at = log_ends(self._kafka, [TopicPartition(topic, partition)])[topic, partition]
                    if ends_at < end:
                        text = f"the log of {topic}/{partition} ended at {end}, and ends at {ends_at} now"
                        raise EndCut(text, ends_at)
                    raise KafkaUnavailable(
                        f"no record of {topic}/{partition} could be read at offset {at} for {self._timeout_s} s, and "
                        f"its log ends at {ends_at}{_said(message)}"
                        f"{self._held_up(topic, partition, at)}"
                    )
        finally:
            consumer.unassign()

    def _held_up(self, topic: str, partition: int, at: int) -> str:
        """Error text about an open transaction that holds up this offset, with the remedy; empty without one."""
        with suppress(KafkaUnavailable):
            found = stalled(self._kafka, topic, partition)
            if found is not None and found.stable <= at:
                return f": {found.describe(topic, partition)}"
        return ""

    def _usable(self, messages: list[Message], at: int) -> tuple[list[Message], int]:
        try:
            return self._records(messages, at)
        except KafkaUnavailable:
            self._failed = True
            raise

    def _records(self, messages: list[Message], at: int) -> tuple[list[Message], int]:
        """The records without the events between them, and the next offset to read."""
        records = []
        for message in messages:
            error = message.error()
            if error is None:
                records.append(message)
                at = (message.offset() or 0) + 1
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001  # public, in spite of its name
                at = max(at, message.offset() or 0)
            else:
                self._kafka.check_event(message)
        return records, at

    def _make_known(self, topic: str) -> None:
        """Request the topic's leaders: by itself, the client looks for a new topic's leaders only once a second."""
        if topic not in self._known:
            try:
                self._consumer.list_topics(topic, self._timeout_s)
            except KafkaException as error:
                raise self._unavailable(f"the leaders of {topic} cannot be determined", error, topic) from None
            self._known.add(topic)

    def close(self) -> None:
        """Close the client."""
        self._consumer.close()


def ends_around(log: LogReader, topic: str, partition: int, offset: int) -> tuple[int, int]:
    """First offset and end of a log that should reach `offset`. Raises KafkaUnavailable.

    A shorter log is believed only after several answers: a broker that has just started may not know its end yet, and
    an answer may be out of date.
    """
    start, end = log.ends(topic, partition)
    for _ in range(END_ASKED_AGAIN_MAX):
        if offset <= end:
            break
        time.sleep(END_ASKED_EVERY_S)
        start, end = log.ends(topic, partition)
    return start, end


def _said(event: Message | None) -> str:
    error = event.error() if event is not None else None
    return f": {error.str()}" if error is not None else ""
