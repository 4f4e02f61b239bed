"""A producer that has failed for good: its reason is kept, its records are unknown, and a new producer continues."""

from __future__ import annotations

import logging
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from konverse.bridge.catalog.destinations import Destinations
from konverse.bridge.kafka.clients import Health, Kafka
from konverse.bridge.kafka.refusals import Need
from konverse.bridge.owner.journal import JournalAppender
from konverse.bridge.owner.outputs import Outputs
from konverse.bridge.owner.snapshots import SnapshotTopic
from konverse.bridge.runtime.settings import Settings
from konverse.dialog.owner.emitter import Emit
from konverse.dialog.owner.events import Append, Appended, AppendSnapshot, ProducerReplaced, SnapshotWritten
from konverse.schemas.errors import AccessDenied
from konverse.schemas.identifiers import Address

ADDRESS = Address("konverse.sales.Orders", 0, b"tag1")
REASON = KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED, "Failed to acquire idempotence PID", True)
FATAL = KafkaError(KafkaError._FATAL, "Unable to produce message: Local: Fatal error")
PURGED = KafkaError(KafkaError._PURGE_QUEUE)


class Mortal:
    """A Kafka whose first producer dies at its first poll, with a reason that librdkafka reports once."""

    def __init__(self) -> None:
        self.health = Health()
        self.settings = SimpleNamespace(append_timeout_s=15.0)
        self.made = 0
        self.waiting: deque[Any] = deque()

    def producer(self, *_: Any, **__: Any) -> Mortal:
        self.made += 1
        return self

    data_producer = journal_producer = producer

    def words(self, error: Any, need: Need) -> str:
        cause = error.args[0] if isinstance(error, KafkaException) else error
        return f"{cause.name()}: {need.operation} on {need.resource}"

    def produce(self, _topic: str, _body: Any, _key: Any, _partition: int, report: Any, *_: Any) -> None:
        self.waiting.append(report)

    def poll(self, _wait_s: float) -> int:
        if self.made == 1:
            raise KafkaException(REASON)
        return 0

    def purge(self) -> None:
        message = SimpleNamespace(topic=lambda: ADDRESS.topic, partition=lambda: ADDRESS.partition)
        while self.waiting:
            self.waiting.popleft()(PURGED, message)

    def flush(self, _wait_s: float) -> int:
        return 0

    def __len__(self) -> int:
        return len(self.waiting)


@pytest.fixture
def kafka() -> Any:
    return Mortal()


class Owner:
    """The attributes of an owner that appending and sending read."""

    def __init__(self) -> None:
        self.steps: list[Any] = []
        self.staging = SimpleNamespace(overtaken=[])
        self.identity = SimpleNamespace(partition=0)

    def step(self, event: Any) -> None:
        self.steps.append(event)


def test_fatal_and_purge_errors_of_a_dead_producer_have_its_original_reason() -> None:
    health = Health()
    assert health.cause(FATAL) is FATAL
    health.note_death(REASON)
    timed_out = KafkaError(KafkaError._TIMED_OUT)
    assert [health.cause(error) for error in (FATAL, PURGED, timed_out)] == [REASON, REASON, timed_out]


@pytest.mark.parametrize("error", [REASON, FATAL, PURGED], ids=["the first", "later ones", "what waited"])
def test_every_error_of_a_producer_that_may_write_nowhere_names_the_right(error: KafkaError) -> None:
    client = {"sasl.username": "shop", "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    kafka = Kafka(Settings.load(kafka="kafka://localhost:1", redis=None, client={**client, "sasl.password": "x"}))
    kafka.health.note_death(REASON)
    remedy = "Grant WRITE on topic t to User:shop"
    assert remedy in str(kafka.write_refused("t", KafkaException(error)))
    assert remedy in kafka.words(error, Need.topic("WRITE", "t"))
    with pytest.raises(AccessDenied, match=remedy):
        kafka.check_written("t", [error])


def test_outputs_go_again_when_their_producer_has_died(kafka: Any, caplog: pytest.LogCaptureFixture) -> None:
    owner: Any = Owner()
    outputs = Outputs(kafka, {0: owner}, lambda _, event: owner.step(event), Destinations(kafka))
    run: Any = SimpleNamespace(key=b"", bodies=[b"1"], headers=lambda counters: [b""])
    outputs.add(owner, Emit(ADDRESS, 0, [run]))
    with caplog.at_level(logging.WARNING):
        outputs.pump()
        outputs.pump()
    assert owner.steps == [ProducerReplaced(ADDRESS)]
    assert kafka.made == 2
    assert "CLUSTER_AUTHORIZATION_FAILED: WRITE on topic konverse.sales.Orders" in caplog.text


def test_an_append_whose_producer_has_died_has_an_unknown_outcome(kafka: Any, caplog: pytest.LogCaptureFixture) -> None:
    owner: Any = Owner()
    appending = JournalAppender(kafka, "journal")
    appending.append(owner, Append([b"a record"]))
    with caplog.at_level(logging.WARNING):
        assert list(appending.poll(0)) == [(owner, Appended(None))]
    assert kafka.made == 2
    assert "CLUSTER_AUTHORIZATION_FAILED: WRITE on topic journal" in caplog.text


def test_a_snapshot_whose_producer_has_died_is_not_written(kafka: Any, caplog: pytest.LogCaptureFixture) -> None:
    owner: Any = Owner()
    snapshots = SnapshotTopic(kafka, "snapshots")
    snapshots.append(owner, AppendSnapshot([b"end"], last=True))
    with caplog.at_level(logging.WARNING):
        assert list(snapshots.poll()) == [(owner, SnapshotWritten(None))]
    assert "CLUSTER_AUTHORIZATION_FAILED: WRITE on topic snapshots" in caplog.text
