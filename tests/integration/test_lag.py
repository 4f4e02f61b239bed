"""`konverse lag`: what waits, since when and what is suspended, by the logs alone."""

from __future__ import annotations

import json

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from konverse.bridge.broker import Broker
from konverse.bridge.views.lag import PartitionLag
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.identifiers import journal_topic
from tests.kit.commands import run
from tests.kit.servers import Servers
from tests.kit.shop import ORDER, begin, connected, handle, open_shop, pumped, receive, until

pytestmark = pytest.mark.stack


def lag(broker: Broker, queue: str = "Orders") -> PartitionLag:
    (found,) = broker.operations.lag(queue)
    return found


def test_messages_wait_in_the_log_then_in_the_queue_then_suspended_and_then_nowhere(
    servers: Servers, database: str
) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        assert lag(broker) == PartitionLag("Orders", 0, 0, 0, None, 0, 0, reader=False)
        parked, other = begin(broker), begin(broker)
        parked.send(ORDER, b"one")
        broker.flush()
        until(lambda: (lag(broker).oldest_s or 0) > 1.2, "it waits")  # the age is that of the oldest message
        for dialog in (parked, other):
            dialog.send(ORDER, b"two")
        broker.flush()
        unread = lag(broker)
        assert (unread.messages, unread.offsets, unread.reader) == (0, 3, False)
        assert 1.2 <= (unread.oldest_s or 0) < 60
        with broker.reader("Orders") as reader, pumped(reader):
            until(lambda: lag(broker).messages == 3, "they are in the queue")
            until(lambda: lag(broker).reader, "and it has a reader")
            assert lag(broker).offsets == 0
            assert (lag(broker).oldest_s or 0) > (unread.oldest_s or 0)
            broker.operations.suspend(parked.id, queue="Orders")
            assert (lag(broker).suspended, lag(broker).suspended_messages, lag(broker).messages) == (1, 2, 3)
        assert handle(broker, "Orders", lambda transaction: [one.body for one in transaction]) == [b"two"]
        left = lag(broker)
        assert (left.messages, left.suspended, left.suspended_messages, left.reader) == (2, 1, 2, False)
        with broker.reader("Orders") as reader, pumped(reader):
            broker.operations.resume(parked.id, queue="Orders")
        assert len(receive(broker, "Orders", 2)) == 2
        assert lag(broker)[2:7] == (0, 0, None, 0, 0)


def test_a_table_for_people_and_json_for_machines(servers: Servers, database: str) -> None:
    """All queues of the database, and the transmission queue once it exists."""
    where = ("--kafka", f"kafka://{servers.bootstrap}", "--database", database)
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker, partitions=2)
        begin(broker).send(ORDER, b"x")
        broker.flush()
        code, out, _ = run("lag", *where, "--json")
    assert code == 0
    found = json.loads(out)
    own = [row for row in found if row["queue"] in {"Orders", "Shop"}]
    assert [(row["queue"], row["partition"]) for row in own] == [("Orders", 0), ("Orders", 1), ("Shop", 0)]
    assert sorted(row["offsets"] for row in own) == [0, 1, 1], "the message, and the record of its home"
    code, out, _ = run("lag", "Shop", *where)
    assert code == 0
    assert "0 messages wait, " in out
    assert "NO READER" in out
    code, _, err = run("lag", "Nowhere", *where)
    assert (code, "there is no queue 'Nowhere'" in err) == (2, True)


def test_deleted_records_and_an_open_transaction_are_shown_and_hide_no_other_partition(
    servers: Servers, database: str
) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        topic = broker.catalog.get(Queue, "Orders").topic
        for body in (b"deleted", b"waits"):
            begin(broker).send(ORDER, body)
        broker.flush()
        place = TopicPartition(topic, 0, 1)
        admin = AdminClient({"bootstrap.servers": servers.bootstrap})
        admin.delete_records([place])[place].result(30)
        deleted = lag(broker)
        assert (deleted.offsets, deleted.unreadable, deleted.oldest_s is not None) == (2, "", True)
        stranger = Producer({"bootstrap.servers": servers.bootstrap, "transactional.id": database})
        stranger.init_transactions(30)
        stranger.begin_transaction()
        stranger.produce(topic, b"never committed")
        stranger.flush(30)
        try:
            held = lag(broker)
            assert (held.offsets, "open transaction" in held.held_up) == (3, True)
            code, out, _ = run("lag", "--kafka", f"kafka://{servers.bootstrap}", "--database", database)
            assert (code, "Orders/0: " in out, "Shop" in out) == (0, True, True)
        finally:
            stranger.abort_transaction(30)


def test_a_partition_that_cannot_be_read_says_so_and_an_ended_conversation_is_not_suspended(
    servers: Servers, database: str
) -> None:
    where = ("--kafka", f"kafka://{servers.bootstrap}", "--database", database)
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        dialog = begin(broker)
        dialog.send(ORDER, b"x")
        broker.flush()
        with broker.reader("Orders") as reader, pumped(reader):
            until(lambda: lag(broker).messages == 1, "it is there")
            broker.operations.suspend(dialog.id, queue="Orders")
            assert lag(broker).suspended == 1
            broker.operations.end(dialog.id, error=1, description="no", queue="Orders")
            assert (lag(broker).suspended, [*broker.operations.suspended("Orders")]) == (0, [[]])
        journal = journal_topic(broker.catalog.get(Queue, "Orders").topic)
        admin = AdminClient({"bootstrap.servers": servers.bootstrap})
        admin.delete_topics([journal])[journal].result(30)
        unread = until(lambda: lag(broker).unreadable, "the deletion is noticed")
        code, out, _ = run("lag", *where)
        assert (code, "1 partition cannot be read" in out) == (0, True)
        code, out, _ = run("lag", "Orders", *where, "--json")
        assert code == 7
        (row,) = json.loads(out)
        assert (row["messages"], row["unreadable"]) == (None, unread)
