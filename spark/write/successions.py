"""Successors of conversations that have ended while their key is still written to (docs/spark.md, rows that come back).

A write is not notified when a target ends a conversation: its rows come back. A driver that sees such rows appends
their conversations to a topic of the instance. The plan of every later write reads this topic, and gives a key the
first conversation in its line of successors that the topic does not name. Entries are never removed, so no key returns
to an earlier conversation, whichever process writes. An entry that several drivers append has the same effect as one.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from functools import partial
from itertools import islice
from typing import Final
from uuid import UUID, uuid5

from confluent_kafka import KafkaException

from konverse.bridge.kafka.clients import Kafka, LogTruncated
from konverse.bridge.kafka.log_reader import LogReader
from konverse.bridge.kafka.topics import DATA_CONFIG, Topics
from konverse.schemas.errors import KafkaUnavailable
from konverse.schemas.identifiers import Address, succession_topic
from konverse.schemas.limits import SUCCESSION_ENTRIES_MAX

_SCOPES: Final = UUID("4a0f4bd2-6a53-5b1f-8f2e-0c2f8a5b7e36")
_SCOPE_BYTES: Final = 16


class Successions:
    """Successions among the conversations that have their home in one queue."""

    def __init__(self, kafka: Kafka, instance: str, home: Address) -> None:
        """`home` is any partition of the queue. A queue that was created again counts as another one."""
        self._kafka = kafka
        self._topic = succession_topic(instance)
        self._scope = uuid5(_SCOPES, f"{home.topic}\0{home.tag.hex()}").bytes

    def over(self) -> frozenset[bytes]:
        """Conversations that have a successor. Raises KafkaUnavailable."""
        if Topics(self._kafka).partitions(self._topic) is None:
            return frozenset()
        found: dict[bytes, None] = {}
        with closing(LogReader(self._kafka)) as reader:
            try:
                for messages, _ in reader.read(self._topic, 0, *reader.ends(self._topic, 0)):
                    for key in (message.key() or b"" for message in messages):
                        if key[:_SCOPE_BYTES] == self._scope:
                            found[key[_SCOPE_BYTES:]] = None
            except LogTruncated as error:
                raise KafkaUnavailable(f"{self._topic} was truncated while it was being read; try again") from error
        return frozenset(islice(found, SUCCESSION_ENTRIES_MAX))

    def end(self, conversations: Iterable[bytes]) -> None:
        """Give these conversations successors from the next plan on.

        Raises KafkaUnavailable when Kafka may not have taken all records.
        """
        topics = Topics(self._kafka)
        if topics.partitions(self._topic) is None:
            topics.ensure(self._topic, 1, DATA_CONFIG)
        timeout_s = self._kafka.settings.append_timeout_s
        failures: list[object] = []

        def noted(error: object, _message: object) -> None:
            failures.append(error)

        try:
            producer = self._kafka.plain_producer(timeout_s)
            for conversation in conversations:
                key = self._scope + conversation
                produce = partial(producer.produce, self._topic, b"", key, 0, on_delivery=noted)
                try:
                    produce()
                except BufferError:  # options may give the client a small buffer
                    producer.flush(timeout_s + 1)
                    if any(failures):
                        break
                    produce()
            left = producer.flush(timeout_s + 1)
        except KafkaException as error:
            raise self._kafka.write_refused(self._topic, error) from None
        self._kafka.check_written(self._topic, failures)
        if left or any(failures):
            raise KafkaUnavailable(f"Kafka has not acknowledged all records to {self._topic}; check the broker")
