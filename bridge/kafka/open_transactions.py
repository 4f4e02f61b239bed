"""Finds partitions that an open transaction of a foreign producer holds up.

Readers see a log up to its last stable offset: the first record of the oldest transaction that is still open. konverse
writes without transactions, so it never holds up a log itself.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection
from typing import Final, NamedTuple

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition

from konverse.bridge.runtime.log_throttle import LogThrottle
from konverse.schemas.errors import KafkaUnavailable

from .clients import Kafka
from .offsets import END, OffsetRequest, log_end
from .refusals import Need

log: Final = logging.getLogger("konverse.reader")

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
            log_end(kafka, place, level) for level in (IsolationLevel.READ_UNCOMMITTED, IsolationLevel.READ_COMMITTED)
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

        `answered`: the partitions about which Kafka has answered. In any other one the transaction may still be open.
        """
        for number, one in found.items():
            if self._known.get(number) == one.stable and self._throttle.due(number):
                log.warning("%s", one.describe(self._topic, number))
        for number in (self._known.keys() & answered) - found.keys():
            del self._known[number]
            if self._throttle.over(number):
                log.warning("the transaction that held up %s/%d has ended", self._topic, number)
        self._known.update((number, one.stable) for number, one in found.items())
