"""Orphaned partitions: a consumer group has assigned them to a reader that is dead or hangs.

The group only suggests. If it keeps a partition assigned to a dead reader (a group coordinator that came back after a
crash may do so for ever), no other reader gets it. An owner writes to its journal at least three times in
`silence_timeout_s`, so a journal that stood still for that long has no live owner. A reader that notices claims the
partition without the group, and gives way as soon as the reader chosen by the group claims it (docs/protocol.md
section 4).
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Final

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from konverse.bridge.kafka.clients import DesertionWatch, Kafka, LogTruncated
from konverse.bridge.kafka.log_reader import LogReader
from konverse.bridge.kafka.offsets import END, OffsetRequest
from konverse.bridge.runtime.threads import EXPECTED_ERRORS
from konverse.dialog.owner.owner import Owner
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.errors import MalformedRecord
from konverse.schemas.identifiers import journal_topic
from konverse.schemas.wire.journal import Claim, Commit, decode

LOOKS: Final = 10
"""Number of checks of the journals' ends within `silence_timeout_s`."""
LOOK_EVERY_S: Final = 1.0


class Stillness:
    """Measures how long each journal has stood still, from repeated checks of its end."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._seen: dict[int, tuple[int, float]] = {}
        """Partition -> end of its journal, and the time since which it has been there."""
        self._looked_at = 0.0

    def see(self, ends: Mapping[int, int], now_s: float) -> list[int]:
        """Partitions whose journals have stood still for too long. Each is returned once, then measured anew.

        A period without checks is not measured: its cause may also have kept owners from writing.
        """
        blind = now_s - self._looked_at > 3 * self._timeout_s / LOOKS
        self._looked_at = now_s
        known = {} if blind else self._seen
        self._seen = {
            number: (end, known[number][1] if known.get(number, (None,))[0] == end else now_s)
            for number, end in ends.items()
        }
        silent = [number for number, (_, since) in self._seen.items() if now_s - since > self._timeout_s]
        for number in silent:
            del self._seen[number]
        return silent


class Orphans:
    """Finds orphaned partitions, and reads those that this reader has claimed."""

    def __init__(self, kafka: Kafka, queue: Queue) -> None:
        self._kafka = kafka
        self._queue = queue
        self.journal = journal_topic(queue.topic, queue.subscription)
        self.timeout_s = kafka.settings.silence_timeout_s
        self.every_s = self.timeout_s / LOOKS
        """Seconds between two checks of the journals' ends."""
        self._stillness = Stillness(self.timeout_s)
        self._asked: OffsetRequest | None = None
        self._asked_at = 0.0
        self._consumer: Consumer | None = None
        self.desertion = DesertionWatch(kafka)
        self.numbers: set[int] = set()
        """The partitions that this reader has claimed without the group."""
        self._failed: dict[int, bytes] = {}
        """Partition -> id of this reader's last claim that failed."""

    def find(self, ours: Collection[int]) -> list[int]:
        """Partitions, except `ours`, whose owners are dead. Does not wait for Kafka."""
        ends = self.ends(ours)
        return self.silent(ends) if ends else []

    def silent(self, ends: Mapping[int, int]) -> list[int]:
        """Partitions whose journals have stood still for too long. `ends`: partition -> present end of its journal."""
        return self._stillness.see(ends, self._asked_at)

    def ends(self, ours: Collection[int]) -> dict[int, int] | None:
        """Ends of the journals of all partitions except `ours`, every `every_s`; None while there is no answer."""
        if self._asked is None:
            others = {*range(self._queue.partitions)}.difference(ours)
            now = time.monotonic()
            if others and now - self._asked_at >= self.every_s:
                self._asked_at = now
                self._asked = OffsetRequest(self._kafka, self.journal, others, END)
            return None
        if not self._asked.done:
            return None
        asked, self._asked = self._asked, None
        return {number: end for number, end in asked.offsets().items() if number not in ours}

    def adopt(self, number: int, offset: int) -> None:
        """Read the data of a claimed partition from `offset`. Raises KafkaException."""
        if self._consumer is None:
            self._consumer = self._kafka.consumer()
        place = [TopicPartition(self._queue.topic, number, offset)]
        self.numbers.add(number)  # first: an interrupted call is repeated for these numbers
        self._consumer.incremental_assign(place)
        self._consumer.resume(place)  # the client remembers a pause

    def consumer_of(self, number: int) -> Consumer | None:
        """The consumer that reads an orphaned partition; None for other partitions."""
        return self._consumer if number in self.numbers else None

    def failed(self, number: int, owner: Owner | None) -> None:
        """Note a failed claim of `owner`, which does not lead although the claim may be in the journal."""
        if owner is not None:
            self._failed[number] = owner.claim_id

    def drop(self, number: int) -> None:
        """Stop reading a partition."""
        if number in self.numbers:
            self.numbers.discard(number)
            assert self._consumer is not None
            with suppress(KafkaException):  # the partition was not assigned
                self._consumer.incremental_unassign([TopicPartition(self._queue.topic, number)])

    def fetch(self, records: int) -> list[Message]:
        """New data records of the orphaned partitions."""
        found = self._consumer.consume(records, 0) if self._consumer is not None and self.numbers else []
        self.desertion.brought(found)
        return found

    def is_deserted(self) -> bool:
        """Whether the consumer was found to have lost all brokers. Does not wait for Kafka."""
        return self._consumer is not None and self.desertion.finds(self._consumer, self._queue.topic)

    def close(self) -> Consumer | None:
        """Stop reading. Returns the consumer, for the caller to close; the next `adopt` makes another one."""
        self.numbers.clear()
        consumer, self._consumer = self._consumer, None
        return consumer


class UnownedPartitions(Orphans):
    """Finds partitions without an owner: their journals stood still for too long, or end with a release.

    A failed claim of this reader does not count as an owner either: Kafka may have answered too late although the claim
    is in the journal.
    """

    def __init__(self, kafka: Kafka, queue: Queue) -> None:
        super().__init__(kafka, queue)
        self.every_s = min(LOOK_EVERY_S, self.every_s)
        self._reader: LogReader | None = None
        self._before: dict[int, int] = {}

    def find(self, ours: Collection[int]) -> list[int]:
        """Partitions, except `ours`, without an owner."""
        ends = self.ends(ours)
        if ends is None:
            return []
        still = [number for number, end in ends.items() if self._before.get(number) == end]
        self._before = ends
        silent = self.silent(ends)
        return silent + [
            number for number in still if number not in silent and self._was_released(number, ends[number])
        ]

    def _was_released(self, number: int, end: int) -> bool:
        """Whether the journal's last record is a release or a failed claim of this reader, or the journal is empty."""
        if self._reader is None:
            self._reader = LogReader(self._kafka)
        last = b""
        try:
            for messages, _ in self._reader.read(self.journal, number, max(0, end - 1), end):
                last = messages[-1].value() or b"" if messages else last
            record = decode(last) if end else None
        except (*EXPECTED_ERRORS, LogTruncated, MalformedRecord):
            return False
        if isinstance(record, Claim):
            return record.owner == self._failed.get(number)
        return record is None or (isinstance(record, Commit) and record.release)

    def close(self) -> Consumer | None:
        """Stop reading."""
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()
        return super().close()
