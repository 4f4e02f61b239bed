"""Hands the records of one execution of a task to Kafka, and checks that all of them are in their logs.

Counting acknowledgements is not enough: a client was seen to lose a record in the middle, while Kafka acknowledged the
later ones. So each record must have an offset, and the offsets of a partition must rise in the order in which its
records were handed over.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from konverse.bridge.kafka.refusals import Need, denied
from konverse.schemas.counting import counted
from konverse.schemas.errors import BodyTooLarge, InvalidSettings, KafkaUnavailable, KonverseError
from konverse.schemas.identifiers import Address
from konverse.schemas.wire.envelope import HEADER
from konverse.spark.connection.clients import KAFKAS_MAX

from .rows import Records
from .settings import WriteSettings

log: Final = logging.getLogger("konverse.spark")

_POLL_EVERY: Final = 1_000
"""Records between two polls for acknowledgements."""

_LATE_S: Final = 5.0
"""Added to the client's own time-out, in case the client reports nothing at all."""


class _KeptProducers(threading.local):
    """The producers of a thread. As one thread polls a producer, acknowledgements come in the order of offsets."""

    def __init__(self) -> None:
        self.producers: dict[tuple[Any, ...], Producer] = {}
        """By process id, cluster and client settings: a forked process inherits producers that it cannot use."""


_KEPT: Final = _KeptProducers()


class _Acknowledgements:
    """Takes the acknowledgements of the records for one partition."""

    __slots__ = ("_last", "_place", "_settings", "acknowledged", "failure")

    def __init__(self, place: Address, settings: WriteSettings) -> None:
        self._place = place
        self._settings = settings
        self._last = -1
        self.acknowledged = 0
        self.failure: KonverseError | None = None

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        """Take the report on one record. Called for every record, so it does as little as possible."""
        offset = message.offset()
        if error is None and offset is not None and offset > self._last:
            self._last = offset
            self.acknowledged += 1
        elif self.failure is None:
            self.failure = self._why(error, offset)

    def _why(self, error: KafkaError | None, offset: int | None) -> KonverseError:
        place = self._place
        if error is not None:
            return _failure(error, place.topic, self._settings)
        return KafkaUnavailable(
            f"Kafka acknowledged a row of {place.topic}/{place.partition} at offset {offset} after one at "
            f"{self._last}: it is not certain that all rows are there. Nothing of this batch is received"
        )


class Delivery:
    """The records of one execution. Not thread-safe."""

    def __init__(self, settings: WriteSettings) -> None:
        self._settings = settings
        self._key = (os.getpid(), settings.bootstrap, settings.delivery_timeout_s, *sorted(settings.client.items()))
        kept = _KEPT.producers.get(self._key)
        self._producer = _made(settings) if kept is None else kept  # an idle producer has length 0, so it is false
        if self._key not in _KEPT.producers and len(_KEPT.producers) >= KAFKAS_MAX:
            del _KEPT.producers[next(iter(_KEPT.producers))]
        _KEPT.producers[self._key] = self._producer
        self._heard: dict[Address, _Acknowledgements] = {}
        self.handed = 0

    @property
    def acknowledged(self) -> int:
        """Number of records that Kafka has acknowledged."""
        return sum(heard.acknowledged for heard in self._heard.values())

    def heard(self, address: Address) -> _Acknowledgements:
        """The callback for reports on the records for a partition."""
        found = self._heard.get(address)
        if found is None:
            found = self._heard[address] = _Acknowledgements(address, self._settings)
        return found

    def hand(self, records: Records) -> None:
        """Hand over records for one partition. Raises errors of earlier records, too."""
        address, envelopes, keys, bodies, others = records
        topic, partition, heard = address.topic, address.partition, self.heard(address)
        produce = self._producer.produce
        for start in range(0, len(envelopes), _POLL_EVERY):
            part = slice(start, start + _POLL_EVERY)
            headers: Any = {}
            if others is None:
                rows: Any = zip(envelopes[part], keys[part], bodies[part], strict=True)
                for envelope, key, body in rows:
                    headers[HEADER] = envelope
                    try:
                        produce(topic, body, key, partition, heard, None, 0, headers)
                    except (BufferError, KafkaException) as error:
                        self._hand_again(address, body, key, headers, error)
            else:
                rows = zip(envelopes[part], keys[part], bodies[part], others[part], strict=True)
                for envelope, key, body, more in rows:
                    headers = [(HEADER, envelope), *more]
                    try:
                        produce(topic, body, key, partition, heard, None, 0, headers)
                    except (BufferError, KafkaException) as error:
                        self._hand_again(address, body, key, headers, error)
            self.handed += len(envelopes[part])
            self._poll(0)
            self._check()

    def _hand_again(
        self, address: Address, body: bytes | None, key: bytes, headers: Any, error: BufferError | KafkaException
    ) -> None:
        """Hand over a record that the client did not take: wait while its buffer is full, raise if it refuses."""
        deadline = time.monotonic() + self._settings.delivery_timeout_s + _LATE_S
        heard = self.heard(address)
        while True:
            if isinstance(error, KafkaException):
                self._fail(_failure(error.args[0], address.topic, self._settings))
            if time.monotonic() > deadline:
                self._fail(KafkaUnavailable(f"no record can be written to {address.topic}; check that Kafka runs"))
            self._poll(0.05)
            self._check()
            try:
                self._producer.produce(address.topic, body, key, address.partition, heard, None, 0, headers)
                return
            except (BufferError, KafkaException) as again:
                error = again

    def finish(self) -> int:
        """Wait until all records are acknowledged, and return their number.

        Raises KafkaUnavailable when a record is not acknowledged in time, or out of order.
        """
        deadline = time.monotonic() + self._settings.delivery_timeout_s + _LATE_S
        while self.acknowledged < self.handed:
            self._check()
            if time.monotonic() > deadline:
                self._fail(
                    KafkaUnavailable(
                        f"Kafka has not acknowledged {counted(self.handed - self.acknowledged, 'row')} within "
                        f"{self._settings.delivery_timeout_s} s. Nothing of this batch is received; check that Kafka "
                        "runs, or give a longer 'deliveryTimeout'"
                    )
                )
            self._poll(0.05)
        self._check()
        return self.acknowledged

    def _poll(self, wait_s: float) -> None:
        try:
            self._producer.poll(wait_s)
        except KafkaException as error:  # fatal for the producer, whichever record caused it
            self._fail(_failure(error.args[0], next(iter(self._heard)).topic, self._settings))

    def _check(self) -> None:
        for heard in self._heard.values():
            if heard.failure is not None:
                self._fail(heard.failure)

    def _fail(self, error: KonverseError) -> None:
        """Drop the producer with its unsent records: rows of an execution that does not report are void."""
        _KEPT.producers.pop(self._key, None)
        self._producer.purge()
        raise error


def _made(settings: WriteSettings) -> Producer:
    try:
        return Producer(
            {
                "log_level": 2,
                "linger.ms": 5,
                "queue.buffering.max.messages": 100_000,
                "queue.buffering.max.kbytes": 131_072,
                **settings.client,
                "bootstrap.servers": settings.bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "message.timeout.ms": round(settings.delivery_timeout_s * 1000),
            }
        )
    except (KafkaException, TypeError, ValueError) as error:
        cause = error.args[0] if error.args else error
        words = cause.str() if isinstance(cause, KafkaError) else str(cause)
        raise InvalidSettings(f"the Kafka client refuses its settings: {words}; check the kafka.* options") from error


def _failure(error: KafkaError, topic: str, settings: WriteSettings) -> KonverseError:
    if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
        return BodyTooLarge(f"a row for {topic} is too large with its headers: {error.str()}; shorten them")
    refused = denied(f"a row for {topic} was not written", error, Need.topic("WRITE", topic), settings.client)
    if refused is not None:
        return refused
    return KafkaUnavailable(
        f"a row for {topic} was not written within {settings.delivery_timeout_s} s: {error.str()} ({error.name()}). "
        "Nothing of this batch is received; check that Kafka runs, or give a longer 'deliveryTimeout'"
    )
