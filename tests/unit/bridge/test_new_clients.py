"""Why no Kafka client can be made: the user's properties are wrong, or the process has nothing left for one."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from konverse.bridge.kafka import clients
from konverse.bridge.kafka.clients import Kafka
from konverse.bridge.runtime.settings import Settings
from konverse.schemas.errors import InvalidSettings, KafkaUnavailable


def kafka(**client: Any) -> Kafka:
    return Kafka(Settings.load(kafka="kafka://nowhere:9092", redis=None, client=client))


def test_a_property_that_librdkafka_refuses_is_an_invalid_setting() -> None:
    with pytest.raises(InvalidSettings, match=r"setting 'client'.*no\.such\.property"):
        kafka(**{"no.such.property": "1"}).data_producer(linger_ms=5)


def test_a_process_without_a_thread_left_has_no_invalid_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same call succeeds later, so the error may be retried."""

    def without_thread(*_: Any) -> None:
        raise KafkaException(KafkaError(KafkaError._CRIT_SYS_RESOURCE, "Failed to create thread"))

    monkeypatch.setattr(clients, "ReportingProducer", without_thread)
    with pytest.raises(KafkaUnavailable, match=r"Failed to create thread.*ulimit") as error:
        kafka().data_producer(linger_ms=5)
    assert error.value.retriable
