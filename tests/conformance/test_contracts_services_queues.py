"""Behaviours 11 to 29: contracts, services and queues."""

from __future__ import annotations

import pytest

from konverse.bridge.broker import Broker
from konverse.schemas.errors import AlreadyExists, ContractTwice, InvalidContract, InvalidName
from tests.kit.shop import ORDER, ORDER_SERVICE, ORDERING, RECEIPT, SHOP_SERVICE, begin, receive

pytestmark = pytest.mark.stack


def test_011_a_contract_in_which_the_initiator_may_send_nothing_is_refused(broker: Broker) -> None:
    with pytest.raises(InvalidContract) as refused:
        broker.create_contract("//sales/Mute", {RECEIPT: "TARGET"})
    assert refused.value.number == 8492
    broker.create_contract("//sales/Mute", {RECEIPT: "ANY"})


def test_013_types_and_directions_of_a_contract_cannot_be_changed(broker: Broker) -> None:
    with pytest.raises(AlreadyExists, match="sent_by"):
        broker.create_contract(ORDERING, {ORDER: "ANY"}, if_not_exists=True)
    assert not hasattr(broker, "alter_contract")


def test_017_an_initiator_may_use_a_contract_that_its_service_does_not_list(broker: Broker) -> None:
    broker.create_service("//sales/Nothing", queue="Shop")
    broker.begin_dialog("//sales/Nothing", ORDER_SERVICE, ORDERING).send(ORDER)
    broker.flush()
    (message,) = receive(broker, "Orders", 1)
    assert message.dialog.far_service == "//sales/Nothing"


def test_018_a_contract_twice_in_a_service_is_refused(broker: Broker) -> None:
    """In part: there is no ALTER SERVICE yet."""
    with pytest.raises(ContractTwice) as refused:
        broker.create_service("//sales/Echo", queue="Orders", contracts=[ORDERING, ORDERING])
    assert refused.value.number == 8404


def test_026_two_services_share_a_queue_and_a_message_tells_which_is_meant(broker: Broker) -> None:
    broker.create_service("//sales/Returns", queue="Orders", contracts=[ORDERING])
    begin(broker).send(ORDER, b"bought")
    broker.begin_dialog(SHOP_SERVICE, "//sales/Returns", ORDERING).send(ORDER, b"brought back")
    broker.flush()
    services = {message.body: message.dialog.service for message in receive(broker, "Orders", 2)}
    assert services == {b"bought": ORDER_SERVICE, b"brought back": "//sales/Returns"}


def test_027_the_name_of_a_queue_does_not_begin_like_a_temporary_object(broker: Broker) -> None:
    with pytest.raises(InvalidName, match="begins with #"):
        broker.create_queue("#Orders")
    broker.create_queue("Orders#2")
