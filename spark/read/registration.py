"""Registers a stream as a reader, so that truncation spares its unread records (protocol.md section 7.5)."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from konverse.bridge.kafka.refusals import Need, words
from konverse.schemas.identifiers import consumer_group
from konverse.spark.connection.settings import FIXED, ConnectionSettings

log: Final = logging.getLogger("konverse.spark")


NOTHING_NEEDED: Final = 1 << 62
"""The offset for a log that the stream does not read: higher than any offset of a log."""


TELL_AGAIN_S: Final = 3_600.0


class Registration:
    """The offsets from which a stream still needs records, committed in a consumer group beside the queue's own.

    `data` is the queue's data topic if the stream reads the journal. The registration then commits an offset beyond all
    data, because a group without an offset of the data topic would hold back all of it.
    """

    def __init__(self, settings: ConnectionSettings, reader: str, data: str | None = None) -> None:
        self._topic = settings.topic
        self._data = data
        config: dict[str, Any] = {"log_level": 2, **settings.client, **FIXED}
        config["bootstrap.servers"] = settings.bootstrap
        config["group.id"] = f"{consumer_group(data or settings.topic)}.spark-{reader}"
        self._client = settings.client
        self._group = config["group.id"]
        self._consumer = Consumer(config)
        self._told: dict[int, int] = {}
        self._tell_again_at = 0.0
        """Monotonic time from which all offsets are committed once more."""
        self._refused = False

    def needs(self, offsets: Mapping[int, int]) -> None:
        """Make truncation spare all records from these offsets on.

        If Kafka refuses, the stream goes on, a warning is logged once, and the next call tries again. Offsets are also
        committed each hour although they are the same: Kafka forgets those of a group without members after a while
        (`offsets.retention.minutes`, 7 days by default).
        """
        if time.monotonic() >= self._tell_again_at:
            self._told.clear()
        changed = {partition: offset for partition, offset in offsets.items() if self._told.get(partition) != offset}
        if not changed:
            return
        places = [TopicPartition(self._topic, partition, offset) for partition, offset in changed.items()]
        if self._data is not None:
            places += [TopicPartition(self._data, partition, NOTHING_NEEDED) for partition in changed]
        failure = self._commit(places)
        if failure is None:
            if not self._told:
                self._tell_again_at = time.monotonic() + TELL_AGAIN_S
            self._told.update(changed)
        elif not self._refused:
            self._refused = True
            topic, error = failure
            log.warning(
                "%s: truncation may delete records that the stream has not read, because it could not be registered as "
                "a reader (%s); it tries again",
                self._topic,
                words(error, Need.of_member(error, topic, self._group), self._client),
            )

    def _commit(self, places: list[TopicPartition]) -> tuple[str, KafkaError] | None:
        """The topic and error of the first refusal, if any."""
        try:
            answers = self._consumer.commit(offsets=places, asynchronous=False)
        except KafkaException as error:
            return self._topic, self._reported() or error.args[0]
        return next(((answer.topic, answer.error) for answer in answers if answer.error is not None), None)

    def _reported(self) -> KafkaError | None:
        """The client's error about its group. The error of the failed commit says only that the client waited."""
        message = self._consumer.poll(0.0)
        return None if message is None else message.error()

    def close(self) -> None:
        """Close the client. The group and its offsets remain until Kafka expires them."""
        self._consumer.close()
