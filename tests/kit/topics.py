"""Creates, changes and deletes topics as an administrator of Kafka does, and waits until brokers show it."""

from __future__ import annotations

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from tests.kit.shop import DEADLINE_S, until


def delete(admin: AdminClient, topic: str) -> None:
    admin.delete_topics([topic], operation_timeout=30)[topic].result(DEADLINE_S)
    until(lambda: topic not in admin.list_topics(timeout=10).topics, f"{topic} is gone")


def create(admin: AdminClient, topic: str, partitions: int, config: dict[str, str]) -> None:
    admin.create_topics([NewTopic(topic, partitions, config=config)])[topic].result(DEADLINE_S)
    until(lambda: topic in admin.list_topics(timeout=10).topics, f"{topic} is there")


def set_config(admin: AdminClient, topic: str, name: str, value: str) -> None:
    """Change a topic, and wait until the broker shows the change: the controller has it first."""
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(DEADLINE_S)
    shown = ConfigResource(ResourceType.TOPIC, topic)
    until(
        lambda: admin.describe_configs([shown])[shown].result(DEADLINE_S)[name].value == value,
        f"{topic} has {name}={value}",
    )
