"""Raw clients and their topics, with the product's settings, so that a ratio compares code and not configuration."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

PARTITIONS: Final = 4
DEADLINE_S: Final = 60.0
"""Deadline of every operation."""

PRODUCER: Final[dict[str, Any]] = {
    "enable.idempotence": True,
    "linger.ms": 5,
    "queue.buffering.max.messages": 500_000,
    "queue.buffering.max.kbytes": 1_048_576,
}
CONSUMER: Final[dict[str, Any]] = {
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
    "queued.max.messages.kbytes": 131_072,
    "fetch.wait.max.ms": 50,
    "fetch.queue.backoff.ms": 5,  # with the default of 1000, a fast reader pauses for a second
}


Headers = dict[str, str | bytes | None]


def producer(bootstrap: str, **more: Any) -> Producer:
    """An idempotent producer with the product's settings. `more` has `_` for `.`."""
    return Producer({**PRODUCER, "bootstrap.servers": bootstrap, **_dotted(more)})


def consumer(bootstrap: str, group: str, **more: Any) -> Consumer:
    """A consumer with the product's settings. `more` has `_` for `.`."""
    return Consumer({**CONSUMER, "bootstrap.servers": bootstrap, "group.id": group, **_dotted(more)})


def _dotted(settings: dict[str, Any]) -> dict[str, Any]:
    return {name.replace("_", "."): value for name, value in settings.items()}


def create_topic(bootstrap: str, name: str, partitions: int = PARTITIONS) -> str:
    """Create a topic, wait until each partition has a leader, and return its name."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(DEADLINE_S)
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        topic = admin.list_topics(timeout=5).topics.get(name)
        if topic and len(topic.partitions) == partitions and all(p.leader >= 0 for p in topic.partitions.values()):
            return name
        time.sleep(0.05)
    raise TimeoutError(f"topic {name} has no leaders after {DEADLINE_S:g} s")


def delete_topics(admin: AdminClient, part: str) -> None:
    """Delete every topic with `part` in its name. Topics that cannot be deleted affect no figure."""
    with suppress(KafkaException):
        names = [name for name in admin.list_topics(timeout=5).topics if part in name]
        for future in admin.delete_topics(names).values() if names else ():
            future.result(DEADLINE_S)


def checked(error: KafkaError | None) -> None:
    """Raise a delivery callback's error: a benchmark that loses messages measures nothing."""
    if error is not None:
        raise RuntimeError(f"a record was not delivered: {error.str()}")
