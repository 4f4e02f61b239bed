"""Streams as registered readers: truncation spares what they have not read (protocol.md section 7.5)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from konverse.bridge.kafka.refusals import Need, words
from konverse.schemas.identifiers import consumer_group
from konverse.spark.connection.settings import FIXED, Settings

log: Final = logging.getLogger("konverse.spark")


NOTHING_NEEDED: Final = 1 << 62
"""In place of an offset of a log that is not read: behind all that it will ever hold."""


class Registration:
    """The offsets that a stream still needs, as those of a consumer group beside the queue's own.

    `data` is the queue's data topic where its journal is read: who says nothing of it holds all of it.
    """

    def __init__(self, settings: Settings, reader: str, data: str | None = None) -> None:
        self._topic = settings.topic
        self._data = data
        config: dict[str, Any] = {"log_level": 2, **settings.client, **FIXED}
        config["bootstrap.servers"] = settings.bootstrap
        config["group.id"] = f"{consumer_group(data or settings.topic)}.spark-{reader}"
        self._client = settings.client
        self._group = config["group.id"]
        self._consumer = Consumer(config)
        self._told: dict[int, int] = {}
        self._refused = False

    def needs(self, offsets: Mapping[int, int]) -> None:
        """From these offsets on nothing may be deleted. A refusal is said once, stops no stream, and is tried again."""
        changed = {partition: offset for partition, offset in offsets.items() if self._told.get(partition) != offset}
        if not changed:
            return
        places = [TopicPartition(self._topic, partition, offset) for partition, offset in changed.items()]
        if self._data is not None:
            places += [TopicPartition(self._data, partition, NOTHING_NEEDED) for partition in changed]
        failure = self._commit(places)
        if failure is None:
            self._told.update(changed)
        elif not self._refused:
            self._refused = True
            topic, error = failure
            log.warning(
                "%s: the stream is not registered as a reader (%s); truncation may delete what it has not read",
                self._topic,
                words(error, Need.of_member(error, topic, self._group), self._client),
            )

    def _commit(self, places: list[TopicPartition]) -> tuple[str, KafkaError] | None:
        """What was refused first: of one topic, or of all of them."""
        try:
            answers = self._consumer.commit(offsets=places, asynchronous=False)
        except KafkaException as error:
            return self._topic, error.args[0]
        return next(((answer.topic, answer.error) for answer in answers if answer.error is not None), None)

    def close(self) -> None:
        """The group stays, until Kafka forgets it for want of use."""
        self._consumer.close()
