"""A client that Kafka has told of no broker is noticed and replaced.

This broker is fenced most of the time, because it says that it lives less often than its controller wants to hear of
it. A fenced broker answers, and lists no broker. The clients here never return to their bootstrap addresses by
themselves, what others do rarely.
"""

from __future__ import annotations

from contextlib import closing, suppress
from typing import Final

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicCollection
from confluent_kafka.admin import AdminClient, NewTopic

from konverse.bridge.kafka.clients import Kafka
from konverse.bridge.runtime.settings import Settings
from konverse.deploy import StackSettings
from tests.conftest import NewStack
from tests.kit.shop import until

pytestmark = [pytest.mark.stack, pytest.mark.slow]

_FENCED: Final = {"broker.heartbeat.interval.ms": "6000", "broker.session.timeout.ms": "1500"}


def test_clients_that_have_lost_all_brokers_are_noticed_and_the_admin_client_is_replaced(new_stack: NewStack) -> None:
    stack = new_stack(StackSettings(redis=False, broker_settings=_FENCED))
    strategy = "metadata.recovery.strategy"
    kafka = Kafka(Settings.load(kafka=f"kafka://{stack.bootstrap}", redis=None, client={strategy: "none"}))
    other = Kafka(Settings.load(kafka=f"kafka://{stack.bootstrap}", redis=None))

    def described() -> bool:
        topics = TopicCollection(["orders"])
        with suppress(KafkaException):  # a new client may find a fenced broker, too
            kafka.answer(lambda timeout_s: kafka.admin.describe_topics(topics, request_timeout=timeout_s)["orders"])
            return True
        return False

    def created() -> bool:
        try:
            other.admin.create_topics([NewTopic("orders", 1)])["orders"].result()
        except KafkaException as error:
            return "already exists" in str(error)
        return True

    def unlisted() -> bool:
        """Kafka has listed no broker; the topics make the client believe it."""
        with suppress(KafkaException):
            return not other.metadata().brokers
        return False

    until(created, "the topic exists")
    first, producer = kafka.admin, kafka.data_producer(linger_ms=0)
    with closing(kafka.consumer()) as consumer:

        def has_no_broker(client: AdminClient | Producer | Consumer) -> bool:
            try:
                client.list_topics(timeout=2)
            except KafkaException as error:
                return bool(error.args[0].code() == KafkaError._TRANSPORT)
            return False

        clients: tuple[AdminClient | Producer | Consumer, ...] = (first, producer, consumer)
        until(lambda: unlisted() and all([*map(has_no_broker, clients)]), "all have asked while the broker was fenced")
        del kafka._common[strategy]  # a new client is as others are
        assert kafka.is_deserted(producer)
        assert kafka.is_deserted(consumer, "orders")
        until(described, "Kafka answers")
        assert kafka.admin is not first
        assert not kafka.is_deserted(kafka.data_producer(linger_ms=0))
        assert not kafka.is_deserted(kafka.data_producer(linger_ms=0), "orders")
