"""Appends to the journals of a queue: one producer takes the records, and `poll` returns their outcomes."""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from functools import partial
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from konverse.bridge.kafka.clients import Headers, Kafka, NoProducer, discard
from konverse.bridge.kafka.refusals import Need
from konverse.bridge.runtime.log_throttle import LogThrottle
from konverse.dialog.owner.events import Append, Appended
from konverse.dialog.owner.owner import Owner
from konverse.dialog.transaction.transaction import Transaction
from konverse.schemas.counting import counted

log: Final = logging.getLogger("konverse.journal")

REPORT_S: Final = 5.0
"""The client reports a record that timed out within this time: it looks for such records once a second."""


class _AppendFlight:
    """An append in flight; a large commit has several records."""

    __slots__ = ("last", "owner", "since", "together", "waiting")

    def __init__(self, owner: Owner, records: int) -> None:
        self.owner = owner
        self.waiting = records
        self.since = time.perf_counter()
        self.last = (-1, 0)
        """Offset and timestamp of the acknowledged record with the highest offset."""
        self.together = True


class JournalAppender:
    """One producer for the journals of all partitions of a queue."""

    def __init__(self, kafka: Kafka, topic: str) -> None:
        self._outcomes: deque[tuple[Owner, Appended]] = deque()
        self._flights: list[_AppendFlight] = []
        """Appends whose outcome is not known yet."""
        self._kafka = kafka
        self._topic = topic
        self._failures = LogThrottle()
        self._overtaken: list[Transaction] = []
        """The owner's list of overtaken transactions that was logged last."""
        self._producer: Producer = kafka.journal_producer()
        self._reported_within_s = kafka.settings.append_timeout_s + REPORT_S
        self._timed_out = False
        """Whether the last record that was reported timed out: the client may have lost all brokers for good."""
        self.headers: Headers | None = None
        """Headers of each record."""
        self._closing = False
        """Whether the appends in flight are given up, which is no failure."""

    def append(self, owner: Owner, effect: Append) -> None:
        """Hand the records to the producer. It is replaced first if its last record timed out and none is in flight."""
        if self._timed_out and not self._flights:
            self._replace_producer()
        self._tell_of_overtaken(owner)
        flight = _AppendFlight(owner, len(effect.records))
        self._flights.append(flight)
        report, number = partial(self._reported, flight), owner.identity.partition
        try:
            for record in effect.records:
                self._producer.produce(self._topic, record, None, number, report, None, 0, self.headers)
        except (BufferError, KafkaException) as error:
            self._unknown(flight)
            self._replace_failed(error)

    def _tell_of_overtaken(self, owner: Owner) -> None:
        """Log each list of overtaken transactions once: an owner makes a new list with each merge, not each append."""
        overtaken = owner.staging.overtaken
        if overtaken and overtaken is not self._overtaken:
            self._overtaken = overtaken
            log.info(
                "%s of %s had no effect: a session had ended the conversations before the commit",
                counted(len(overtaken), "transaction"),
                owner.fold.head.where,
            )

    def poll(self, wait_s: float) -> deque[tuple[Owner, Appended]]:
        """Outcomes of appends since the last call, after at most `wait_s` seconds. The caller empties the deque.

        The client drops a report whose callback is interrupted, as by Ctrl-C, and an interrupted `append` hands over
        only some records. So the outcome of an append is unknown when it still waits although the producer has run
        empty, or after the time in which every record is reported.
        """
        try:
            self._producer.poll(wait_s)
        except KafkaException as error:
            self._replace_failed(error)
        if self._flights:
            before = math.inf if len(self._producer) == 0 else time.perf_counter() - self._reported_within_s
            for flight in [flight for flight in self._flights if flight.since < before]:
                self._unknown(flight)
        return self._outcomes

    def close(self) -> None:
        """Discard the producer. Appends without an answer have an unknown outcome."""
        self._closing = True
        discard(self._producer)
        self._producer = NoProducer()

    def _replace_failed(self, error: Exception) -> None:
        """Replace a failed producer. Records that it had not written yet have an unknown outcome."""
        if self._failures.due("replaced"):
            log.warning("the producer of %s failed and is being replaced: %s", self._topic, self._words(error))
        self._replace_producer()

    def _replace_producer(self) -> None:
        discard(self._producer)
        self._producer = self._kafka.journal_producer()
        self._timed_out = False

    def _reported(self, flight: _AppendFlight, error: Any, message: Message) -> None:
        if flight not in self._flights:
            return
        self._timed_out = error is not None and error.code() == KafkaError._MSG_TIMED_OUT  # noqa: SLF001
        if error is not None:
            if not self._closing and self._failures.due(error.code()):
                log.warning("an append to %s has an unknown outcome: %s", self._topic, self._words(error))
            self._unknown(flight)
            return
        offset = message.offset() or 0
        flight.together = flight.together and flight.last[0] in (-1, offset - 1)
        flight.last = max(flight.last, (offset, message.timestamp()[1]))
        flight.waiting -= 1
        if not flight.waiting:
            flight.owner.counters.commit_waits_ms.append(1e3 * (time.perf_counter() - flight.since))
            self._outcome(flight, Appended(*flight.last, flight.together))

    def _words(self, error: object) -> str:
        return self._kafka.words(error, Need.topic("WRITE", self._topic))

    def _unknown(self, flight: _AppendFlight) -> None:
        """Report an unknown outcome, once: later reports on records of the same append are ignored."""
        self._outcome(flight, Appended(None))

    def _outcome(self, flight: _AppendFlight, outcome: Appended) -> None:
        self._outcomes.append((flight.owner, outcome))
        self._flights.remove(flight)
