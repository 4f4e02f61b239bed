"""Asks where logs begin and end, and finds partitions that an open transaction of a foreign producer holds up.

Readers see a log up to its last stable offset: the first record of the oldest transaction that is still open. konverse
writes without transactions, so it never holds up a log itself.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable
from concurrent.futures import Future
from typing import Any, Final, NamedTuple

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import ListOffsetsResultInfo, OffsetSpec

from konverse.bridge.runtime.log_throttle import LogThrottle
from konverse.schemas.errors import KafkaUnavailable

from .clients import RETRY_EVERY_S, Kafka
from .refusals import Need

log: Final = logging.getLogger("konverse.reader")

BEGINNING: Final[OffsetSpec] = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
END: Final[OffsetSpec] = OffsetSpec.latest()  # type: ignore[no-untyped-call]

LOOK_EVERY_S: Final = 10.0
"""Interval of checking for open transactions. One that is found twice in a row is logged."""


class OffsetRequest:
    """A pending request for one offset of each of some partitions of a topic."""

    def __init__(self, kafka: Kafka, topic: str, partitions: Iterable[int], which: OffsetSpec, **options: Any) -> None:
        """`options` are those of `AdminClient.list_offsets`."""
        self.partitions = sorted(partitions)
        places = [TopicPartition(topic, number) for number in self.partitions]
        self._answers = kafka.admin.list_offsets(dict.fromkeys(places, which), **options)

    @property
    def done(self) -> bool:
        """Whether every answer has arrived or timed out."""
        return all(answer.done() for answer in self._answers.values())

    def offsets(self) -> dict[int, int]:
        """Partition -> offset, without the partitions that Kafka answered with an error. Call it when `done`."""
        return {
            place.partition: answer.result().offset
            for place, answer in self._answers.items()
            if answer.exception() is None
        }


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
        self._ends: OffsetRequest | None = None
        self._stable: OffsetRequest | None = None
        self._known: dict[int, int] = {}
        """Partition -> last stable offset at the last look, for partitions with an open transaction."""
        self._throttle = LogThrottle()

    def poll(self, partitions: Collection[int]) -> None:
        """Ask Kafka when a look is due, or process its answers. Call it often."""
        if self._ends is None:
            now = time.monotonic()
            if partitions and now >= self._look_at:
                self._look_at = now + LOOK_EVERY_S
                self._ends = self._ask_ends(partitions, IsolationLevel.READ_UNCOMMITTED)
        elif self._stable is None:
            if self._ends.done:
                self._stable = self._ask_ends(self._ends.partitions, IsolationLevel.READ_COMMITTED)
        elif self._stable.done:
            ends, stable, asked = self._ends.offsets(), self._stable.offsets(), self._stable.partitions
            self._ends = self._stable = None
            answered = ends.keys() & stable.keys()
            found = {n: Stalled(stable[n], ends[n]) for n in answered if stable[n] < ends[n]}
            self._known = {n: at for n, at in self._known.items() if n in asked}  # others are read elsewhere now
            self._heard(answered, found)

    def _ask_ends(self, partitions: Collection[int], level: IsolationLevel) -> OffsetRequest:
        return OffsetRequest(
            self._kafka, self._topic, partitions, END, isolation_level=level, request_timeout=LOOK_EVERY_S
        )

    def _heard(self, answered: set[int], found: dict[int, Stalled]) -> None:
        """Log transactions that were also found at the last look, and those that ended.

        Kafka has answered about these partitions. In another one the transaction may still be open.
        """
        for number, one in found.items():
            if self._known.get(number) == one.stable and self._throttle.due(number):
                log.warning("%s", one.describe(self._topic, number))
        for number in (self._known.keys() & answered) - found.keys():
            del self._known[number]
            if self._throttle.over(number):
                log.warning("the transaction that held up %s/%d has ended", self._topic, number)
        self._known.update((number, one.stable) for number, one in found.items())


def _answer(
    kafka: Kafka, place: TopicPartition, level: IsolationLevel, asked: Future[ListOffsetsResultInfo] | None = None
) -> int:
    return kafka.answer(lambda timeout_s: _ask(kafka, [place], level, timeout_s)[place], asked).offset


def _ask(
    kafka: Kafka, places: list[TopicPartition], level: IsolationLevel, timeout_s: float
) -> dict[TopicPartition, Future[ListOffsetsResultInfo]]:
    return kafka.admin.list_offsets(dict.fromkeys(places, END), isolation_level=level, request_timeout=timeout_s)
