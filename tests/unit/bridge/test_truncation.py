"""What stands in the way of truncation: a reader that may be registered and cannot be asked."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from konverse.bridge.truncation import Truncation
from konverse.schemas.catalog import Queue
from konverse.schemas.identifiers import consumer_group

QUEUE = Queue("Orders", "topic", "queue", 1, b"i" * 16, b"d" * 16, b"j" * 16, 0)
READER = consumer_group(QUEUE.topic, QUEUE.subscription) + ".audit"


def answered(value: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(value)
    return future


class Admin:
    """One group is registered; a broker or a partition may give no answer."""

    def __init__(self, *, broker: KafkaError | None = None, partition: KafkaError | None = None) -> None:
        self.broker = [broker] if broker else []
        self.partition = partition

    def list_consumer_groups(self, **_: Any) -> Future[Any]:
        return answered(SimpleNamespace(valid=[SimpleNamespace(group_id=READER)], errors=self.broker))

    def consumer(self, **options: Any) -> Any:
        """A client that may ask for the positions of the group and is no member of it."""
        assert options == {"group.id": READER}
        found = SimpleNamespace(topic=QUEUE.topic, offset=5, error=self.partition)
        return SimpleNamespace(committed=lambda _places, _timeout_s: [found], close=lambda: None)


def positions(admin: Admin) -> list[list[int]]:
    settings = SimpleNamespace(connect_timeout_s=1.0)
    kafka: Any = SimpleNamespace(admin=admin, settings=settings, consumer=admin.consumer)
    truncation = Truncation(kafka, QUEUE)
    try:
        return truncation._registered(0, [QUEUE.topic])
    finally:
        truncation.close()


def test_the_position_of_a_registered_reader_is_found() -> None:
    assert positions(Admin()) == [[5]]


@pytest.mark.parametrize("where", ["broker", "partition"])
def test_nothing_is_known_of_readers_while_one_broker_does_not_answer(where: str) -> None:
    with pytest.raises(KafkaException, match="BROKER_NOT_AVAILABLE"):
        positions(Admin(**{where: KafkaError(KafkaError.BROKER_NOT_AVAILABLE)}))
