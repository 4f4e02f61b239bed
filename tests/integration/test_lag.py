"""`konverse lag`: what waits, since when and what is parked, by the logs alone."""

from __future__ import annotations

import json
import time

import pytest

from konverse.bridge.broker import Broker
from konverse.bridge.views.lag import PartitionLag
from tests.kit.commands import run
from tests.kit.servers import Servers
from tests.kit.shop import ORDER, begin, connected, handle, open_shop, pumped, receive, until

pytestmark = pytest.mark.stack


def lag(broker: Broker, queue: str = "Orders") -> PartitionLag:
    (found,) = broker.operations.lag(queue)
    return found


def test_messages_wait_in_the_log_then_in_the_queue_then_parked_and_then_nowhere(
    servers: Servers, database: str
) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        assert lag(broker) == PartitionLag("Orders", 0)
        parked, other = begin(broker), begin(broker)
        parked.send(ORDER, b"one")
        broker.flush()
        time.sleep(1.2)  # the age is counted from the oldest message
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
            assert (lag(broker).parked, lag(broker).parked_messages, lag(broker).messages) == (1, 2, 3)
        assert handle(broker, "Orders", lambda transaction: [one.body for one in transaction]) == [b"two"]
        left = lag(broker)
        assert (left.messages, left.parked, left.parked_messages, left.reader) == (2, 1, 2, False)
        with broker.reader("Orders") as reader, pumped(reader):
            broker.operations.resume(parked.id, queue="Orders")
        assert len(receive(broker, "Orders", 2)) == 2
        assert lag(broker)[2:-2] == (0, 0, None, 0, 0)


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
