"""Behaviours 80 and 82: the rows of RECEIVE, and messages that it does not return yet."""

from __future__ import annotations

import uuid
from typing import Any, cast

import pytest
from confluent_kafka import Producer

from konverse.bridge.broker import Broker
from konverse.dialog.batch.task import ProduceRow, Task, TaskOf
from konverse.schemas.errors import BadInput
from konverse.schemas.identifiers import Role
from konverse.schemas.wire.batches import encode_winners
from konverse.schemas.wire.envelope import HEADER, encode_envelope
from konverse.schemas.wire.records import NO_SEQUENCE, Begin, Decision, Envelope, Kind, Suffix
from tests.kit.batches import first_row, further_row
from tests.kit.servers import Servers
from tests.kit.shop import NOTE, ORDER, ORDER_SERVICE, ORDERING, SHOP_SERVICE, drain, queue_of, receive, sent

pytestmark = pytest.mark.stack


def test_080_receive_has_one_form(broker: Broker) -> None:
    """Deviates: RECEIVE only returns rows; it has no variables or tables that could be mixed with them."""
    dialog = sent(broker, b"one", b"two")
    with broker.reader("Orders") as reader:
        receive_into = cast("Any", reader.receive)
        with pytest.raises(BadInput, match="no argument 'into'"):
            receive_into(dialog=dialog.id, into=[])
        transaction = reader.receive(dialog=dialog.id, timeout=60)
        assert transaction is not None
        with transaction:
            rows = transaction.receive()
            assert [(row.type, row.body, row.sequence) for row in rows] == [(ORDER, b"one", 0), (ORDER, b"two", 1)]
            assert all(isinstance(row, tuple) for row in rows)


def test_082_messages_of_an_incomplete_or_unordered_batch_are_not_received(broker: Broker, servers: Servers) -> None:
    """Rows of a batch query are complete and in order once their batch is decided."""
    orders, shop = queue_of(broker, "Orders").address(0), queue_of(broker, "Shop").address(0)
    query, conversation = uuid.uuid4().bytes, uuid.uuid4().bytes
    judge = uuid.uuid4().bytes
    task = Task(TaskOf(query, shop, judge, uuid.uuid4().bytes, batch=0, number=0), uuid.uuid4().bytes)
    begin = Begin(SHOP_SERVICE, ORDER_SERVICE, ORDERING, shop, orders, conversation, None)
    rows = [
        first_row(task, conversation, begin, ORDER, b"first"),
        further_row(task, conversation, begin, NOTE, b"second"),
    ]
    with Producer({"bootstrap.servers": servers.bootstrap}) as producer:

        def write(row: ProduceRow) -> None:
            address, (header, key, body) = row
            producer.produce(address.topic, body, key, address.partition, headers=[(HEADER, header)])
            producer.flush()

        for row in reversed(rows):
            write(row)
            assert drain(broker, "Orders") == []
        shown = broker.views.contents("Orders")
        assert sorted((one.status, one.message_body) for one in shown) == [(2, b"first"), (2, b"second")]
        detail = Decision(query, 0, begins=False, final=True)
        decided = Envelope(
            Kind.DECISION, 0, Role.INITIATOR, orders.tag, judge, query, 0, NO_SEQUENCE, Suffix(detail=detail)
        )
        write(ProduceRow(orders, (encode_envelope(decided), query, encode_winners(((task.attempt, 2),)))))
    messages = receive(broker, "Orders", 2)
    assert [(message.sequence, message.body) for message in messages] == [(0, b"first"), (1, b"second")]
