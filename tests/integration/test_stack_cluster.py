"""Three brokers: the cluster survives the death of one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from konverse.deploy import LocalStack, StackSettings
from tests.kit import until

pytestmark = [pytest.mark.stack]

NewStack = Callable[[StackSettings], LocalStack]


@pytest.mark.parametrize("victim", [pytest.param("kafka-1", marks=pytest.mark.nightly), "kafka-3"])
def test_two_of_three_brokers_take_records_and_the_third_comes_back(new_stack: NewStack, victim: str) -> None:
    stack = new_stack(StackSettings(brokers=3, redis=False))
    assert stack.servers == ("kafka-1", "kafka-2", "kafka-3")
    admin = AdminClient({"bootstrap.servers": stack.bootstrap, "log_level": 0})
    assert sorted(admin.list_topics(timeout=5).brokers) == [1, 2, 3]
    admin.create_topics([NewTopic("orders", 3)])["orders"].result()
    producer = Producer({"bootstrap.servers": stack.bootstrap, "enable.idempotence": True, "log_level": 0})

    _send(producer)
    stack.kill(victim)
    _send(producer)
    stack.restart(victim)
    _send(producer)
    until(lambda: _whole(admin), 30)


def _whole(admin: AdminClient) -> bool:
    """Whether each broker is there, and in sync with the others."""
    found = admin.list_topics(timeout=5)
    partitions = found.topics["orders"].partitions.values()
    return sorted(found.brokers) == [1, 2, 3] and all(len(one.isrs) == len(one.replicas) for one in partitions)


def _send(producer: Producer) -> None:
    failures: list[object] = []
    for number in range(300):
        producer.produce(
            "orders", str(number), partition=number % 3, on_delivery=lambda error, _: failures.append(error)
        )
    assert producer.flush(60) == 0
    assert failures == [None] * 300
