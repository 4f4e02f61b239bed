"""Obstacles to truncation: a reader that may be registered and cannot be asked."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from konverse.bridge.owner import snapshots as truncation
from konverse.bridge.owner.snapshots import Truncation
from konverse.bridge.runtime.clock import now_ms
from konverse.dialog.owner.events import Truncate
from konverse.schemas.catalog.objects import Queue
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
        """A client that may read the group's offsets without being a member."""
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


def test_what_is_old_enough_to_be_deleted_is_so_by_kafkas_time(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    class Log:
        def __init__(self, _kafka: object) -> None:
            pass

        def offset_at(self, _topic: str, _partition: int, timestamp_ms: int) -> int:
            asked.append(timestamp_ms)
            return 0

        def close(self) -> None:
            pass

    monkeypatch.setattr(truncation, "LogReader", Log)
    admin, settings = Admin(), SimpleNamespace(connect_timeout_s=1.0)
    kafka: Any = SimpleNamespace(
        admin=admin, settings=settings, consumer=admin.consumer, told_ms=(5_000_000_000_000, now_ms())
    )
    truncating = Truncation(kafka, replace(QUEUE, keep_ms=3_600_000))
    truncating.truncate(0, Truncate(0, 0, 0))
    truncating._worker.shutdown(wait=True)
    assert all(4_999_996_400_000 <= at_ms <= 4_999_996_460_000 for at_ms in asked)
    assert len(asked) == 2
