"""What Kafka's clients say of the way to it: kept for whoever has to tell why something waits."""

from __future__ import annotations

import time
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer

SILENT_S: Final = 2.0
"""Whoever waits longer for Kafka says so."""

_BEHIND: Final = frozenset({KafkaError._FATAL, KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})  # noqa: SLF001
"""What a producer that has failed for good answers from then on: nothing of the reason."""


class Health:
    """The latest trouble of the clients of one connection."""

    def __init__(self) -> None:
        self._trouble: tuple[str, float] | None = None
        self._fatal: KafkaError | None = None

    def heard(self, error: KafkaError) -> None:
        """Librdkafka's error callback. It goes on by itself; one word of many brokers' means little."""
        if error.code() != KafkaError._ALL_BROKERS_DOWN or self._trouble is None:  # noqa: SLF001  # says less than it
            self._trouble = (error.str(), time.monotonic())

    def died(self, error: KafkaError) -> None:
        """A producer has failed for good, and this is why."""
        self._fatal = error

    def cause(self, error: KafkaError) -> KafkaError:
        """The reason for which a producer failed, where this error says no more than that one did."""
        return self._fatal if self._fatal is not None and error.code() in _BEHIND else error

    @property
    def troubled(self) -> bool:
        """Whether there was any."""
        return self._trouble is not None

    def __str__(self) -> str:
        """The last trouble and its age."""
        if self._trouble is None:
            return "none was reported"
        text, at = self._trouble
        return f"{text}, {time.monotonic() - at:.0f} s ago"


class Telling(Producer):
    """A producer that tells the reason when it fails for good.

    Librdkafka raises the reason once, from whichever call polls first. All later calls raise "Local: Fatal error", and
    records that wait are reported as purged.
    """

    def __init__(self, health: Health, properties: dict[str, Any]) -> None:
        super().__init__(properties)
        self._health = health

    def poll(self, timeout: float = -1) -> int:
        """As the client's. Raises KafkaException."""
        try:
            return super().poll(timeout)
        except KafkaException as error:
            raise self._told(error) from None

    def flush(self, timeout: float = -1) -> int:
        """As the client's. Raises KafkaException."""
        try:
            return super().flush(timeout)
        except KafkaException as error:
            raise self._told(error) from None

    def _told(self, error: KafkaException) -> KafkaException:
        if error.args[0].fatal():
            self._health.died(error.args[0])
        return error
