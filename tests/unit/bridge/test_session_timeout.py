"""Time after which Kafka gives the partitions of a dead reader to another one."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from confluent_kafka import KafkaError, KafkaException

from konverse.bridge.kafka.clients import Kafka
from konverse.bridge.kafka.topics import SESSION_TIMEOUT_S, Topics
from konverse.bridge.runtime.settings import Settings


def topics(described: Any, **settings: Any) -> Topics:
    """The topics of a cluster whose broker 3 answers this about its settings, or raises."""
    admin = MagicMock()
    answer = MagicMock()
    answer.result.side_effect = [described]
    admin.describe_configs.side_effect = lambda resources, **_: dict.fromkeys(resources, answer)
    kafka: Any = SimpleNamespace(admin=admin, settings=Settings.load(kafka="kafka://nowhere:9092", **settings))
    kafka.answer = partial(Kafka.answer, kafka)
    kafka.metadata = lambda: SimpleNamespace(brokers={3: None})
    return Topics(kafka)


def test_the_brokers_say_it() -> None:
    said = {"group.consumer.session.timeout.ms": SimpleNamespace(value="6000")}
    assert topics(said).session_timeout_s() == 6.0


@pytest.mark.parametrize("described", [{}, KafkaException(KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED))])
def test_where_they_do_not_it_is_the_default(described: Any) -> None:
    assert topics(described).session_timeout_s() is None


def test_in_the_classic_protocol_the_member_says_it() -> None:
    own = {"session.timeout.ms": "9000"}
    assert topics({}, group_protocol="classic", client=own).session_timeout_s() == 9.0
    assert topics({}, group_protocol="classic").session_timeout_s() == SESSION_TIMEOUT_S
