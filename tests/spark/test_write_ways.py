"""The order on one side of a dialog that Spark writes on: batches, handlers of `from_service`, adoption, operators.

Messages reported as done before another call began arrive first. No other sender exists there: a conversation of Spark
belongs to no session, so without an adoption it has no direct sends; an adopted dialog takes no transaction; and pools
have conversations of their own. test_ways.py and test_ways_elsewhere.py of the integration tests have the other pairs.
"""

from __future__ import annotations

from itertools import product
from typing import Final
from uuid import UUID

import pytest

from konverse.bridge.broker import Broker
from konverse.bridge.client.begin import BeginClauses
from konverse.bridge.reader.reader import Reader
from konverse.dialog.transaction.transaction import Transaction
from konverse.schemas.system_messages import END_DIALOG
from tests.kit.servers import Servers
from tests.kit.shop import NOTE, ORDER_SERVICE, ORDERING, RECEIPT, SHOP_SERVICE, drain, pumped, receive, until
from tests.spark.executions import batch_writer, run
from tests.spark.test_returned import rows_that_came_back

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.xdist_group("spark writes"),
    pytest.mark.timeout(120),
    pytest.mark.usefixtures("transmitting"),
]

ROUNDS: Final = 2
PATIENCE_S: Final = 30.0
KEY: Final = "key"


class Side:
    """The initiator's side of the conversation of one key."""

    def __init__(self, servers: Servers, database: str, reader: Reader) -> None:
        self.servers = servers
        self.database = database
        self.reader = reader

    def write(self, body: bytes) -> None:
        write(self.servers, self.database, body)

    def handle(self, body: bytes) -> None:
        with next(iter(self.reader)) as transaction:
            next(iter(transaction))
            transaction.send(transaction.dialog, NOTE, body)
        self.reader.settle()


WAYS: Final = [Side.write, Side.handle]


def write(servers: Servers, database: str, body: bytes) -> None:
    """One write of Spark, until it is decided."""
    run(batch_writer(servers.bootstrap, database, pool="ways"), [(KEY, body)])


def woken(shop: Broker, servers: Servers, database: str, times: int) -> bytes:
    """The key's conversation, begun by Spark, whose initiator has `times` receipts to handle."""
    write(servers, database, b"first")
    with shop.reader("Orders", timeout=PATIENCE_S) as reader:
        with next(iter(reader)) as transaction:
            (message,) = transaction
            for _ in range(times):
                transaction.send(message.dialog, RECEIPT)
        reader.settle()
    return message.dialog.conversation


def test_messages_reported_as_done_by_spark_and_handlers_arrive_in_that_order(
    servers: Servers, shop: Broker, database: str
) -> None:
    pairs = [*product(WAYS, repeat=2)] * ROUNDS
    conversation = woken(shop, servers, database, 2 * len(pairs))
    expected: list[bytes] = []
    with shop.reader("Shop", max_messages=1, timeout=PATIENCE_S) as reader:
        side = Side(servers, database, reader)
        for number, ways in enumerate(pairs):
            for way in ways:
                expected.append(b"%d %d %s" % (number, len(expected), way.__name__.encode()))
                way(side, expected[-1])
    came = receive(shop, "Orders", len(expected))
    assert [message.body for message in came] == expected
    assert {message.dialog.conversation for message in came} == {conversation}


def test_spark_writes_and_sends_of_an_adopting_process_arrive_in_the_order_of_their_completion(
    servers: Servers, shop: Broker, database: str
) -> None:
    conversation = UUID(bytes=woken(shop, servers, database, 1))
    write(servers, database, b"0 spark")
    with shop.reader("Orders") as orders, shop.reader("Shop") as home, pumped(orders, home):
        orders.wait_for_partitions(orders.queue.partitions)
        home.wait_for_partitions(home.queue.partitions)
        ((dialog, _),) = shop._client.adopt(
            [BeginClauses(SHOP_SERVICE, ORDER_SERVICE, ORDERING, conversation_id=conversation)]
        )
    expected = [b"0 spark"]
    for number in range(ROUNDS):
        expected += [b"%d adopted" % number, b"%d spark" % (number + 1)]
        dialog.send(NOTE, expected[-2])
        dialog.flush()
        write(servers, database, expected[-1])
    assert [message.body for message in receive(shop, "Orders", len(expected))] == expected


def fail(_: Transaction) -> None:
    raise ZeroDivisionError


def test_a_spark_write_arrives_before_an_operators_end_and_bounces_after_it(
    servers: Servers, shop: Broker, database: str
) -> None:
    woken(shop, servers, database, 1)
    with shop.reader("Shop", timeout=1.0) as reader:
        reader.run(fail)
        (suspended,) = reader.operations.suspended
        write(servers, database, b"before")
        reader.operations.end(suspended.id)
        reader.settle()
    came = receive(shop, "Orders", 2)
    assert [(message.type == END_DIALOG, message.body) for message in came] == [(False, b"before"), (True, b"")]
    write(servers, database, b"behind")
    assert drain(shop, "Orders") == []
    until(
        lambda: [row["body"] for row in rows_that_came_back(servers, database)] == [b"behind"],
        "the row behind the end is returned",
    )
