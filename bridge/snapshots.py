"""Snapshots of the partitions of a queue, into their topic: handed over, and their fate kept until somebody asks."""

from __future__ import annotations

import logging
from collections import deque
from functools import partial
from typing import Any, Final

from confluent_kafka import KafkaException, Message, Producer

from konverse.dialog.events import AppendSnapshot, SnapshotWritten
from konverse.dialog.owner import Owner

from .kafka import Kafka, discard
from .refusals import Need

log: Final = logging.getLogger("konverse.snapshots")

TIMEOUT_S: Final = 120.0
"""A snapshot may have a hundred megabytes, and the network other things to do."""


class _Flight:
    """A snapshot under way."""

    __slots__ = ("complete", "failed", "first", "waiting")

    def __init__(self) -> None:
        self.waiting = 0
        self.first: int | None = None
        self.complete = False
        self.failed = False


class SnapshotTopic:
    """Writes the snapshots of all partitions of a queue. The producer is made with the first one."""

    def __init__(self, kafka: Kafka, topic: str) -> None:
        self.topic = topic
        self._kafka = kafka
        self._producer: Producer | None = None
        self._broken = False
        self._flights: dict[Owner, _Flight] = {}
        self._outcomes: deque[tuple[Owner, SnapshotWritten]] = deque()

    def append(self, owner: Owner, effect: AppendSnapshot) -> None:
        """Hand records over; with the last ones the owner will be told."""
        if self._broken:  # one that failed may take nothing more, for good
            self.close()
        if self._producer is None:
            self._producer = self._kafka.journal_producer(TIMEOUT_S)
        flight = self._flights.setdefault(owner, _Flight())
        report = partial(self._reported, owner, flight)
        try:
            for record in () if flight.failed else effect.records:
                self._producer.produce(self.topic, record, None, owner.identity.partition, report)
                flight.waiting += 1
        except (BufferError, KafkaException) as error:
            self._warn("given up", error)
            flight.failed = self._broken = True
        flight.complete = effect.last
        self._look(owner, flight)

    def poll(self) -> deque[tuple[Owner, SnapshotWritten]]:
        """What became of snapshots since the last call; whoever calls empties it."""
        if self._producer is not None:
            try:
                self._producer.poll(0)
            except KafkaException as error:  # it has failed for good
                self._warn("not written", error)
                self.close()
        return self._outcomes

    def forget(self, owner: Owner) -> None:
        """Nobody asks for the owner's snapshot any more."""
        self._flights.pop(owner, None)

    def close(self) -> None:
        """Give up what is under way."""
        producer, self._producer = self._producer, None
        if producer is not None:
            discard(producer)
        self._broken = False

    def _reported(self, owner: Owner, flight: _Flight, error: Any, message: Message) -> None:
        flight.waiting -= 1
        if error is not None:
            self._warn("not written", error)
            flight.failed = self._broken = True
        else:
            offset = message.offset() or 0
            flight.first = offset if flight.first is None else min(flight.first, offset)
        self._look(owner, flight)

    def _warn(self, what: str, error: object) -> None:
        why = self._kafka.words(error, Need.topic("WRITE", self.topic))
        log.warning("a snapshot of %s is %s: %s", self.topic, what, why)

    def _look(self, owner: Owner, flight: _Flight) -> None:
        if flight.complete and not flight.waiting and self._flights.pop(owner, None) is flight:
            self._outcomes.append((owner, SnapshotWritten(None if flight.failed else flight.first)))
