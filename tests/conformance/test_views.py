"""Behaviours in the views: states, contents of queues, and undelivered messages."""

from __future__ import annotations

import uuid
from contextlib import suppress

import pytest
from confluent_kafka.admin import AdminClient

from konverse.bridge.broker import Broker
from konverse.bridge.client.dialog import Dialog
from konverse.bridge.kafka.topics import DATA_CONFIG
from konverse.dialog.transaction.received import Message
from konverse.dialog.transaction.transaction import Transaction
from konverse.schemas.system_messages import DEFAULT, DIALOG_TIMER, END_DIALOG, ERROR
from tests.kit.servers import Servers
from tests.kit.shop import (
    NOTE,
    ORDER,
    ORDER_SERVICE,
    ORDERING,
    RECEIPT,
    SHOP_SERVICE,
    begin,
    begin_and_end_two,
    connected,
    end_at_target,
    handle,
    living,
    open_shop,
    pumped,
    queue_of,
    receive,
    until,
)
from tests.kit.topics import set_config

pytestmark = pytest.mark.stack


def states(broker: Broker, dialog: Dialog) -> dict[bool, str]:
    """`is_initiator` → state."""
    rows = broker.views.conversation_endpoints()
    return {row.is_initiator: row.state_desc for row in rows if row.conversation_id == dialog.id}


def test_008_every_database_has_the_default_and_the_system_types(broker: Broker) -> None:
    validations = {row.name: row.validation for row in broker.views.service_message_types()}
    assert validations[DEFAULT] == "N"
    assert (validations[END_DIALOG], validations[DIALOG_TIMER], validations[ERROR]) == ("E", "E", "X")
    contracts = {row.service_contract_id: row.name for row in broker.views.service_contracts()}
    types = {row.message_type_id: row.name for row in broker.views.service_message_types()}
    usages = {
        (contracts[row.service_contract_id], types[row.message_type_id]): (
            row.is_sent_by_initiator,
            row.is_sent_by_target,
        )
        for row in broker.views.service_contract_message_usages()
    }
    assert usages == {
        (DEFAULT, DEFAULT): (True, True),
        (ORDERING, ORDER): (True, False),
        (ORDERING, RECEIPT): (False, True),
        (ORDERING, NOTE): (True, True),
    }


def test_025_the_contents_of_a_queue_are_listed_without_being_consumed(broker: Broker) -> None:
    dialog = begin(broker)
    for body in (b"cup", b"pot"):
        dialog.send(ORDER, body)
    broker.flush()
    before = broker.views.contents("Orders")
    assert [row.message_body for row in before] == [b"cup", b"pot"]
    assert list(broker.views.contents("Orders")) == list(before)
    with broker.reader("Orders") as reader:
        with suppress(ZeroDivisionError), next(iter(reader)) as transaction:
            assert len(list(transaction)) == 2
            assert list(broker.views.contents("Orders")) == list(before), "a handler has them"
            raise ZeroDivisionError
        reader.settle()
        assert list(broker.views.contents("Orders")) == list(before)
    assert [message.body for message in receive(broker, "Orders", 2)] == [b"cup", b"pot"]
    assert list(broker.views.contents("Orders")) == []


def test_031_before_the_first_send_only_the_initiator_is_shown(broker: Broker) -> None:
    dialog = begin(broker)
    broker.flush()
    assert states(broker, dialog) == {True: "STARTED_OUTBOUND"}


def test_041_a_side_is_identified_by_conversation_and_role(broker: Broker) -> None:
    dialog = begin(broker)
    dialog.send(ORDER)
    broker.flush()
    rows = [row for row in broker.views.conversation_endpoints() if row.conversation_id == dialog.id]
    assert sorted(row.is_initiator for row in rows) == [False, True]
    services = {row.service_id: row.name for row in broker.views.services()}
    assert {services[row.service_id]: row.far_service for row in rows} == {
        SHOP_SERVICE: ORDER_SERVICE,
        ORDER_SERVICE: SHOP_SERVICE,
    }
    contracts = {row.service_contract_id: row.name for row in broker.views.service_contracts()}
    assert {contracts[row.service_contract_id] for row in rows} == {ORDERING}


def test_057_a_sent_message_is_in_the_target_queue_and_not_in_the_transmission_queue(broker: Broker) -> None:
    dialog = begin(broker)
    dialog.send(ORDER, b"here")
    broker.flush()
    (row,) = broker.views.contents("Orders")
    assert (row.status, row.message_body) == (1, b"here")
    assert list(broker.views.transmission_queue()) == []


def test_086_a_message_has_the_columns_of_receive(broker: Broker) -> None:
    """In part: only the view of the queue uses these names; a received message has attributes of its own."""
    dialog = begin(broker)
    dialog.send(ORDER, b"cup")
    dialog.send(NOTE)
    broker.flush()
    shown = broker.views.contents("Orders")
    first, second = receive(broker, "Orders", 2)
    for row, message in zip(shown, (first, second), strict=True):
        assert (row.status, row.priority, row.queuing_order) == (1, 5, message.offset)
        assert row.conversation_group_id == uuid.UUID(bytes=message.dialog.group_id)
        assert row.conversation_handle == message.dialog.id
        assert row.message_sequence_number == message.sequence
        assert (row.service_name, row.service_contract_name) == (ORDER_SERVICE, ORDERING)
        assert (row.message_type_name, row.validation) == (message.type, message.validation)
        assert (row.message_body, row.message_id) == (message.body, message.id)
    names = {row.service_id: row.name for row in broker.views.services()}
    contracts = {row.service_contract_id: row.name for row in broker.views.service_contracts()}
    types = {row.message_type_id: row.name for row in broker.views.service_message_types()}
    assert {names[row.service_id] for row in shown} == {ORDER_SERVICE}
    assert {contracts[row.service_contract_id] for row in shown} == {ORDERING}
    assert [types[row.message_type_id] for row in shown] == [ORDER, NOTE]


def test_093_a_group_is_shown_as_long_as_a_conversation_of_it_lives(broker: Broker) -> None:
    first = begin_and_end_two(broker)
    with broker.reader("Shop") as shop:
        until(lambda: living(shop) == 2, "both are here")
        shop.settle()
        (group,) = broker.views.conversation_groups("Shop")
        assert group.conversation_group_id == first.id, "the own group of the first"
        with pumped(shop):
            end_at_target(broker)
            end_at_target(broker)
        until(lambda: living(shop) == 0, "both are forgotten")
        until(lambda: not broker.views.conversation_groups("Shop"), "the group is gone")


def test_105_an_end_is_seen_on_both_sides(broker: Broker) -> None:
    dialog = begin(broker)
    dialog.send(ORDER)
    broker.flush()
    end_at_target(broker)
    assert states(broker, dialog) == {True: "DISCONNECTED_INBOUND", False: "DISCONNECTED_OUTBOUND"}


def test_113_views_show_an_error_with_its_state_and_the_unreceived_message_it_overtakes(broker: Broker) -> None:
    dialog = begin(broker)
    dialog.send(ORDER)
    broker.flush()

    def fail(transaction: Transaction) -> list[Message]:
        transaction.end(transaction.dialog, error=4711, description="no")
        return list(transaction)

    with broker.reader("Orders") as reader:  # the Error withdraws undelivered messages
        with next(iter(reader)) as transaction:
            for message in transaction:
                transaction.send(message.dialog, RECEIPT)
        with pumped(reader):
            until(lambda: [*broker.views.contents("Shop")], "the receipt has arrived")
    dialog.send(ORDER)
    broker.flush()
    handle(broker, "Orders", fail)
    rows = {row.message_type_name: row for row in broker.views.contents("Shop")}
    assert (rows[ERROR].message_sequence_number, rows[ERROR].validation) == (-1, "X")
    assert rows[RECEIPT].message_sequence_number == 0
    assert states(broker, dialog)[True] == "ERROR"


def test_150_a_message_refused_by_kafka_shows_the_failure_and_an_empty_status_means_success(
    servers: Servers, broker: Broker
) -> None:
    """And 151: the message is there until Kafka takes it."""
    dialog, other = begin(broker), begin(broker)
    dialog.send(ORDER, b"small")
    broker.flush()
    admin, topic = AdminClient({"bootstrap.servers": servers.bootstrap}), queue_of(broker, "Orders").topic
    set_config(admin, topic, "max.message.bytes", "1000")
    dialog.send(ORDER, b"x" * 5_000)
    until(lambda: broker.views.transmission_status(dialog.id), "Kafka has refused it")
    (row,) = broker.views.transmission_queue()
    assert (row.conversation_handle, row.message_sequence_number, len(row.message_body)) == (dialog.id, 1, 5_000)
    assert "size too large" in row.transmission_status
    assert not broker.views.transmission_status(other.id)
    set_config(admin, topic, "max.message.bytes", DATA_CONFIG.get("max.message.bytes", "1048588"))
    broker.flush()
    assert list(broker.views.transmission_queue()) == []
    assert not broker.views.transmission_status(dialog.id)
    assert [len(row.message_body) for row in broker.views.contents("Orders")] == [5, 5_000]


def test_150_a_message_that_cannot_leave_shows_the_reason(broker: Broker) -> None:
    """And 151: once all messages have arrived, the view is empty."""
    dialog = begin(broker)
    dialog.send(ORDER)
    dialog.end()
    broker.flush()
    (row,) = broker.views.transmission_queue()
    assert (row.message_type_name, row.is_end_of_dialog, row.is_conversation_error) == (END_DIALOG, True, False)
    assert (row.from_service_name, row.to_service_name) == (SHOP_SERVICE, ORDER_SERVICE)
    assert row.service_contract_name == ORDERING
    assert row.transmission_status == "Shop/0 has no owner"
    assert broker.views.transmission_status(dialog.id) == row.transmission_status
    assert not broker.views.transmission_status(uuid.uuid4())
    with broker.reader("Shop") as shop, pumped(shop):
        until(lambda: not broker.views.transmission_queue(), "the end has arrived")
    assert [row.message_type_name for row in broker.views.contents("Orders")] == [ORDER, END_DIALOG]


def test_150_messages_of_a_transaction_wait_for_a_transmitter(servers: Servers, database: str, instance: str) -> None:
    """And 151: it is there until the message is in its queue."""
    with connected(servers.bootstrap, database, instance=instance, transmit=False) as client:
        open_shop(client)
        with client.transaction() as transaction:
            dialog = transaction.begin(SHOP_SERVICE, ORDER_SERVICE, ORDERING)
            transaction.send(dialog, ORDER, b"cup")
            transaction.send(dialog, NOTE, b"pot")
        assert client._client.sender is not None
        client._client.sender.settle()  # Kafka has it, and no process transmits

        def rows() -> list[tuple[str, int | None, bytes, str | None]]:
            return [
                (row.message_type_name, row.message_sequence_number, row.message_body, row.to_service_name)
                for row in client.views.transmission_queue()
                if row.conversation_handle == dialog.id
            ]

        assert rows() == [(ORDER, 0, b"cup", ORDER_SERVICE), (NOTE, 1, b"pot", ORDER_SERVICE)]
        assert client.views.transmission_status(dialog.id)
        assert list(client.views.contents("Orders")) == []
        with client.transmitter() as transmitter, pumped(transmitter):
            until(lambda: not rows(), "both have arrived")
            assert [row.message_body for row in client.views.contents("Orders")] == [b"cup", b"pot"]
