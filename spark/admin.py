"""What only an administrator's client tells of a topic: which one it is, and whether its times rise."""

from __future__ import annotations

from typing import Any, Final

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from konverse.schemas.errors import KafkaUnavailable

from .settings import Settings

ANSWER_S_MAX: Final = 10.0

_ADMINS: dict[tuple[Any, ...], AdminClient] = {}
"""One for each cluster and way to reach it, for as long as this process lives: short-lived ones cancel what they asked
for."""


def topic_id(settings: Settings) -> str:
    """Kafka's own id of the topic: tells it from its namesake of yesterday. KafkaUnavailable when nobody answers."""
    asked = _admin(settings).describe_topics(TopicCollection([settings.topic]), request_timeout=ANSWER_S_MAX)
    try:
        identifier = asked[settings.topic].result().topic_id
    except KafkaException as error:
        raise _unavailable(settings, error) from error
    high = identifier.get_most_significant_bits() % (1 << 64)
    low = identifier.get_least_significant_bits() % (1 << 64)
    return f"{high:016x}{low:016x}"


def times_rise(settings: Settings) -> bool:
    """Whether the brokers stamp the records, so that a later one never has an earlier time."""
    resource = ConfigResource(ResourceType.TOPIC, settings.topic)
    asked = _admin(settings).describe_configs([resource], request_timeout=ANSWER_S_MAX)
    try:
        return bool(asked[resource].result()["message.timestamp.type"].value == "LogAppendTime")
    except KafkaException as error:
        raise _unavailable(settings, error) from error


def _admin(settings: Settings) -> AdminClient:
    key = (settings.bootstrap, *sorted(settings.client.items()))
    if key not in _ADMINS:
        _ADMINS[key] = AdminClient({"log_level": 2, **settings.client, "bootstrap.servers": settings.bootstrap})
    return _ADMINS[key]


def _unavailable(settings: Settings, error: KafkaException) -> KafkaUnavailable:
    return KafkaUnavailable(
        f"topic {settings.topic!r} cannot be described: {error.args[0].str()}; check the kafka.* options, and that "
        "this user may describe it"
    )
