"""Behaviours 1 to 10: names and message types."""

from __future__ import annotations

import pytest

from konverse.bridge.broker import Broker
from konverse.schemas.catalog import DEFAULT, END_DIALOG, ERROR, Contract, MessageType
from konverse.schemas.errors import MessageTypeNotFound, QueueNotFound, ServiceNotFound
from tests.kit.shop import NOTE, ORDER, ORDER_SERVICE, ORDERING, SHOP_SERVICE, begin, pumped, receive

pytestmark = pytest.mark.stack


def test_001_names_are_compared_byte_by_byte(broker: Broker) -> None:
    """In part: there are no routes and priorities yet."""
    with pytest.raises(ServiceNotFound, match="byte by byte"):
        broker.begin_dialog(SHOP_SERVICE.lower(), ORDER_SERVICE, ORDERING)
    with pytest.raises(ServiceNotFound):
        broker.begin_dialog(SHOP_SERVICE, ORDER_SERVICE.upper(), ORDERING)
    with pytest.raises(QueueNotFound):
        broker.reader("orders")
    with pytest.raises(MessageTypeNotFound):
        begin(broker).send(ORDER.lower())


@pytest.mark.parametrize("body", [b"", b"\x00\xff no text at all", b"<not xml"])
def test_002_a_type_without_validation_takes_any_body_and_none(broker: Broker, body: bytes) -> None:
    begin(broker).send(ORDER, body)
    broker.flush()
    assert [message.body for message in receive(broker, "Orders", 1)] == [body]


def test_008_a_database_is_born_with_the_type_and_the_contract_default(broker: Broker) -> None:
    """In part: the catalog does not list the system types."""
    assert broker.catalog.get(MessageType, DEFAULT).validation == "NONE"
    assert {name: side.value for name, side in broker.catalog.get(Contract, DEFAULT).sent_by.items()} == {
        DEFAULT: "ANY"
    }
    broker.create_service("//sales/Anything", queue="Orders", contracts=[DEFAULT])
    broker.begin_dialog(SHOP_SERVICE, "//sales/Anything").send(body=b"of the default type")
    broker.flush()
    assert [(message.type, message.body) for message in receive(broker, "Orders", 1)] == [
        (DEFAULT, b"of the default type")
    ]


def test_009_system_messages_arrive_under_every_contract(broker: Broker) -> None:
    """In part: there are no dialog timers yet."""
    assert not {END_DIALOG, ERROR} & set(broker.catalog.get(Contract, ORDERING).sent_by)
    for error in (0, 1):
        dialog = begin(broker)
        dialog.send(NOTE)
        dialog.end(error=error, description="no more" if error else "")
    broker.flush()
    with broker.reader("Shop") as shop, pumped(shop):
        types = {message.type for message in receive(broker, "Orders", 4)}
    assert types == {NOTE, END_DIALOG, ERROR}
