"""Streams as registered readers: truncation spares what they have not read (protocol.md section 7.5)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

from konverse.schemas.identifiers import consumer_group

from .settings import FIXED, Settings

log: Final = logging.getLogger("konverse.spark")


class Registration:
    """The offsets that a stream still needs, as those of a consumer group beside the queue's own."""

    def __init__(self, settings: Settings, reader: str) -> None:
        self._topic = settings.topic
        config: dict[str, Any] = {"log_level": 2, **settings.client, **FIXED}
        config["bootstrap.servers"] = settings.bootstrap
        config["group.id"] = f"{consumer_group(settings.topic)}.spark-{reader}"
        self._consumer = Consumer(config)
        self._told: dict[int, int] = {}
        self._refused = False

    def needs(self, offsets: Mapping[int, int]) -> None:
        """From these offsets on nothing may be deleted. A refusal is said once, stops no stream, and is tried again."""
        changed = {partition: offset for partition, offset in offsets.items() if self._told.get(partition) != offset}
        if not changed:
            return
        places = [TopicPartition(self._topic, partition, offset) for partition, offset in changed.items()]
        try:
            self._consumer.commit(offsets=places, asynchronous=False)
        except KafkaException as error:
            if not self._refused:
                self._refused = True
                log.warning(
                    "%s: the stream is not registered as a reader (%s); truncation may delete what it has not read",
                    self._topic,
                    error.args[0].str(),
                )
        else:
            self._told.update(changed)

    def close(self) -> None:
        """The group stays, until Kafka forgets it for want of use."""
        self._consumer.close()
