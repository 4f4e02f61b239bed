"""Records of the transmission queue that were deleted before their transactions took effect."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from konverse.bridge.broker import Broker
from konverse.bridge.client.dialog import Dialog
from konverse.schemas.errors import OutcomeUnknown, PartitionHalted, TransactionLost
from konverse.schemas.identifiers import transmission_topic
from tests.integration.test_accept_loss import konverse
from tests.kit.oracle import read_raw, verify
from tests.kit.servers import Servers
from tests.kit.shop import DEADLINE_S, ORDER, ORDER_SERVICE, ORDERING, SHOP_SERVICE, connected, open_shop, receive

pytestmark = pytest.mark.stack

LOST = "the record was deleted before the owner of the transmission partition read it"


def transact(broker: Broker, body: bytes) -> Dialog:
    with broker.transaction() as transaction:
        dialog = transaction.begin(SHOP_SERVICE, ORDER_SERVICE, ORDERING)
        transaction.send(dialog, ORDER, body)
    return dialog


@contextmanager
def client(servers: Servers, database: str, instance: str) -> Iterator[Broker]:
    """A client that leaves its transactions to `konverse transmit`."""
    with connected(servers.bootstrap, database, instance=instance, transmit=False, send_timeout_s=5) as broker:
        open_shop(broker)
        yield broker


@contextmanager
def transmitting(servers: Servers, database: str, instance: str) -> Iterator[None]:
    """Transmit in a thread, as `konverse transmit` does, while the block runs."""
    with connected(servers.bootstrap, database, instance=instance) as broker, broker.transmitter() as reader:
        thread = threading.Thread(target=lambda: [*reader])
        thread.start()
        try:
            yield
        finally:
            reader.close()
            thread.join(DEADLINE_S)


def delete_all(servers: Servers, instance: str) -> int:
    """Delete the records of the data topic. Returns the partition that held some."""
    topic, admin = transmission_topic(instance), AdminClient({"bootstrap.servers": servers.bootstrap})
    partitions = admin.list_topics(topic, timeout=10).topics[topic].partitions
    (used,) = [number for number in partitions if read_raw(servers.bootstrap, topic, number)]
    place = TopicPartition(topic, used, -1)
    admin.delete_records([place])[place].result(DEADLINE_S)
    return used


def unknown(broker: Broker) -> None:
    with pytest.raises(OutcomeUnknown, match="have not arrived within"):
        broker.flush(2)


def flush_until_known(broker: Broker) -> None:
    """Wait until a `flush` returns, or raises something else than OutcomeUnknown."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        try:
            broker.flush(5)
        except OutcomeUnknown:
            if time.monotonic() > deadline:
                raise
        else:
            return


def loses_its_transaction(broker: Broker, lost: Dialog) -> None:
    """The next transaction takes effect, and a flush reports the lost one. Both dialogs are as their errors say."""
    transact(broker, b"the next one")
    with pytest.raises(TransactionLost, match=f"1 transaction did not happen.*{lost.id}.*{LOST}"):
        flush_until_known(broker)


def test_a_transaction_that_was_deleted_unread_is_reported_lost_and_the_next_one_takes_effect(
    servers: Servers, database: str, instance: str
) -> None:
    with client(servers, database, instance) as broker:
        lost = transact(broker, b"deleted")
        unknown(broker)
        number = delete_all(servers, instance)
        with transmitting(servers, database, instance):
            loses_its_transaction(broker, lost)
        assert [message.body for message in receive(broker, "Orders", 1)] == [b"the next one"]
        queue = broker.operations.transmission_queue()
        assert queue is not None
        findings = verify(servers.bootstrap, [queue])
        assert [(found.rule, found.partition) for found in findings] == [("lost", f"{queue.topic}/{number}")] * 2
        of_the_writer, of_the_log = sorted(found.text for found in findings)
        assert "were deleted before they were received" in of_the_log
        assert "were acknowledged by Kafka before" in of_the_writer


def test_a_transmission_queue_goes_on_after_accept_loss_and_the_clients_flush_names_the_transaction(
    servers: Servers, database: str, instance: str
) -> None:
    with client(servers, database, instance) as broker:
        transact(broker, b"the first one")
        with transmitting(servers, database, instance):
            broker.flush(DEADLINE_S)
        lost = transact(broker, b"deleted")
        unknown(broker)
        number = delete_all(servers, instance)
        with (
            connected(servers.bootstrap, database, instance=instance) as another,
            another.transmitter() as reader,
            pytest.raises(PartitionHalted, match=f"konverse accept-loss transmission {number}"),
        ):
            next(reader)
        unknown(broker)
        code, out, error = konverse(servers, database, "accept-loss", "transmission", str(number), "--yes")
        assert (code, error) == (0, "")
        assert f"partition {number} of queue 'transmission' can be read again" in out
        with transmitting(servers, database, instance):
            loses_its_transaction(broker, lost)
        assert {message.body for message in receive(broker, "Orders", 2)} == {b"the first one", b"the next one"}
