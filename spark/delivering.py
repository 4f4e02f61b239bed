"""Hands the records of one execution of a task to Kafka, and knows when all of them are there.

Acknowledgements alone do not do: a client that lost a record in the middle and had the later ones acknowledged was
seen. The offsets of a partition must rise in the order in which its records were handed over, and each record must
have one.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from konverse.dialog.batch_task import Row
from konverse.schemas.envelope import HEADER
from konverse.schemas.errors import BodyTooLarge, InvalidSettings, KafkaUnavailable, KonverseError

from .write_rows import Headers
from .write_settings import WriteSettings

log: Final = logging.getLogger("konverse.spark")

_POLL_EVERY: Final = 0x3FF
"""Acknowledgements are heard once in so many records."""

_LATE_S: Final = 5.0
"""Behind the client's own time-out, for a client that says nothing at all."""


class _Kept(threading.local):
    """The producers of a thread, for as long as it lives: acknowledgements are heard in the order of their offsets."""

    def __init__(self) -> None:
        self.producers: dict[tuple[Any, ...], Producer] = {}
        """One for each process, cluster and way to reach it: a forked process inherits what it cannot use."""


_KEPT: Final = _Kept()


class Delivery:
    """The records of one execution. Not for several threads."""

    def __init__(self, settings: WriteSettings) -> None:
        self._settings = settings
        self._key = (os.getpid(), settings.bootstrap, settings.delivery_timeout_s, *sorted(settings.client.items()))
        self._producer = _KEPT.producers.get(self._key) or _made(settings)
        _KEPT.producers[self._key] = self._producer
        self._last: dict[tuple[str | None, int | None], int] = {}
        """Highest offset by partition."""
        self._failure: KonverseError | None = None
        self.handed = 0
        self.acknowledged = 0

    def hand(self, row: Row, headers: Headers) -> None:
        """One more record; the errors of those before it are raised here, too."""
        envelope, key, body = row.record
        address = row.address
        pairs: Headers = [(HEADER, envelope), *headers]
        deadline = 0.0
        while True:
            try:
                self._producer.produce(address.topic, body, key, address.partition, self._reported, headers=pairs)
                break
            except BufferError:
                deadline = deadline or time.monotonic() + self._settings.delivery_timeout_s + _LATE_S
                if time.monotonic() > deadline:
                    self._fail(KafkaUnavailable(f"Kafka takes no records for {address.topic}; check that it runs"))
                self._producer.poll(0.05)
                self._check()
            except KafkaException as error:
                self._fail(_failure(error.args[0], address.topic, self._settings))
        self.handed += 1
        if not self.handed & _POLL_EVERY:
            self._producer.poll(0)
            self._check()

    def finish(self) -> int:
        """Wait until all that was handed over is acknowledged; returns how many records that are.

        KafkaUnavailable when one is not, in time or in order.
        """
        deadline = time.monotonic() + self._settings.delivery_timeout_s + _LATE_S
        while self.acknowledged < self.handed:
            self._check()
            if time.monotonic() > deadline:
                self._fail(
                    KafkaUnavailable(
                        f"{self.handed - self.acknowledged} rows were not acknowledged within "
                        f"{self._settings.delivery_timeout_s} s. Nothing of this batch is received; check that Kafka "
                        "runs, or give a longer 'deliveryTimeout'"
                    )
                )
            self._producer.poll(0.05)
        self._check()
        return self.acknowledged

    def _reported(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failure = self._failure or _failure(error, message.topic() or "", self._settings)
            return
        place, offset = (message.topic(), message.partition()), message.offset()
        if offset is None or offset <= self._last.get(place, -1):
            self._failure = self._failure or KafkaUnavailable(
                f"Kafka acknowledged a row of {place[0]}/{place[1]} at offset {offset} behind one at "
                f"{self._last.get(place)}: it is not certain that all rows are there. Nothing of this batch is received"
            )
            return
        self._last[place] = offset
        self.acknowledged += 1

    def _check(self) -> None:
        if self._failure is not None:
            self._fail(self._failure)

    def _fail(self, error: KonverseError) -> None:
        """What this producer still has is let go with it: rows of an execution that reports nothing are void."""
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
    return KafkaUnavailable(
        f"a row for {topic} was not written within {settings.delivery_timeout_s} s: {error.str()} ({error.name()}). "
        "Nothing of this batch is received; check that Kafka runs, or give a longer 'deliveryTimeout'"
    )
