"""Log lines about open transactions of foreign producers."""

from __future__ import annotations

import time
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition

from konverse.bridge.kafka import open_transactions as module
from konverse.bridge.kafka.open_transactions import OpenTransactions

COMMITTED, UNCOMMITTED = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED


class Admin:
    """Answers at once. Records before `stable` can be read; a partition and a level in `silent` get no answer."""

    def __init__(self) -> None:
        self.stable: dict[int, int] = {}
        self.silent: set[tuple[int, IsolationLevel]] = set()

    def list_offsets(
        self, places: dict[TopicPartition, Any], isolation_level: IsolationLevel, **_: Any
    ) -> dict[TopicPartition, Future[Any]]:
        return {place: self._answer(place.partition, isolation_level) for place in places}

    def _answer(self, partition: int, level: IsolationLevel) -> Future[Any]:
        future: Future[Any] = Future()
        if (partition, level) in self.silent:
            future.set_exception(KafkaException(KafkaError(KafkaError._TIMED_OUT)))
        else:
            offset = 9 if level is UNCOMMITTED else self.stable.get(partition, 9)
            future.set_result(SimpleNamespace(offset=offset))
        return future


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> Admin:
    monkeypatch.setattr(module, "LOOK_EVERY_S", 0.0)
    return Admin()


def look(transactions: OpenTransactions, *partitions: int) -> None:
    transactions._look_at = time.monotonic()
    for _ in range(3):
        transactions.poll(partitions)


@pytest.mark.parametrize("level", [UNCOMMITTED, COMMITTED])
def test_a_transaction_has_ended_only_when_kafka_says_so(
    admin: Admin, level: IsolationLevel, caplog: pytest.LogCaptureFixture
) -> None:
    kafka: Any = SimpleNamespace(admin=admin)
    transactions = OpenTransactions(kafka, "orders")
    admin.stable = {0: 3, 1: 4}
    for _ in range(2):
        look(transactions, 0, 1)
    assert len(caplog.messages) == 2
    admin.silent = {(0, level)}
    look(transactions, 0, 1)
    admin.silent = set()
    del admin.stable[1]
    look(transactions, 0, 1)
    assert caplog.messages[2:] == ["the transaction that held up orders/1 has ended"]
    admin.stable = {}
    look(transactions, 0, 1)
    assert caplog.messages[3:] == ["the transaction that held up orders/0 has ended"]


def test_a_transaction_in_a_partition_that_is_read_elsewhere_is_not_called_ended(
    admin: Admin, caplog: pytest.LogCaptureFixture
) -> None:
    kafka: Any = SimpleNamespace(admin=admin)
    transactions = OpenTransactions(kafka, "orders")
    admin.stable = {0: 3}
    for _ in range(2):
        look(transactions, 0)
    look(transactions, 1)
    assert len(caplog.messages) == 1
