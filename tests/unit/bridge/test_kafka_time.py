"""The topic for OPEN records, whose acknowledgements tell Kafka's time."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, Message

from konverse.bridge.kafka import clock
from konverse.bridge.kafka.clients import Kafka
from konverse.bridge.kafka.clock import OpenTopic
from konverse.bridge.runtime.settings import Settings
from konverse.schemas.errors import KafkaUnavailable


class Topics:
    """Stands in for Kafka's topics: one that may be deleted."""

    exists = True
    asked = 0

    def partitions(self, _name: str) -> int | None:
        self.asked += 1
        return 1 if self.exists else None

    def ensure(self, *_: Any) -> None:
        self.exists = True


def test_an_open_topic_that_was_deleted_is_created_again(monkeypatch: pytest.MonkeyPatch) -> None:
    topics: Any = Topics()
    acknowledged = Message(topic="konverse.open", partition=0, offset=0, timestamp=(2, 1_700_000_000_000))

    def append(*_: Any) -> list[Message | KafkaError]:
        return [acknowledged if topics.exists else KafkaError(KafkaError._UNKNOWN_TOPIC)]

    monkeypatch.setattr(clock, "append", append)
    topic = OpenTopic(Kafka(Settings(kafka="kafka://127.0.0.1:1")), topics)
    for _ in range(3):
        assert topic.append(1.0) == 1_700_000_000_000
    assert topics.asked == 1, "an append that succeeds proves that the topic exists"
    topics.exists = False
    with pytest.raises(KafkaUnavailable, match="Unknown topic"):
        topic.append(1.0)
    assert topic.append(1.0) == 1_700_000_000_000
