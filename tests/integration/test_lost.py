"""Data that somebody deletes before it was received: said in the journal, told to both sides, and the rest goes on."""

from __future__ import annotations

import logging

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from konverse.bridge.broker import Broker
from konverse.bridge.reader import Reader
from konverse.dialog.received import Message
from konverse.schemas.catalog import ERROR
from konverse.schemas.system_messages import read_error
from tests.kit.oracle import snapshots_of, verify
from tests.kit.servers import Servers
from tests.kit.shop import (
    DEADLINE_S,
    ORDER,
    begin,
    connected,
    drain,
    fill,
    open_shop,
    queue_of,
    receive,
    send_orders,
    until,
    work,
)

pytestmark = pytest.mark.stack


def cut(servers: Servers, broker: Broker, offset: int) -> None:
    """Delete the data of Orders before this offset."""
    place = TopicPartition(queue_of(broker, "Orders").topic, 0, offset)
    admin = AdminClient({"bootstrap.servers": servers.bootstrap})
    admin.delete_records([place])[place].result(DEADLINE_S)


def taken(reader: Reader) -> list[Message]:
    """Everything until the reader ends."""
    received: list[Message] = []
    for transaction in reader:
        with transaction:
            received += transaction
    return received


def received_from_another(servers: Servers, database: str) -> list[bytes]:
    """What a session sends that has lost nothing; who has is told of the gap, and goes on under another id."""
    with connected(servers.bootstrap, database) as another:
        begin(another).send(ORDER, b"new")
        another.flush()
        return [message.body for message in receive(another, "Orders", 1)]


def lost(reader: Reader) -> int:
    work(reader)
    return sum(owner.fold.state.statistics.lost for owner in reader.owners)


def test_what_was_deleted_before_anybody_received_it_is_said_to_be_lost_and_new_dialogs_work(
    servers: Servers, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        old = begin(broker)
        for number in range(5):
            old.send(ORDER, b"old %d" % number)
        broker.flush()
        cut(servers, broker, 3)
        with caplog.at_level(logging.ERROR):
            assert drain(broker, "Orders") == [], "what follows a gap is not received"
        assert "LOST: the records 0 to 2 of" in caplog.text
        assert received_from_another(servers, database) == [b"new"]
        queues = [queue_of(broker, "Orders"), queue_of(broker, "Shop")]
        (finding,) = verify(servers.bootstrap, queues)
        assert finding.rule == "lost", "nothing else, from the snapshot on with which the loss was said"
        assert "the records 0 to 2 were deleted before they were received" in finding.text


def test_who_may_have_missed_something_gets_an_error_on_both_sides_and_the_next_owner_recovers(
    servers: Servers, database: str
) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        (dialog,) = map(bytes, send_orders(broker, dialogs=1, messages=4))
        with broker.reader("Orders", timeout=1) as reader:
            fill(reader, 4)
            reader.settle()
            reader._share.consumer.pause(reader._share.consumer.assignment())  # it reads ahead otherwise
            late = begin(broker)
            late.send(ORDER, b"late")
            broker.flush()
            cut(servers, broker, 5)
            reader._share.consumer.resume(reader._share.consumer.assignment())
            until(lambda: lost(reader), "the owner says LOST")
            received = taken(reader)
        assert [message.type for message in received] == [ERROR, *[ORDER] * 4], "what was read before is not lost"
        code, text = read_error(received[0].body)
        assert code == -9719
        assert "its records 4 to 4 were deleted" in text
        (told,) = receive(broker, "Shop", 1)
        assert (told.type, told.dialog.id.bytes) == (ERROR, dialog)
        assert read_error(told.body) == (code, text)
        until(
            lambda: snapshots_of(servers.bootstrap, queue_of(broker, "Orders")),
            "a snapshot that does not need what is gone",
        )
        assert received_from_another(servers, database) == [b"new"]
