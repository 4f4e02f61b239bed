"""Kafka's time, on which all ages and time limits are based: this machine's clock may be days off.

To learn it, a process appends an OPEN record to a topic that holds only such records. The acknowledgement contains the
broker's time; the record itself is never read. The same time is in the writer ids of sessions (protocol.md section 5).
"""

from __future__ import annotations

import secrets
from typing import Final

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Message

from konverse.bridge.runtime.clock import now_ms
from konverse.schemas.errors import KafkaUnavailable, TopicMismatch
from konverse.schemas.identifiers import Role, open_topic, session_writer
from konverse.schemas.wire.envelope import HEADER, encode_envelope
from konverse.schemas.wire.records import NO_SEQUENCE, Envelope, Kind, Suffix

from .appends import TopicRecord, append
from .clients import Kafka
from .topic_faults import alter_command
from .topics import Topics

OPEN_CONFIG: Final = {
    "cleanup.policy": "delete",
    "retention.ms": "3600000",
    "message.timestamp.type": "LogAppendTime",
}

ASK_EVERY_MS: Final = 60_000
"""Interval of asking Kafka for its time. In between, this machine's monotonic clock advances it."""


def kafka_time_ms(kafka: Kafka) -> int:
    """The time on Kafka's clock, in milliseconds since 1970. Raises KafkaUnavailable, TopicMismatch."""
    told = kafka.told_ms
    if told is None or not 0 <= now_ms() - told[1] < ASK_EVERY_MS:
        topic = OpenTopic(kafka, Topics(kafka))
        topic.prepare()
        at_ms = now_ms()
        told = kafka.told_ms = (topic.append(kafka.settings.send_timeout_s), at_ms)
    return told[0] + now_ms() - told[1]


class OpenTopic:
    """The topic of an instance for OPEN records."""

    def __init__(self, kafka: Kafka, topics: Topics) -> None:
        self._kafka = kafka
        self._topics = topics
        self.name = open_topic(kafka.settings.instance)
        self._ready = False

    def prepare(self) -> None:
        """Create the topic if it does not exist. Asks Kafka at the first call, and after a failed append."""
        if not self._ready and self._topics.partitions(self.name) is None:
            self._topics.ensure(self.name, 1, OPEN_CONFIG)
        self._ready = True

    def append(self, timeout_s: float) -> int:
        """Append OPEN. Returns Kafka's time of the append, in ms. Raises KafkaUnavailable, TopicMismatch."""
        self.prepare()
        self._ready = False  # until the acknowledgement: the topic may have been deleted
        nobody = bytes(16)
        envelope = Envelope(Kind.OPEN, 0, Role.INITIATOR, bytes(4), nobody, nobody, 0, NO_SEQUENCE, Suffix())
        producer = self._kafka.plain_producer(timeout_s)
        record = TopicRecord(None, headers={HEADER: encode_envelope(envelope)})
        (answer,) = append(self._kafka, producer, self.name, [record], timeout_s)
        if not isinstance(answer, Message):
            why = "no answer" if answer is None else answer
            raise KafkaUnavailable(
                f"no record can be written to {self.name}: {why}. Sessions and age queries need Kafka's time, "
                "which comes with the acknowledgement. Check that the broker runs and is reachable"
            )
        self._ready = True
        kind, time_ms = answer.timestamp()
        if kind != TIMESTAMP_LOG_APPEND_TIME:
            bootstrap = self._kafka.settings.bootstrap
            remedy = alter_command(bootstrap, self.name, "message.timestamp.type", "LogAppendTime")
            raise TopicMismatch(
                f"records of topic {self.name} have senders' timestamps; konverse needs the broker's. Change it with: "
                f"{remedy}"
            )
        return int(time_ms)


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
