"""New writer ids for sessions: their time is the broker's, not this machine's (protocol.md section 5, rule 1).

OPEN is a record to a topic whose only use is the time in its acknowledgement; nobody reads it.
"""

from __future__ import annotations

import secrets
from typing import Any, Final

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaException

from konverse.schemas.envelope import HEADER, encode_envelope
from konverse.schemas.errors import KafkaUnavailable, TopicMismatch
from konverse.schemas.identifiers import open_topic, session_writer
from konverse.schemas.records import NO_SEQUENCE, Envelope, Kind, Role, Suffix

from .clock import now_ms
from .kafka import Kafka, unavailable
from .topics import Topics

OPEN_CONFIG: Final = {
    "cleanup.policy": "delete",
    "retention.ms": "3600000",
    "message.timestamp.type": "LogAppendTime",
}


class WriterIds:
    """Makes ids for the sessions of one instance."""

    def __init__(self, kafka: Kafka, topics: Topics, instance: str) -> None:
        self._kafka = kafka
        self._topics = topics
        self.topic = open_topic(instance)
        self._ready = False

    def prepare(self) -> None:
        """Create the topic, if it does not exist."""
        if not self._ready and self._topics.partitions(self.topic) is None:
            self._topics.ensure(self.topic, 1, OPEN_CONFIG)
        self._ready = True

    def new(self, timeout_s: float | None = None) -> tuple[bytes, int]:
        """A new id, and what our clock showed before it was asked for. Raises KafkaUnavailable, TopicMismatch.

        Kafka has so long for its answer (without `timeout_s`: `send_timeout_s`).
        """
        self.prepare()
        opened_ms = now_ms()
        timeout_s = self._kafka.settings.send_timeout_s if timeout_s is None else timeout_s
        return session_writer(self._append(timeout_s), secrets.randbits(74)), opened_ms

    def time_ms(self) -> int:
        """What Kafka's clock shows now. Raises as `new`."""
        self.prepare()
        return self._append(self._kafka.settings.send_timeout_s)

    def _append(self, timeout_s: float) -> int:
        """The time at which Kafka appended OPEN."""
        answers: list[tuple[Any, Any]] = []
        nobody = bytes(16)
        envelope = Envelope(Kind.OPEN, 0, Role.INITIATOR, bytes(4), nobody, nobody, 0, NO_SEQUENCE, Suffix())
        producer = self._kafka.plain_producer(timeout_s)
        try:
            producer.produce(
                self.topic,
                None,
                partition=0,
                headers={HEADER: encode_envelope(envelope)},
                on_delivery=lambda error, message: answers.append((error, message)),
            )
            producer.flush(timeout_s + 1)
        except KafkaException as error:
            raise unavailable(f"{self.topic} takes no record", error) from None
        failure, message = answers[0] if answers else ("no answer", None)
        if failure is not None or message is None:
            raise KafkaUnavailable(f"{self.topic} takes no record: {failure}. A session needs one to begin")
        kind, time_ms = message.timestamp()
        if kind != TIMESTAMP_LOG_APPEND_TIME:
            raise TopicMismatch(
                f"topic {self.topic} has the senders' time; konverse needs the broker's. Change it with: "
                f"kafka-configs --alter --topic {self.topic} --add-config message.timestamp.type=LogAppendTime"
            )
        return int(time_ms)
