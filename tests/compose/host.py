"""The stack from the host: its ports, its settings, and data that outlives the containers."""

from __future__ import annotations

import time
from typing import Any, Final

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType
from redis import Redis

from tests.compose.shell import CheckFailed
from tests.compose.stack import Stack

TOPIC: Final = "compose-check"
KEY: Final = "compose-check"
VALUE: Final = b"written before the containers were replaced"
WITHIN_S: Final = 30.0
SETTINGS: Final = {"auto.create.topics.enable": "false"}


def reach(stack: Stack) -> str:
    """Reach Kafka and Redis through the published ports and check the settings that matter."""
    admin = AdminClient(_client(stack))
    metadata = admin.list_topics(timeout=WITHIN_S)
    addresses = {f"{broker.host}:{broker.port}" for broker in metadata.brokers.values()}
    if addresses != {_bootstrap(stack)}:
        raise CheckFailed(f"Kafka sends clients on the host to {addresses}, not to {_bootstrap(stack)}")
    resource = ConfigResource(ResourceType.BROKER, "1")
    settings = admin.describe_configs([resource])[resource].result(WITHIN_S)
    found = {name: settings[name].value for name in SETTINGS}
    if found != SETTINGS:
        raise CheckFailed(f"the broker runs with {found}, not with {SETTINGS}")
    with _redis(stack) as redis:
        if redis.config_get("appendonly") != {"appendonly": "yes"}:
            raise CheckFailed("Redis keeps no append-only file")
    return f"Kafka at {_bootstrap(stack)}, Redis at port {stack.ports['REDIS_PORT']}, settings as written"


def write(stack: Stack) -> str:
    """Write one record to Kafka and one key to Redis."""
    admin = AdminClient(_client(stack))
    admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(WITHIN_S)
    producer = Producer(_client(stack))
    producer.produce(TOPIC, VALUE)
    if producer.flush(WITHIN_S):
        raise CheckFailed(f"a record was not acknowledged within {WITHIN_S} s")
    with _redis(stack) as redis:
        redis.set(KEY, VALUE)
    return "one record and one key"


def read(stack: Stack) -> str:
    """Read the record and the key again."""
    consumer = Consumer(_client(stack) | {"group.id": "compose-check", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        record = _poll(consumer)
    finally:
        consumer.close()
    with _redis(stack) as redis:
        value = redis.get(KEY)
    if (record, value) != (VALUE, VALUE):
        raise CheckFailed(f"new containers on the old volumes hold {record!r} and {value!r}, not {VALUE!r}")
    return "the record and the key are still there"


def _poll(consumer: Consumer) -> bytes | None:
    deadline_s = time.monotonic() + WITHIN_S
    while time.monotonic() < deadline_s:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            return message.value()
    return None


def _bootstrap(stack: Stack) -> str:
    return f"localhost:{stack.ports['KAFKA_PORT']}"


def _client(stack: Stack) -> dict[str, Any]:
    return {"bootstrap.servers": _bootstrap(stack)}


def _redis(stack: Stack) -> Redis:
    return Redis(port=stack.ports["REDIS_PORT"], socket_timeout=WITHIN_S)
