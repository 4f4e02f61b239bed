"""Behaviours 30 to 43: BEGIN DIALOG."""

from __future__ import annotations

import uuid
from contextlib import suppress

import pytest

from konverse.bridge.broker import Broker
from konverse.dialog.begun import Begun
from konverse.dialog.received import Message
from konverse.dialog.transaction import Transaction
from konverse.schemas.catalog import DEFAULT
from konverse.schemas.errors import ContractNotFound, DialogNotFound, ForeignGroup, ServiceNotFound
from konverse.schemas.records import Role
from tests.kit.shop import (
    NOTE,
    ORDER,
    ORDER_SERVICE,
    ORDERING,
    RECEIPT,
    SHOP_SERVICE,
    answer,
    begin,
    drain,
    fill,
    handle,
    receive,
)

pytestmark = pytest.mark.stack


def test_031_nothing_reaches_the_target_before_the_first_send(broker: Broker) -> None:
    begin(broker)
    broker.flush()
    with broker.reader("Orders", timeout=1) as reader:
        assert list(reader) == []
        assert reader.conversations == 0
    with broker.reader("Shop", timeout=1) as reader:
        assert list(reader) == []
        assert reader.conversations == 1


def test_032_an_unknown_service_or_contract_fails(broker: Broker) -> None:
    with pytest.raises(ServiceNotFound) as no_service:
        broker.begin_dialog("//sales/Nobody", ORDER_SERVICE, ORDERING)
    assert no_service.value.number == 8423
    with pytest.raises(ContractNotFound) as no_contract:
        broker.begin_dialog(SHOP_SERVICE, ORDER_SERVICE, "//sales/Unheard")
    assert no_contract.value.number == 8425


def test_033_without_a_contract_it_is_default(broker: Broker) -> None:
    broker.create_service("//sales/Anything", queue="Orders", contracts=[DEFAULT])
    dialog = broker.begin_dialog(SHOP_SERVICE, "//sales/Anything")
    assert dialog.begin.contract == DEFAULT


def test_034_unrelated_dialogs_have_groups_of_their_own(broker: Broker) -> None:
    groups = {begin(broker).begin.group for _ in range(10)}
    assert len(groups) == 10


def test_035_a_related_dialog_joins_the_group_of_the_other(broker: Broker) -> None:
    first = begin(broker)
    second = begin(broker, related_to=first)
    assert second.begin.group == first.begin.group
    for dialog in (first, second):
        dialog.send(NOTE)
    broker.flush()
    with broker.reader("Orders", timeout=1) as reader:
        for transaction in reader:
            with transaction:
                for message in transaction:
                    transaction.send(message.dialog, NOTE, b"back")
    assert {message.dialog.group_id for message in receive(broker, "Shop", 2)} == {first.begin.group}


def test_035_a_handler_gathers_the_answers_to_what_it_asked_in_the_group_of_the_order(broker: Broker) -> None:
    """Fan-out and fan-in: the order, what was asked for it and the answers are one group, locked as one."""
    broker.create_service("//sales/Depot", queue="Shop", contracts=[ORDERING])
    begin(broker).send(ORDER, b"two lamps")
    broker.flush()

    def ask(transaction: Transaction) -> list[Begun]:
        (order,) = transaction
        asked = [transaction.begin(ORDER_SERVICE, "//sales/Depot", ORDERING, related_to=order.dialog) for _ in range(3)]
        for number, dialog in enumerate(asked):
            transaction.send(dialog, ORDER, b"%d" % number)
        return asked

    asked = handle(broker, "Orders", ask)
    with broker.reader("Shop", timeout=2) as reader:
        fill(reader, 3)
        answer(reader)
    gathered: list[bytes] = []
    with broker.reader("Orders", timeout=2) as reader:
        fill(reader, 3)
        for transaction in reader:
            with transaction:
                gathered += [message.body for message in transaction]
                assert {dialog.id for dialog in asked} < {dialog.id for dialog in transaction.dialogs}
                order = next(dialog for dialog in transaction.dialogs if not dialog.is_initiator)
                if len(gathered) == len(asked):
                    transaction.send(order, RECEIPT, b", ".join(sorted(gathered)))
        reader.settle()
    (receipt,) = receive(broker, "Shop", 1)
    assert receipt.body == b"re 0, re 1, re 2"


def test_035_an_unknown_handle_fails(broker: Broker) -> None:
    begin(broker).send(ORDER)
    broker.flush()

    def find(transaction: Transaction) -> None:
        list(transaction)
        with pytest.raises(DialogNotFound) as unknown:
            transaction.find(uuid.uuid4())
        assert unknown.value.number == 8426

    handle(broker, "Orders", find)


def test_037_a_dialog_of_another_service_cannot_join_a_group(broker: Broker) -> None:
    broker.create_service("//sales/Depot", queue="Shop")
    dialog = begin(broker)
    with pytest.raises(ForeignGroup) as foreign:
        broker.begin_dialog("//sales/Depot", ORDER_SERVICE, ORDERING, related_to=dialog)
    assert foreign.value.number == 9610


def test_037_nor_can_one_that_a_handler_begins(broker: Broker) -> None:
    broker.create_service("//sales/Depot", queue="Orders")
    begin(broker).send(ORDER)
    broker.flush()

    def ask(transaction: Transaction) -> None:
        (order,) = transaction
        with pytest.raises(ForeignGroup) as foreign:
            transaction.begin("//sales/Depot", ORDER_SERVICE, ORDERING, related_to=order.dialog)
        assert foreign.value.number == 9610

    handle(broker, "Orders", ask)


def test_040_a_begin_that_is_rolled_back_leaves_nothing(broker: Broker) -> None:
    begin(broker).send(ORDER)
    broker.flush()
    with broker.reader("Orders") as reader:
        with suppress(ZeroDivisionError), next(iter(reader)) as transaction:
            (order,) = transaction
            related = transaction.begin(ORDER_SERVICE, ORDER_SERVICE, ORDERING, related_to=order.dialog)
            transaction.send(related, ORDER)
            raise ZeroDivisionError
        with next(iter(reader)) as transaction:
            assert [message.body for message in transaction] == [b""]
            assert transaction.dialogs == [transaction.dialog]
        reader.settle()
        assert reader.conversations == 1
    assert drain(broker, "Orders") == []


def test_041_both_sides_know_the_conversation_by_one_id_and_are_told_apart_by_their_role(broker: Broker) -> None:
    dialog = begin(broker)
    dialog.send(NOTE)
    broker.flush()

    def answer(transaction: Transaction) -> Message:
        (message,) = transaction
        transaction.send(message.dialog, NOTE)
        return message

    message = handle(broker, "Orders", answer)
    (reply,) = receive(broker, "Shop", 1)
    assert message.dialog.id == reply.dialog.id == dialog.id
    assert (message.dialog.role, reply.dialog.role) == (Role.TARGET, Role.INITIATOR)
    assert (message.dialog.is_initiator, reply.dialog.is_initiator) == (False, True)


def test_041_a_begin_that_is_repeated_gives_the_same_conversation(broker: Broker) -> None:
    first = begin(broker)
    again = begin(broker, conversation_id=first.id)
    again.send(ORDER, b"0")
    first.send(ORDER, b"1")
    broker.flush()
    assert {(message.dialog.id, message.sequence) for message in drain(broker, "Orders")} == {
        (first.id, 0),
        (first.id, 1),
    }
