"""Readers that leave their group while it assigns partitions, because other readers join and leave."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Literal

import pytest
from confluent_kafka import Consumer, TopicPartition

from konverse.bridge.broker import Broker
from tests.kit.servers import Servers
from tests.kit.shop import connected, drain, open_shop, send_orders

pytestmark = pytest.mark.stack

MEMBERS = 4
ROUNDS = 10
STAYS_S = [0.0, 0.02, 0.3, 0.05, 0.6, 0.15]

Callback = Callable[[Consumer, list[TopicPartition]], None]


class Watched(Consumer):
    """A consumer that notes which callbacks of a group run in its `close`."""

    left: list[Consumer] = []  # noqa: RUF012  # shared by all consumers
    """Consumers that were in a group, and are closed."""
    late: list[str] = []  # noqa: RUF012  # shared by all consumers
    closing = in_group = False

    def subscribe(self, topics: list[str], *_none: Any, **callbacks: Any) -> None:
        self.in_group = True
        super().subscribe(topics, **{name: self._noting(name, callback) for name, callback in callbacks.items()})

    def _noting(self, name: str, callback: Callback) -> Callback:
        def called(consumer: Consumer, places: list[TopicPartition]) -> None:
            if self.closing:
                self.late.append(name)
            callback(consumer, places)

        return called

    def close(self) -> None:
        self.closing = True
        super().close()
        if self.in_group:
            self.left.append(self)


def join_and_leave(broker: Broker, first: int) -> None:
    """Open and close readers that stay in the group for different times, some shorter than a rebalance takes."""
    for number in range(first, first + ROUNDS):
        reader = broker.reader("Orders", timeout=STAYS_S[number % len(STAYS_S)])
        with reader:
            next(reader, None)


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_no_callback_of_the_group_runs_while_a_reader_closes_its_client(
    servers: Servers, database: str, monkeypatch: pytest.MonkeyPatch, protocol: Literal["consumer", "classic"]
) -> None:
    """confluent-kafka would call librdkafka with the interpreter lock held; the process has been seen to freeze."""
    monkeypatch.setattr("konverse.bridge.kafka.clients.Consumer", Watched)
    monkeypatch.setattr(Watched, "late", [])
    monkeypatch.setattr(Watched, "left", [])
    settings: dict[str, Any] = {"group_protocol": protocol}
    with connected(servers.bootstrap, database, **settings) as broker:
        open_shop(broker, partitions=3)
        sent = send_orders(broker, dialogs=4, messages=3)
        members = [threading.Thread(target=join_and_leave, args=(broker, number)) for number in range(MEMBERS)]
        for member in members:
            member.start()
        for member in members:
            member.join()
        assert Watched.late == []
        assert len(Watched.left) >= MEMBERS * ROUNDS
        received = drain(broker, "Orders")
    assert sorted(message.body for message in received) == sorted(body for one in sent.values() for body in one)
