"""Behaviour 213: savepoints of a transaction."""

from __future__ import annotations

import pytest

from konverse.bridge.broker import Broker
from konverse.dialog.transaction.transaction import Transaction
from konverse.schemas.errors import SavepointNotFound
from tests.kit.shop import NOTE, ORDER, RECEIPT, begin, drain, fill, handle, receive, send_orders

pytestmark = pytest.mark.stack


def test_213_a_savepoint_gives_the_message_back_and_keeps_the_lock(broker: Broker) -> None:
    send_orders(broker, dialogs=1, messages=2)
    with broker.reader("Orders", timeout=1) as reader:
        fill(reader, 2)
        with next(reader) as transaction:
            transaction.savepoint("before receive")
            (first,) = transaction.receive(1)
            transaction.send(first.dialog, RECEIPT, b"not sent")
            transaction.rollback("before receive")
            assert list(reader) == [], "nobody else gets the group"
            (again,) = transaction.receive(1)
            assert again == first
            transaction.send(again.dialog, RECEIPT, b"sent")
            transaction.savepoint("before receive")
            (second,) = transaction.receive(1)
            transaction.rollback("before receive")
        with next(reader) as transaction:
            assert list(transaction) == [second]
            with pytest.raises(SavepointNotFound) as unknown:
                transaction.rollback("before receive")
            assert unknown.value.number == 6401
        reader.settle()
    assert [message.body for message in receive(broker, "Shop", 1)] == [b"sent"]


def test_213_operations_after_a_savepoint_have_no_effect_when_rolled_back(broker: Broker) -> None:
    begin(broker).send(ORDER)
    broker.flush()

    def change_ones_mind(transaction: Transaction) -> None:
        list(transaction)
        transaction.send(transaction.dialog, RECEIPT, b"1")
        transaction.savepoint("here")
        transaction.end(transaction.dialog, error=7, description="no")
        transaction.rollback("here")
        transaction.set_timer(transaction.dialog, 0.1)
        transaction.rollback("here")
        transaction.send(transaction.dialog, RECEIPT, b"2")

    handle(broker, "Orders", change_ones_mind)
    assert [message.body for message in receive(broker, "Shop", 2)] == [b"1", b"2"]
    assert drain(broker, "Orders") == []


def test_213_a_client_goes_back_in_its_transaction(broker: Broker) -> None:
    dialog = begin(broker)
    with broker.transaction() as transaction:
        transaction.send(dialog, ORDER, b"1")
        transaction.savepoint("here")
        transaction.send(dialog, NOTE, b"2")
        transaction.end(dialog, error=7, description="no")
        transaction.rollback("here")
        transaction.send(dialog, ORDER, b"3")
    broker.flush()
    assert [message.body for message in receive(broker, "Orders", 2)] == [b"1", b"3"]
