"""Finds partitions of a log that an open transaction of a foreign producer holds up.

Readers see a log up to its last stable offset: the first record of the oldest transaction that is still open. konverse
writes without transactions, so it never holds up a log itself.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection
from concurrent.futures import Future
from typing import Final, NamedTuple

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import ListOffsetsResultInfo, OffsetSpec

from konverse.bridge.runtime.log_throttle import LogThrottle
from konverse.schemas.errors import KafkaUnavailable

from .clients import RETRY_EVERY_S, Kafka
from .refusals import Need

log: Final = logging.getLogger("konverse.reader")

_END: Final[OffsetSpec] = OffsetSpec.latest()  # type: ignore[no-untyped-call]

LOOK_EVERY_S: Final = 10.0
"""Interval of checking for open transactions. One that is found twice in a row is logged."""


class Stalled(NamedTuple):
    """The records of a partition that cannot be read yet."""

    stable: int
    """The last stable offset: the first of these records."""
    end: int

    def describe(self, topic: str, partition: int) -> str:
        """Text for an operator: the cause, the records concerned, and the remedy."""
        return (
            f"an open transaction of a foreign producer holds up {topic}/{partition}: the records {self.stable} to "
            f"{self.end - 1} cannot be read until the transaction ends. Find the producer "
            f"(kafka-transactions.sh find-hanging --topic {topic} --partition {partition}), make it commit or abort, "
            "or abort its transaction (kafka-transactions.sh abort), and revoke its right to write to the topic"
        )


def stalled(kafka: Kafka, topic: str, partition: int) -> Stalled | None:
    """The records that an open transaction holds up in this partition; None when there are none.

    Raises KafkaUnavailable.
    """
    place = TopicPartition(topic, partition)
    try:
        # the end first: a log without open transactions is stable up to it, even if records are appended meanwhile
        end, stable = (
            _answer(kafka, place, level) for level in (IsolationLevel.READ_UNCOMMITTED, IsolationLevel.READ_COMMITTED)
        )
    except KafkaException as error:
        raise kafka.unavailable(
            f"the ends of {topic}/{partition} cannot be read", error, Need.topic("READ", topic)
        ) from None
    return Stalled(stable, end) if stable < end else None


def check_readable(kafka: Kafka, topic: str) -> None:
    """Raise KafkaUnavailable while an open transaction holds up the first partition of this topic."""
    found = stalled(kafka, topic, 0)
    if found is not None:
        raise KafkaUnavailable(found.describe(topic, 0))


def log_ends(kafka: Kafka, places: Collection[TopicPartition], operation: str = "READ") -> dict[tuple[str, int], int]:
    """Ends of these logs, by topic and partition, after the records that open transactions hold up.

    A transaction was open if a log's last stable offset, requested afterwards, is smaller than its end. `operation` is
    the right on the topic that AccessDenied names. Raises KafkaUnavailable.
    """
    ends: dict[tuple[str, int], int] = {}
    level = IsolationLevel.READ_UNCOMMITTED
    asked = _ask(kafka, [*places], level, RETRY_EVERY_S) if places else {}
    for place, first in asked.items():
        try:
            ends[place.topic, place.partition] = _answer(kafka, place, level, first)
        except KafkaException as error:
            what = f"the ends of {place.topic}/{place.partition} cannot be read"
            raise kafka.unavailable(what, error, Need.topic(operation, place.topic)) from None
    return ends


class OpenTransactions:
    """Looks for open transactions every LOOK_EVERY_S, without waiting for Kafka, and warns about them."""

    def __init__(self, kafka: Kafka, topic: str) -> None:
        self._kafka = kafka
        self._topic = topic
        self._look_at = time.monotonic() + LOOK_EVERY_S
        self._ends: dict[TopicPartition, Future[ListOffsetsResultInfo]] = {}
        self._stable: dict[TopicPartition, Future[ListOffsetsResultInfo]] = {}
        self._known: dict[int, int] = {}
        """Partition -> last stable offset at the last look, for partitions with an open transaction."""
        self._seldom = LogThrottle()

    def poll(self, partitions: Collection[int]) -> None:
        """Ask Kafka when a look is due, or process its answers. Call it often."""
        if not self._ends:
            now = time.monotonic()
            if partitions and now >= self._look_at:
                self._look_at = now + LOOK_EVERY_S
                self._ends = _ask(self._kafka, self._places(partitions), IsolationLevel.READ_UNCOMMITTED, LOOK_EVERY_S)
        elif not self._stable:
            if all(answer.done() for answer in self._ends.values()):
                places = [place.partition for place in self._ends]
                self._stable = _ask(self._kafka, self._places(places), IsolationLevel.READ_COMMITTED, LOOK_EVERY_S)
        elif all(answer.done() for answer in self._stable.values()):
            ends, stable = _offsets(self._ends), _offsets(self._stable)
            asked = {place.partition for place in self._stable}
            self._ends, self._stable = {}, {}
            answered = ends.keys() & stable.keys()
            found = {n: Stalled(stable[n], ends[n]) for n in answered if stable[n] < ends[n]}
            self._known = {n: at for n, at in self._known.items() if n in asked}  # others are read elsewhere now
            self._heard(answered, found)

    def _places(self, partitions: Collection[int]) -> list[TopicPartition]:
        return [TopicPartition(self._topic, number) for number in sorted(partitions)]

    def _heard(self, answered: set[int], found: dict[int, Stalled]) -> None:
        """Log transactions that were also found at the last look, and those that ended.

        Kafka has answered about these partitions. In another one the transaction may still be open.
        """
        for number, one in found.items():
            if self._known.get(number) == one.stable and self._seldom.due(number):
                log.warning("%s", one.describe(self._topic, number))
        for number in (self._known.keys() & answered) - found.keys():
            del self._known[number]
            if self._seldom.over(number):
                log.warning("the transaction that held up %s/%d has ended", self._topic, number)
        self._known.update((number, one.stable) for number, one in found.items())


def _answer(
    kafka: Kafka, place: TopicPartition, level: IsolationLevel, asked: Future[ListOffsetsResultInfo] | None = None
) -> int:
    return kafka.answer(lambda timeout_s: _ask(kafka, [place], level, timeout_s)[place], asked).offset


def _ask(
    kafka: Kafka, places: list[TopicPartition], level: IsolationLevel, timeout_s: float
) -> dict[TopicPartition, Future[ListOffsetsResultInfo]]:
    return kafka.admin.list_offsets(dict.fromkeys(places, _END), isolation_level=level, request_timeout=timeout_s)


def _offsets(answers: dict[TopicPartition, Future[ListOffsetsResultInfo]]) -> dict[int, int]:
    return {place.partition: answer.result().offset for place, answer in answers.items() if answer.exception() is None}
