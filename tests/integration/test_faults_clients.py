"""Kafka clients that fail for good, like idempotent producers: they are replaced, and nothing is lost or duplicated."""

from __future__ import annotations

import gc
import weakref
from typing import Any, NamedTuple

import pytest
from confluent_kafka import KafkaError, KafkaException

from konverse.bridge.client.sender import Sender
from konverse.bridge.owner.driver import OwnerDriver
from konverse.schemas.errors import BrokerClosed
from tests.kit.oracle import prove_exactly_once
from tests.kit.servers import Servers
from tests.kit.shop import DEADLINE_S, ORDER, answer_once, begin, connected, fill, open_shop, queue_of, send_orders

pytestmark = pytest.mark.stack


class Lost(NamedTuple):
    """The delivery report of a record that is not in the log."""

    where: str
    number: int

    def topic(self) -> str:
        return self.where

    def partition(self) -> int:
        return self.number


class Broken:
    """A producer with a fatal error ahead: it takes `healthy` more records, then none, and delivers none."""

    def __init__(self, healthy: int = 0) -> None:
        self._healthy = healthy
        self._lost: list[Any] = []

    def produce(self, *record: Any) -> None:
        if len(self._lost) >= self._healthy:
            raise KafkaException(KafkaError(KafkaError._FATAL, "broken for the test", fatal=True))
        self._lost.append(record)

    def poll(self, _timeout: float = 0) -> int:
        lost, self._lost = self._lost, []
        self._healthy = 0 if lost else self._healthy
        for topic, _, _, partition, on_delivery, *_ in lost:
            on_delivery(KafkaError(KafkaError._FATAL, "broken for the test", fatal=True), Lost(topic, partition))
        return len(lost)

    def flush(self, _timeout: float = 0) -> int:
        return len(self._lost)

    def purge(self) -> None:
        pass

    def __len__(self) -> int:
        return len(self._lost)


def driver_of(reader: object) -> OwnerDriver:
    return reader._driver  # type: ignore[attr-defined, no-any-return]


def test_a_journal_producer_that_breaks_is_replaced_and_the_work_done_again(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker, partitions=2)
        sent = send_orders(broker, dialogs=6, messages=12)
        with broker.reader("Orders", timeout=2) as reader:
            fill(reader, 12)
            driver_of(reader)._appender._producer = Broken()  # type: ignore[assignment]
            assert answer_once(reader) > 12, "no work was done again"
        proof = prove_exactly_once(servers.bootstrap, queue_of(broker, "Orders"), queue_of(broker, "Shop"), sent)
    assert proof.replies == 12


@pytest.mark.parametrize("healthy", [0, 3])
def test_a_producer_of_outputs_that_breaks_is_replaced_and_all_outputs_arrive(
    servers: Servers, database: str, healthy: int
) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        sent = send_orders(broker, dialogs=6, messages=12)
        with broker.reader("Orders", timeout=2, batch=2) as reader:
            fill(reader, 12)
            driver_of(reader)._outputs._producer = Broken(healthy)  # type: ignore[assignment]
            assert answer_once(reader) == 12
        proof = prove_exactly_once(servers.bootstrap, queue_of(broker, "Orders"), queue_of(broker, "Shop"), sent)
    assert proof.replies == 12


@pytest.mark.parametrize("healthy", [0, 5])
def test_a_senders_producer_that_breaks_is_replaced_and_everything_goes_again(
    servers: Servers, database: str, healthy: int
) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        dialog = begin(broker)
        dialog.send(ORDER, b"0")
        dialog.flush()
        sender: Sender = dialog._sender
        broken = Broken(healthy)
        with sender._producer.lock:
            sender._producer._client = broken  # type: ignore[assignment]
            sender._producer.produce = broken.produce
            assert [dialog.send(ORDER, b"%d" % number) for number in range(1, 20)] == [*range(1, 20)]
        dialog.flush(DEADLINE_S)
        with broker.reader("Orders", timeout=2) as reader:
            answer_once(reader)
        sent = {dialog.id.bytes: [b"%d" % number for number in range(20)]}
        proof = prove_exactly_once(servers.bootstrap, queue_of(broker, "Orders"), queue_of(broker, "Shop"), sent)
    assert proof.messages == 20


class Full:
    """A producer with room for `room` records, which arrive when it is polled."""

    def __init__(self, producer: Any, room: int) -> None:
        self._producer, self._room = producer, room
        self.refused = 0

    def produce(self, *record: Any) -> None:
        if len(self._producer) >= self._room:
            self.refused += 1
            raise BufferError
        self._producer.produce(*record)

    def poll(self, timeout: float = 0) -> int:
        return int(self._producer.poll(timeout))

    def flush(self, timeout: float = 0) -> int:
        return int(self._producer.flush(timeout))

    def purge(self) -> None:
        self._producer.purge()

    def __len__(self) -> int:
        return len(self._producer)


def test_a_producer_that_is_full_gets_the_rest_later_and_in_order(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker, partitions=2)
        dialogs = [begin(broker) for _ in range(4)]
        broker.flush()
        sender = dialogs[0]._sender
        with sender._producer.lock:
            full = Full(sender._producer._client, room=10)
            sender._producer._client = full  # type: ignore[assignment]
            sender._producer.produce = full.produce
        sent = {dialog.id.bytes: [b"%d" % number for number in range(50)] for dialog in dialogs}
        for number in range(50):
            for dialog in dialogs:
                dialog.send(ORDER, b"%d" % number)
        broker.flush()
        assert full.refused > 3, "it was never full"
        with broker.reader("Orders", timeout=2) as reader:
            answer_once(reader)
        proof = prove_exactly_once(servers.bootstrap, queue_of(broker, "Orders"), queue_of(broker, "Shop"), sent)
    assert proof.messages == 200


def test_nothing_is_taken_any_more_while_a_sender_says_goodbye(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        dialog = begin(broker)
        dialog.send(ORDER, b"x")
        dialog.flush()
        sender = dialog._sender
        with sender._producer.lock:
            sender._producer.produce_records(sender.session.close())
            sender._producer.refresh()
            with pytest.raises(BrokerClosed):
                dialog.send(ORDER, b"too late")


def test_a_reader_that_was_closed_is_not_kept(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        with broker.reader("Orders", partitions=(0,), timeout=0) as reader:
            assert list(reader) == []
        gone = weakref.ref(reader)
        broker._readers._readers = ()
        del reader
        gc.collect()
        assert gone() is None
