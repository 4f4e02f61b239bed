"""Behaviours 11 to 29: contracts, services and queues."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from konverse.bridge.broker import Broker
from konverse.bridge.kafka.topics import Topics
from konverse.dialog.transaction.received import Message
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.errors import (
    AlreadyExists,
    ContractNotFound,
    ContractTwice,
    InvalidContract,
    InvalidName,
    KafkaUnavailable,
    MessageTypeNotFound,
    NothingChanged,
    NotSupportedYet,
    QueueNotFound,
    ServiceNotFound,
    StillUsed,
    TypeTwice,
)
from konverse.schemas.identifiers import Role
from konverse.schemas.system_messages import DEFAULT, ERROR, read_error
from tests.kit.servers import Servers
from tests.kit.shop import (
    NOTE,
    ORDER,
    ORDER_SERVICE,
    ORDERING,
    RECEIPT,
    SHOP_SERVICE,
    begin,
    connected,
    drain,
    fill,
    handle,
    pumped,
    receive,
    state_of,
    until,
)

pytestmark = pytest.mark.stack


def test_011_a_contract_in_which_the_initiator_may_send_nothing_is_refused(broker: Broker) -> None:
    with pytest.raises(InvalidContract) as refused:
        broker.admin.create_contract("//sales/Mute", {RECEIPT: "TARGET"})
    assert refused.value.number == 8492
    broker.admin.create_contract("//sales/Mute", {RECEIPT: "ANY"})


def test_013_types_and_directions_of_a_contract_cannot_be_changed(broker: Broker) -> None:
    with pytest.raises(AlreadyExists, match="sent_by"):
        broker.admin.create_contract(ORDERING, {ORDER: "ANY"}, if_not_exists=True)
    assert not hasattr(broker, "alter_contract")


def test_016_a_dialog_to_a_service_that_does_not_list_its_contract_gets_an_error(broker: Broker) -> None:
    """And 132: the contract is not bound to the service."""
    broker.admin.create_service("//sales/Mute", queue="Orders")
    begin(broker).send(ORDER)
    broker.begin_dialog("//sales/Mute", ORDER_SERVICE, ORDERING).send(ORDER, b"it can begin dialogs")
    broker.begin_dialog(SHOP_SERVICE, "//sales/Mute", ORDERING).send(ORDER, b"nobody receives it")
    broker.flush()
    with broker.reader("Orders") as orders, pumped(orders):
        (error,) = receive(broker, "Shop", 1)
    assert (error.type, read_error(error.body)[0]) == (ERROR, -8408)
    assert sorted(message.body for message in receive(broker, "Orders", 2)) == [b"", b"it can begin dialogs"]


def test_017_an_initiator_may_use_a_contract_that_its_service_does_not_list(broker: Broker) -> None:
    broker.admin.create_service("//sales/Nothing", queue="Shop")
    broker.begin_dialog("//sales/Nothing", ORDER_SERVICE, ORDERING).send(ORDER)
    broker.flush()
    (message,) = receive(broker, "Orders", 1)
    assert message.dialog.far_service == "//sales/Nothing"


def test_012_a_type_twice_in_a_contract_is_refused(broker: Broker) -> None:
    with pytest.raises(TypeTwice) as refused:
        broker.admin.create_contract("//sales/Twice", [(ORDER, "INITIATOR"), (NOTE, "ANY"), (ORDER, "TARGET")])
    assert refused.value.number == 8403


def test_014_a_contract_listed_by_a_service_and_a_type_in_a_contract_cannot_be_dropped(broker: Broker) -> None:
    """And 21: DROP SERVICE is refused while a broker priority names it."""
    broker.admin.create_broker_priority("first", contract=ORDERING, local_service=ORDER_SERVICE)
    with pytest.raises(StillUsed, match=ORDER_SERVICE):
        broker.admin.drop_contract(ORDERING)
    with pytest.raises(StillUsed, match=ORDERING):
        broker.admin.drop_message_type(ORDER)
    with pytest.raises(StillUsed, match="every database"):
        broker.admin.drop_contract(DEFAULT)
    broker.admin.alter_service(ORDER_SERVICE, drop=[ORDERING])
    with pytest.raises(StillUsed, match="'first'"):
        broker.admin.drop_contract(ORDERING)
    broker.admin.alter_broker_priority("first", contract="ANY")
    broker.admin.drop_contract(ORDERING)
    with pytest.raises(StillUsed, match="'first'"):
        broker.admin.drop_service(ORDER_SERVICE)
    broker.admin.drop_broker_priority("first")
    broker.admin.drop_service(ORDER_SERVICE)
    broker.admin.drop_message_type(ORDER)
    for drop, missing in (
        (broker.admin.drop_contract, ContractNotFound),
        (broker.admin.drop_message_type, MessageTypeNotFound),
    ):
        with pytest.raises(missing):
            drop(ORDER)


def test_015_the_conversations_of_a_dropped_contract_fail(broker: Broker) -> None:
    """On both sides, at once. Messages that arrived before can still be received."""
    dialog = begin(broker)
    dialog.send(ORDER)
    broker.flush()
    with broker.reader("Orders", timeout=1) as orders, broker.reader("Shop", timeout=1) as shop:
        fill(orders, 1)
        with pumped(orders, shop):
            broker.admin.alter_service(ORDER_SERVICE, drop=[ORDERING])
            broker.admin.drop_contract(ORDERING)
            sides = ((orders, Role.TARGET), (shop, Role.INITIATOR))
            until(lambda: [state_of(*side, dialog) for side in sides] == ["ER", "ER"], "both sides fail")
    (at_home,) = receive(broker, "Shop", 1)
    at_target = receive(broker, "Orders", 2)
    assert [message.type for message in at_target] == [ERROR, ORDER]
    assert [read_error(error.body)[0] for error in (at_home, at_target[0])] == [-8487, -8487]


def test_015_a_message_sent_after_the_drop_of_its_contract_fails(
    servers: Servers, database: str, broker: Broker
) -> None:
    """It may be received before its owner has read the catalog. And 132: or later, without the contract (-8425)."""
    with connected(servers.bootstrap, database) as sender:
        dialog = begin(sender)
        dialog.send(ORDER)
        sender.flush()
        assert len(receive(broker, "Orders", 1)) == 1
        broker.admin.alter_service(ORDER_SERVICE, drop=[ORDERING])
        broker.admin.drop_contract(ORDERING)
        dialog.send(ORDER)
        sender.flush()
    with broker.reader("Orders") as orders, pumped(orders):
        (error,) = receive(broker, "Shop", 1)
    assert (error.type, read_error(error.body)[0] in {-8425, -8487}) == (ERROR, True)


def test_018_a_contract_listed_twice_and_a_change_without_effect_are_refused(broker: Broker) -> None:
    with pytest.raises(ContractTwice) as refused:
        broker.admin.create_service("//sales/Echo", queue="Orders", contracts=[ORDERING, ORDERING])
    assert refused.value.number == 8404
    with pytest.raises(ContractTwice):
        broker.admin.alter_service(ORDER_SERVICE, add=[ORDERING])
    changes: list[dict[str, Any]] = [{}, {"add": [ORDERING], "drop": [ORDERING]}, {"drop": [DEFAULT]}]
    for nothing in changes:
        with pytest.raises(NothingChanged) as unchanged:
            broker.admin.alter_service(ORDER_SERVICE, **nothing)
        assert unchanged.value.number == 8493
    assert broker.admin.alter_service(ORDER_SERVICE, add=[DEFAULT]).contracts == (ORDERING, DEFAULT)


def test_020_the_conversations_of_a_dropped_service_end_and_the_far_sides_get_an_error(broker: Broker) -> None:
    broker.admin.create_service("//sales/Other", queue="Orders", contracts=[ORDERING])
    dialogs = [begin(broker) for _ in range(3)]
    other = broker.begin_dialog(SHOP_SERVICE, "//sales/Other", ORDERING)
    for dialog in (*dialogs, other):
        dialog.send(ORDER, b"waits")
    broker.flush()
    with broker.reader("Orders", timeout=1) as orders:
        fill(orders, 4)
        held = orders.receive(dialog=dialogs[0].id, timeout=20)
        assert held is not None
        errors: list[Message] = []
        with suppress(LookupError), held:  # the drop is waited for
            broker.admin.drop_service(ORDER_SERVICE)
            with pumped(orders):
                errors += receive(broker, "Shop", 2)
            raise LookupError
        with pumped(orders):
            errors += receive(broker, "Shop", 1)
        assert {error.dialog.id for error in errors} == {dialog.id for dialog in dialogs}
        assert {read_error(error.body) for error in errors} == {(-8470, "The remote service has been dropped.")}
    (left,) = receive(broker, "Orders", 1)
    assert left.dialog.id == other.id
    with pytest.raises(ServiceNotFound):
        broker.admin.drop_service(ORDER_SERVICE)


def test_020_a_message_for_a_dropped_service_gets_the_same_error(broker: Broker) -> None:
    dialog = begin(broker)
    broker.admin.drop_service(ORDER_SERVICE)
    dialog.send(ORDER, b"too late")
    broker.flush()
    with broker.reader("Orders") as orders, pumped(orders):
        (error,) = receive(broker, "Shop", 1)
    assert (error.type, read_error(error.body)[0]) == (ERROR, -8470)
    assert drain(broker, "Orders") == []


def test_022_a_queue_with_messages_that_no_owner_has_ingested_is_not_dropped(broker: Broker) -> None:
    begin(broker).send(ORDER, b"nobody has looked")
    broker.flush()
    broker.admin.drop_service(ORDER_SERVICE)
    with pytest.raises(StillUsed, match="that no owner has ingested"):
        broker.admin.drop_queue("Orders")


def test_022_a_queue_is_not_dropped_as_long_as_a_service_uses_it(database: str, broker: Broker) -> None:
    dialog = begin(broker)
    dialog.send(ORDER, b"of the first queue")
    broker.flush()
    with pytest.raises(StillUsed, match=f"used by service '{ORDER_SERVICE}'"):
        broker.admin.drop_queue("Orders")
    assert len(receive(broker, "Orders", 1)) == 1
    broker.admin.drop_service(ORDER_SERVICE)
    with pytest.raises(StillUsed, match="still has 1 open conversation,"):
        broker.admin.drop_queue("Orders")
    with broker.reader("Orders") as orders, pumped(orders):
        handle(broker, "Shop", lambda transaction: transaction.end(transaction.dialog))
        until(lambda: orders.conversations == 0, "it is over on both sides")
        orders.settle()
    broker.admin.drop_queue("Orders")
    dropped = {topic for topic in broker._kafka.admin.list_topics(timeout=10).topics if database in topic}
    assert not any(".Orders" in topic for topic in dropped), dropped
    with pytest.raises(QueueNotFound):
        broker.admin.drop_queue("Orders")
    with pytest.raises(QueueNotFound):
        broker.reader("Orders")
    broker.admin.create_queue("Orders")
    broker.admin.create_service(ORDER_SERVICE, queue="Orders", contracts=[ORDERING])
    again = begin(broker)
    again.send(ORDER, b"of the second queue")
    broker.flush()
    assert [message.body for message in receive(broker, "Orders", 1)] == [b"of the second queue"]


def test_023_a_queue_is_on_without_retention_and_with_poison_handling_by_default(broker: Broker) -> None:
    """In part: RETENTION ON and POISON_MESSAGE_HANDLING OFF are not supported yet and refused."""
    made = broker.admin.create_queue("Plain")
    assert (made.status, made.retention, made.poison_message_handling) == (True, False, True)
    assert broker.admin.create_queue("Off", status=False).status is False
    with pytest.raises(AlreadyExists, match="status False, not True"):
        broker.admin.create_queue("Off", if_not_exists=True)
    refused: list[dict[str, Any]] = [{"retention": True}, {"poison_message_handling": False}]
    for unsupported in refused:
        with pytest.raises(NotSupportedYet):
            broker.admin.create_queue("Other", **unsupported)
        with pytest.raises(NotSupportedYet):
            broker.admin.alter_queue("Plain", **unsupported)
    assert broker.admin.alter_queue("Plain", retention=False, poison_message_handling=True) == made
    with pytest.raises(NothingChanged):
        broker.admin.alter_queue("Plain")
    with pytest.raises(QueueNotFound):
        broker.admin.alter_queue("Other", status=True)


def test_026_two_services_share_a_queue_and_each_message_names_its_service(broker: Broker) -> None:
    broker.admin.create_service("//sales/Returns", queue="Orders", contracts=[ORDERING])
    begin(broker).send(ORDER, b"bought")
    broker.begin_dialog(SHOP_SERVICE, "//sales/Returns", ORDERING).send(ORDER, b"brought back")
    broker.flush()
    services = {message.body: message.dialog.service for message in receive(broker, "Orders", 2)}
    assert services == {b"bought": ORDER_SERVICE, b"brought back": "//sales/Returns"}


def test_027_the_name_of_a_queue_does_not_begin_like_a_temporary_object(broker: Broker) -> None:
    with pytest.raises(InvalidName, match="begins with #"):
        broker.admin.create_queue("#Orders")
    broker.admin.create_queue("Orders#2")


def test_022_dropping_a_queue_again_deletes_the_topics_left_by_a_failed_drop(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka was away when the queue was dropped, so its topics were not deleted."""
    queue = broker.admin.create_queue("Short")
    delete = Topics.delete

    def fail(_topics: Topics, _queue: Queue) -> None:
        raise KafkaUnavailable("away")

    monkeypatch.setattr(Topics, "delete", fail)
    with pytest.raises(KafkaUnavailable):
        broker.admin.drop_queue("Short")
    monkeypatch.setattr(Topics, "delete", delete)
    assert broker._topics.partitions(queue.topic) is not None
    broker.admin.drop_queue("Short")
    assert broker._topics.partitions(queue.topic) is None
    for name in ("Short", "Never"):
        with pytest.raises(QueueNotFound):
            broker.admin.drop_queue(name)
