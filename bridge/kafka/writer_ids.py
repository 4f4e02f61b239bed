"""Makes writer ids for sessions. The time in an id is the broker's, not this machine's (protocol.md section 5)."""

from __future__ import annotations

import secrets

from konverse.bridge.runtime.clock import now_ms
from konverse.schemas.identifiers import session_writer

from .clients import Kafka
from .clock import OpenTopic
from .topics import Topics


class WriterIds:
    """Makes ids for the sessions of one instance."""

    def __init__(self, kafka: Kafka, topics: Topics) -> None:
        self._kafka = kafka
        self._open = OpenTopic(kafka, topics)
        self.topic = self._open.name

    def prepare(self) -> None:
        """Create the topic that provides Kafka's time, if it does not exist."""
        self._open.prepare()

    def new(self, timeout_s: float | None = None) -> tuple[bytes, int]:
        """A new id, and the time (`now_ms`) just before Kafka was asked for it. Raises KafkaUnavailable, TopicMismatch.

        Kafka has to answer within `timeout_s` (default: `send_timeout_s`).
        """
        self.prepare()
        opened_ms = now_ms()
        timeout_s = self._kafka.settings.send_timeout_s if timeout_s is None else timeout_s
        return session_writer(self._open.append(timeout_s), secrets.randbits(74)), opened_ms
