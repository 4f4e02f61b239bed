"""Data deleted before it was received: the journal records the loss, both sides get Errors, and the rest goes on."""

from __future__ import annotations

import json
import logging
from typing import Final

import pytest

from konverse.bridge.broker import Broker
from konverse.bridge.cli.main import app
from konverse.bridge.reader.reader import Reader
from konverse.dialog.transaction.received import Message
from konverse.schemas.system_messages import ERROR, read_error
from tests.kit.commands import CliRunner
from tests.kit.oracle import snapshots_of, verify
from tests.kit.pools import open_stream, pool_of
from tests.kit.servers import Servers
from tests.kit.shop import (
    DEADLINE_S,
    ORDER,
    begin,
    connected,
    cut,
    drain,
    fill,
    open_shop,
    pumped,
    queue_of,
    receive,
    send_orders,
    until,
    work,
)

pytestmark = pytest.mark.stack


def taken(reader: Reader) -> list[Message]:
    """All messages until the reader ends."""
    received: list[Message] = []
    for transaction in reader:
        with transaction:
            received += transaction
    return received


def lost(reader: Reader) -> int:
    work(reader)
    return sum(owner.fold.state.statistics.lost for owner in reader.owners)


def bodies(received: list[Message]) -> list[bytes]:
    """Bodies of the orders."""
    return [message.body for message in received if message.type == ORDER]


def new_ones(broker: Broker) -> list[bytes]:
    """Messages of new dialogs of the same session, as received."""
    dialog = begin(broker)
    for number in range(5):
        dialog.send(ORDER, b"new %d" % number)
        broker.flush()
    return bodies(receive(broker, "Orders", 5))


def received_from_another(servers: Servers, database: str) -> list[bytes]:
    """Messages of another session, which has lost nothing, as received."""
    with connected(servers.bootstrap, database) as another:
        begin(another).send(ORDER, b"new")
        another.flush()
        return bodies(receive(another, "Orders", 1))


def refuted(servers: Servers, database: str) -> tuple[int, list[str]]:
    """Exit code and findings of `konverse verify`."""
    options = ["--kafka", f"kafka://{servers.bootstrap}", "--database", database, "--json"]
    result = CliRunner().invoke(app, ["verify", *options])
    assert result.stdout, result.stderr
    return result.exit_code, [f"{one['kind']}: {one['text']}" for one in json.loads(result.stdout)["findings"]]


NEW: Final = [b"new %d" % number for number in range(5)]


def test_a_sender_whose_record_was_deleted_is_received_directly_and_by_its_pool(
    servers: Servers, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        open_stream(broker)
        alone, pool = begin(broker), pool_of(broker, size=1)
        alone.send(ORDER, b"lost")
        pool.send(ORDER, b"lost by the pool")
        broker.flush()
        cut(broker, 2)
        with caplog.at_level(logging.ERROR):
            assert drain(broker, "Orders") == []
        assert "LOST: the records 0 to 1 of" in caplog.text
        code, findings = refuted(servers, database)
        assert (code, len(findings)) == (1, 1)
        assert "lost: the records 0 to 1 were deleted before they were received" in findings[0]
        assert new_ones(broker) == NEW, "nothing of this session is dropped behind what is gone"
        with broker.reader("Shop") as home, pumped(home):
            for number in range(3):
                pool.send(ORDER, b"pool %d" % number)
            broker.flush()
            received: list[bytes] = []

            def all_of_it() -> bool:
                received.extend(bodies(drain(broker, "Orders")))
                return len(received) >= 3

            until(all_of_it, "what the pool sent is received")
        assert received == [b"pool 0", b"pool 1", b"pool 2"], "what came back was sent again, once and in order"


def test_records_deleted_before_receipt_are_reported_lost_and_new_dialogs_work(
    servers: Servers, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        old = begin(broker)
        for number in range(5):
            old.send(ORDER, b"old %d" % number)
        broker.flush()
        cut(broker, 3)
        with caplog.at_level(logging.ERROR):
            assert drain(broker, "Orders") == [], "nobody knows what its conversation began with"
        assert "LOST: the records 0 to 2 of" in caplog.text
        (told,) = receive(broker, "Shop", 1)
        assert (told.type, told.dialog.id) == (ERROR, old.id)
        assert read_error(told.body)[0] == -9719
        assert [one.body for one in old.bounced(timeout=DEADLINE_S)] == [b"old 3", b"old 4"]
        assert new_ones(broker) == NEW
        (finding,) = verify(servers.bootstrap, [queue_of(broker, "Orders"), queue_of(broker, "Shop")])
        assert (finding.rule, "records 0 to 2" in finding.text) == ("lost", True), "also from the snapshot behind it on"


def test_a_conversation_that_may_miss_a_message_gets_an_error_on_both_sides_and_the_next_owner_recovers(
    servers: Servers, database: str
) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        (dialog,) = map(bytes, send_orders(broker, dialogs=1, messages=4))
        with broker.reader("Orders", timeout=1) as reader:
            fill(reader, 4)
            reader.settle()
            reader._assignment.consumer.pause(reader._assignment.consumer.assignment())  # otherwise it reads ahead
            late = begin(broker)
            late.send(ORDER, b"late")
            broker.flush()
            cut(broker, 5)
            reader._assignment.consumer.resume(reader._assignment.consumer.assignment())
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
        assert new_ones(broker) == NEW
