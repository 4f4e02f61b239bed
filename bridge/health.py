"""What Kafka's clients say of the way to it: kept for whoever has to tell why something waits."""

from __future__ import annotations

import time
from typing import Final

from confluent_kafka import KafkaError

SILENT_S: Final = 2.0
"""Whoever waits longer for Kafka says so."""


class Health:
    """The latest trouble of the clients of one connection."""

    def __init__(self) -> None:
        self._trouble: tuple[str, float] | None = None

    def heard(self, error: KafkaError) -> None:
        """Librdkafka's error callback. It goes on by itself; one word of many brokers' means little."""
        if error.code() != KafkaError._ALL_BROKERS_DOWN or self._trouble is None:  # noqa: SLF001  # says less than it
            self._trouble = (error.str(), time.monotonic())

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
