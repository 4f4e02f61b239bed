"""Behaviours 30 to 43: BEGIN DIALOG."""

from __future__ import annotations

import pytest

from konverse.bridge.broker import Broker
from konverse.dialog.transaction import Message, Transaction
from konverse.schemas.catalog import DEFAULT
from konverse.schemas.errors import ContractNotFound, ServiceNotFound
from konverse.schemas.records import Role
from tests.kit.shop import NOTE, ORDER, ORDER_SERVICE, ORDERING, SHOP_SERVICE, begin, drain, handle, receive

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
