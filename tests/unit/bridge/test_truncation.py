"""Obstacles to truncation: a reader that may be registered and cannot be asked."""

from __future__ import annotations

import logging
from concurrent.futures import Future
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from konverse.bridge.kafka.refusals import unavailable
from konverse.bridge.owner import snapshots as truncation
from konverse.bridge.owner.snapshots import Truncation
from konverse.bridge.runtime.clock import now_ms
from konverse.dialog.owner.events import Truncate
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.errors import AccessDenied, KafkaUnavailable
from konverse.schemas.identifiers import consumer_group

QUEUE = Queue("Orders", "topic", "queue", 1, b"i" * 16, b"d" * 16, b"j" * 16, 0)
PREFIX = consumer_group(QUEUE.topic, QUEUE.subscription) + "."
READER = PREFIX + "audit"
SETTINGS = SimpleNamespace(connect_timeout_s=1.0)


def answered(value: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(value)
    return future


class Admin:
    """One group is registered; a broker or a partition may give no answer, and groups or topics may be denied."""

    def __init__(
        self,
        *,
        broker: KafkaError | None = None,
        partition: KafkaError | None = None,
        groups: KafkaError | None = None,
        topics: KafkaError | None = None,
    ) -> None:
        self.broker = [broker] if broker else []
        self.partition = partition
        self.groups = groups
        self.topics = topics

    def list_consumer_groups(self, **_: Any) -> Future[Any]:
        groups = [] if self.groups else [SimpleNamespace(group_id=READER)]  # Kafka hides what it denies
        return answered(SimpleNamespace(valid=groups, errors=self.broker))

    def delete_records(self, places: list[TopicPartition], **_: Any) -> dict[TopicPartition, Future[Any]]:
        answers: list[Future[Any]] = [Future() for _ in places]
        for answer in answers:
            if self.topics:
                answer.set_exception(KafkaException(self.topics))
            else:
                answer.set_result(None)
        return dict(zip(places, answers, strict=True))

    def consumer(self, **options: Any) -> Any:
        """A client that may read the group's offsets without being a member, and tells refusals in events."""
        group = options.pop("group.id")
        assert not options
        assert group in {READER, PREFIX}

        def committed(_places: object, _timeout_s: float) -> list[Any]:
            if self.groups:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
            return [SimpleNamespace(topic=QUEUE.topic, offset=5 if group == READER else -1001, error=self.partition)]

        def poll(_timeout_s: float) -> Any:
            return SimpleNamespace(error=lambda: self.groups) if self.groups else None

        return SimpleNamespace(committed=committed, poll=poll, close=lambda: None)


def kafka_of(admin: Admin) -> Any:
    return SimpleNamespace(
        admin=admin,
        settings=SETTINGS,
        consumer=admin.consumer,
        told_ms=(5_000_000_000_000, now_ms()),
        unavailable=lambda what, error, need: unavailable(what, error, need, {}),
    )


def positions(admin: Admin) -> list[list[int]]:
    truncation = Truncation(kafka_of(admin), QUEUE)
    try:
        return truncation._registered(0, [QUEUE.topic])
    finally:
        truncation.close()


def truncated(admin: Admin, effect: Truncate = Truncate(7, 7, 7)) -> None:  # noqa: B008  # a constant
    truncating = Truncation(kafka_of(admin), replace(QUEUE, keep_ms=3_600_000))
    truncating.truncate(0, effect)
    truncating._worker.shutdown(wait=True)


class Log:
    """A log all of whose records are old."""

    asked: ClassVar[list[int]] = []

    def __init__(self, _kafka: object) -> None:
        pass

    def offset_at(self, _topic: str, _partition: int, timestamp_ms: int) -> int:
        Log.asked.append(timestamp_ms)
        return 1_000

    def close(self) -> None:
        pass


@pytest.fixture(autouse=True)
def _old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(truncation, "LogReader", Log)
    Log.asked.clear()


def test_the_position_of_a_registered_reader_is_found() -> None:
    assert positions(Admin()) == [[5]]


@pytest.mark.parametrize("where", ["broker", "partition"])
def test_nothing_is_known_of_readers_while_one_broker_does_not_answer(where: str) -> None:
    error = KafkaError(KafkaError.BROKER_NOT_AVAILABLE, "no broker answers")
    with pytest.raises((KafkaException, KafkaUnavailable), match="no broker answers"):
        positions(Admin(**{where: error}))


def test_a_principal_that_may_not_describe_groups_deletes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    admin = Admin(groups=KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED))
    with pytest.raises(AccessDenied, match=f"Grant DESCRIBE on groups with the prefix {PREFIX} to User:ANONYMOUS"):
        positions(admin)
    with caplog.at_level(logging.INFO, "konverse.snapshots"):
        truncated(admin)
    (line,) = caplog.messages
    assert line.startswith("the logs of topic/0 were not truncated: ")
    assert f"Grant DESCRIBE on groups with the prefix {PREFIX}" in line


def test_the_warning_names_the_right_to_delete(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "konverse.snapshots"):
        truncated(Admin(topics=KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)))
    (line,) = caplog.messages
    assert line.startswith("the logs of topic/0 were not truncated: ")
    assert "Grant DELETE on topic topic" in line


def test_the_age_of_records_to_delete_is_measured_by_kafkas_clock() -> None:
    truncated(Admin(), Truncate(0, 0, 0))
    assert len(Log.asked) == 2
    assert all(4_999_996_400_000 <= at_ms <= 4_999_996_460_000 for at_ms in Log.asked)
