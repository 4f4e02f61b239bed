"""Intermediate states around a broker."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from konverse.bridge.broker import Broker
from konverse.bridge.client.client import Client
from konverse.bridge.owner.driver import OwnerDriver
from konverse.bridge.reader.readers import Readers
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.errors import BrokerClosed, InvalidState, KafkaUnavailable


def broker(*, closed: bool = False) -> Any:
    made: Any = Broker.__new__(Broker)
    made._closed = closed
    made._readers, made._listener, made._lock = Readers(), object(), threading.Lock()
    return made


class Reader:
    """Owns partition 3 of a queue."""

    def __init__(self, topic: str) -> None:
        self.queue = queue(topic)
        self.partitions = frozenset({3})
        self.closed = False

    def close(self) -> None:
        self.closed = True


def queue(topic: str) -> Queue:
    return Queue("transmission", topic, "queue", 4, b"i" * 16, b"d" * 16, b"j" * 16)


def test_a_reader_that_is_made_while_the_broker_is_closed_is_closed_too() -> None:
    reader = Reader("topic")
    with pytest.raises(BrokerClosed):
        broker(closed=True)._keep(reader)
    assert reader.closed


def test_a_broker_waits_for_a_reader_that_another_thread_closes() -> None:
    """Else it would close its clients while the reader gives its partitions back."""
    order: list[str] = []
    one, reader = broker(), Reader("topic")
    one._readers.add(reader)
    reader.closed = True  # its `close` has begun elsewhere
    reader.close = lambda: order.append("reader")  # type: ignore[method-assign]
    part = SimpleNamespace(close=lambda: None)
    one.catalog = one._validator = one._pools = one._substitutes = one._listener = one._view_client = part
    one._client = SimpleNamespace(check_thread=lambda: None, close=lambda: order.append("client"), mailboxes=part)
    one.close()
    assert order == ["reader", "client"]


def test_a_broker_stays_open_whose_close_is_refused_in_a_signal_handler() -> None:
    """The call that the handler has interrupted goes on with everything that it needs."""

    def refuse() -> None:
        raise InvalidState("a signal handler has interrupted a call")

    one = broker()
    one._client = SimpleNamespace(check_thread=refuse)
    with pytest.raises(InvalidState):
        one.close()
    assert not one._closed


def test_a_queue_of_the_same_name_in_another_place_is_another_queue() -> None:
    readers: Any = Readers()
    readers.add(Reader("konverse.transmission"))
    assert readers.owned("konverse.transmission") == {3}
    assert readers.owned("konverse.sales.transmission") == frozenset()


def test_owners_are_closed_to_the_end_although_one_partition_cannot_be_given_back() -> None:
    closed: list[str] = []
    driver: Any = OwnerDriver.__new__(OwnerDriver)
    driver.owners = {0: None, 1: None}
    driver.queue, driver.stopped = None, list

    def give_back(*numbers: int) -> None:
        closed.extend(f"partition {number}" for number in numbers)
        raise RuntimeError

    driver.give_back = give_back
    driver._standby = None
    parts = ["_outputs", "_snapshots", "_appender", "_truncation", "group_locator", "_reading", "_view"]
    for name in parts:
        setattr(driver, name, SimpleNamespace(close=lambda name=name: closed.append(name)))
    with pytest.raises(RuntimeError):
        driver.close()
    assert {"partition 0", "partition 1"} <= set(closed)
    assert closed[2:] == parts


def test_readers_and_close_do_not_wait_for_an_id_of_the_session_that_kafka_does_not_give() -> None:
    one, asked, answered = broker(), threading.Event(), threading.Event()
    client: Any = Client.__new__(Client)

    def new() -> None:
        asked.set()
        assert answered.wait(30)
        raise KafkaUnavailable("no id")

    client._connection = SimpleNamespace(kafka=None, catalog=None, check_open=one._check_open)
    client._lock, client._opening = threading.Lock(), threading.Lock()
    client.sender, client._transmission, client._sessions = None, None, SimpleNamespace(new=new)

    def send() -> None:
        with pytest.raises(KafkaUnavailable):
            client.open_sender()

    sending = threading.Thread(target=send, daemon=True)
    sending.start()
    assert asked.wait(30)
    keeping = threading.Thread(target=one._keep, args=(Reader("topic"),), daemon=True)
    closing = threading.Thread(target=client.close, daemon=True)
    for thread in (keeping, closing):
        thread.start()
        thread.join(10)
    waits = keeping.is_alive() or closing.is_alive()
    answered.set()
    sending.join(30)
    assert not waits
