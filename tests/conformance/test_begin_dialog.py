"""Behaviours 30 to 43: BEGIN DIALOG."""

from __future__ import annotations

import uuid
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest

from konverse.bridge.broker import Broker
from konverse.dialog.transaction.begun import NewDialog
from konverse.dialog.transaction.received import Message
from konverse.dialog.transaction.transaction import Transaction
from konverse.schemas.errors import (
    AlreadyExists,
    BadInput,
    ContractNotFound,
    ConversationOver,
    DialogNotFound,
    ForeignGroup,
    InvalidSettings,
    ServiceNotFound,
)
from konverse.schemas.identifiers import Role
from konverse.schemas.system_messages import DEFAULT
from tests.kit.servers import Servers
from tests.kit.shop import (
    NOTE,
    ORDER,
    ORDER_SERVICE,
    ORDERING,
    RECEIPT,
    SHOP_SERVICE,
    answer,
    begin,
    connected,
    drain,
    fill,
    handle,
    pumped,
    receive,
    until,
)

pytestmark = pytest.mark.stack


def test_030_a_dialog_to_a_service_that_exists_nowhere_is_not_begun(broker: Broker) -> None:
    """Deviates: BEGIN DIALOG fails at once (8423), because a dialog's first record names its target's partition."""
    with pytest.raises(ServiceNotFound, match="//sales/Later"):
        broker.begin_dialog(SHOP_SERVICE, "//sales/Later", ORDERING)
    with broker.transaction() as transaction, pytest.raises(ServiceNotFound):
        transaction.begin(SHOP_SERVICE, "//sales/Later", ORDERING)
    assert list(broker.views.conversation_endpoints()) == []
    broker.admin.create_service("//sales/Later", queue="Orders", contracts=[ORDERING])
    dialog = broker.begin_dialog(SHOP_SERVICE, "//sales/Later", ORDERING)
    broker.flush()
    (row,) = broker.views.conversation_endpoints()
    assert (row.conversation_id, row.state, row.far_service) == (dialog.id, "SO", "//sales/Later")


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
    broker.admin.create_service("//sales/Anything", queue="Orders", contracts=[DEFAULT])
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


def test_035_the_answers_to_a_handlers_questions_join_the_group_of_its_order(broker: Broker) -> None:
    """Fan-out and fan-in: the order, its questions and their answers are one group, locked together."""
    broker.admin.create_service("//sales/Depot", queue="Shop", contracts=[ORDERING])
    begin(broker).send(ORDER, b"two lamps")
    broker.flush()

    def ask(transaction: Transaction) -> list[NewDialog]:
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
    broker.admin.create_service("//sales/Depot", queue="Shop")
    dialog = begin(broker)
    with pytest.raises(ForeignGroup) as foreign:
        broker.begin_dialog("//sales/Depot", ORDER_SERVICE, ORDERING, related_to=dialog)
    assert foreign.value.number == 9610


def test_037_a_dialog_of_another_service_cannot_join_a_group_by_its_id(broker: Broker) -> None:
    """In part: where the group's home has no reader in this process, the begin cannot know of its other members."""
    broker.admin.create_service("//sales/Depot", queue="Shop")
    group = uuid.uuid4()
    with broker.reader("Shop") as reader:
        reader.wait_for_partitions(1)
        begin(broker, group=group)
        broker.flush()
        with pumped(reader):
            until(lambda: reader.ask(0, lambda home: len(home.members(group.bytes))), "the first member lives")
        with pytest.raises(ForeignGroup) as foreign:
            broker.begin_dialog("//sales/Depot", ORDER_SERVICE, ORDERING, group=group)
        assert foreign.value.number == 9610
        begin(broker, group=group)


def test_037_a_handlers_dialog_of_another_service_cannot_join_a_group(broker: Broker) -> None:
    broker.admin.create_service("//sales/Depot", queue="Orders")
    begin(broker).send(ORDER)
    broker.flush()

    def ask(transaction: Transaction) -> None:
        (order,) = transaction
        with pytest.raises(ForeignGroup) as foreign:
            transaction.begin("//sales/Depot", ORDER_SERVICE, ORDERING, related_to=order.dialog)
        assert foreign.value.number == 9610

    handle(broker, "Orders", ask)


def test_038_a_lifetime_is_kept_as_an_instant_in_utc(broker: Broker) -> None:
    """Deviates: without LIFETIME a dialog never expires, and `lifetime` is NULL; 2,147,483,647 s is accepted."""
    without, longest = begin(broker), begin(broker, lifetime=2_147_483_647)
    broker.flush()
    lifetimes = {row.conversation_id: row.lifetime for row in broker.views.conversation_endpoints()}
    assert lifetimes[without.id] is None
    expires = lifetimes[longest.id]
    assert expires is not None
    assert expires.tzinfo is UTC
    assert abs(expires - datetime.now(UTC) - timedelta(seconds=2_147_483_647)) < timedelta(minutes=5)


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


def test_041_both_sides_share_a_conversation_id_and_differ_in_their_role(broker: Broker) -> None:
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


def end(transaction: Transaction) -> None:
    """End every received conversation."""
    for dialog in dict.fromkeys(message.dialog for message in transaction):
        transaction.end(dialog)


def test_041_the_id_of_an_ended_conversation_cannot_begin_another(
    servers: Servers, broker: Broker, database: str
) -> None:
    """No process can begin it again, in whatever way."""
    order = uuid.uuid5(uuid.NAMESPACE_URL, "order 4711")
    begin(broker, conversation_id=order).send(ORDER, b"0")
    broker.flush()
    handle(broker, "Orders", end)
    handle(broker, "Shop", end)
    with broker.reader("Shop") as shop, broker.reader("Orders") as orders, pumped(shop), pumped(orders):
        shop.wait_for_partitions(shop.queue.partitions)
        message = f"{order} is over: the other side ended it, and then this one"
        with pytest.raises(ConversationOver, match=message) as refusal:
            begin(broker, conversation_id=order)
        assert refusal.value.number == 8429
        with broker.transaction() as transaction, pytest.raises(ConversationOver, match="Begin with another id"):
            transaction.begin(SHOP_SERVICE, ORDER_SERVICE, ORDERING, conversation_id=order)
        with connected(servers.bootstrap, database) as another:
            late = begin(another, conversation_id=order)
            late.send(ORDER, b"late")
            with another.transaction() as transaction:
                later = transaction.begin(SHOP_SERVICE, ORDER_SERVICE, ORDERING, conversation_id=order)
                transaction.send(later, ORDER, b"later")
            came_back = until(
                lambda: len(found := late.bounced()) == 2 and {one.body: one.reason.name for one in found},
                "what came late to come back",
            )
            assert came_back == {b"late": "ENDED", b"later": "NO_ENDPOINT"}
    assert drain(broker, "Orders") == []


@pytest.mark.parametrize("who", ["the same process", "another process"])
def test_041_a_begin_with_the_id_of_an_open_conversation_joins_it(
    servers: Servers, broker: Broker, database: str, who: str
) -> None:
    order = uuid.uuid5(uuid.NAMESPACE_URL, "order 4712")
    begin(broker, conversation_id=order).send(ORDER, b"first")
    broker.flush()
    with connected(servers.bootstrap, database) as another:
        again = begin(broker if who == "the same process" else another, conversation_id=order)
        again.send(ORDER, b"second")
        broker.flush()
        another.flush()
    received = receive(broker, "Orders", 2)
    assert [(message.body, message.dialog.id) for message in received] == [
        (b"first", order), (b"second", order),
    ]  # fmt: skip


@pytest.mark.parametrize("named", ["by words", "by its id", "by the text of its id"])
def test_042_naming_the_current_database_pins_the_dialog_to_its_broker_id(broker: Broker, named: str) -> None:
    """The BEGIN carries the id of the named database."""
    own = broker.catalog.broker_id
    instances: dict[str, uuid.UUID | str] = {
        "by words": "CURRENT DATABASE",
        "by its id": own,
        "by the text of its id": str(own).upper(),
    }
    instance = instances[named]
    dialog = begin(broker, broker_instance=instance)
    dialog.send(ORDER, b"one lamp")
    with broker.transaction() as transaction:
        other = transaction.begin(SHOP_SERVICE, ORDER_SERVICE, ORDERING, broker_instance=instance)
        transaction.send(other, ORDER, b"two lamps")
    assert (dialog.begin.broker_instance, other.begin.broker_instance) == (str(own), str(own))
    assert {message.body for message in receive(broker, "Orders", 2)} == {b"one lamp", b"two lamps"}
    assert {row.far_broker_instance for row in broker.views.conversation_endpoints()} == {str(own)}


def test_042_a_database_has_one_broker_id_that_no_other_has(servers: Servers, database: str, broker: Broker) -> None:
    own = {row.name: row.service_broker_guid for row in broker.views.databases()}[database]
    with connected(servers.bootstrap, database) as again, connected(servers.bootstrap, f"{database}2") as other:
        assert str(again.catalog.broker_id) == own
        assert str(other.catalog.broker_id) != own
        assert {row.name for row in other.views.databases()} >= {database, f"{database}2"}
        ids = [row.service_broker_guid for row in other.views.databases()]
    assert len(set(ids)) == len(ids)
    with pytest.raises(ServiceNotFound, match="no database of this instance has that broker id"):
        begin(broker, broker_instance=uuid.uuid4())
    with pytest.raises(BadInput, match="not a broker instance"):
        begin(broker, broker_instance="current database")


def test_043_encryption_is_refused_where_nothing_encrypts(broker: Broker) -> None:
    """Deviates: Kafka's TLS encrypts all dialogs or none; without TLS, ENCRYPTION = ON fails at once."""
    with pytest.raises(InvalidSettings, match=r"security\.protocol"):
        begin(broker, encryption=True)
    with broker.transaction() as transaction, pytest.raises(InvalidSettings, match="TLS"):
        transaction.begin(SHOP_SERVICE, ORDER_SERVICE, ORDERING, encryption=True)
    begin(broker, encryption=False).send(ORDER, b"in the clear")
    broker.flush()
    assert [message.body for message in receive(broker, "Orders", 1)] == [b"in the clear"]


def test_134_a_named_instance_without_the_service_fails(broker: Broker) -> None:
    """Deviates: instead of an Error on the queue, the statement fails: 8490, or 8423 without a named instance."""
    with pytest.raises(ServiceNotFound, match="//sales/Nobody") as named:
        broker.begin_dialog(SHOP_SERVICE, "//sales/Nobody", ORDERING, broker_instance="CURRENT DATABASE")
    assert named.value.number == 8490
    with pytest.raises(ServiceNotFound) as unnamed:
        broker.begin_dialog(SHOP_SERVICE, "//sales/Nobody", ORDERING)
    assert unnamed.value.number == 8423
    assert list(broker.views.conversation_endpoints()) == []


def test_137_a_service_has_one_place_and_no_second_copy_can_answer(broker: Broker) -> None:
    """Deviates: the catalog gives a service one queue, so two copies never answer, and -8495 never occurs."""
    broker.admin.create_queue("Copy")
    with pytest.raises(AlreadyExists):
        broker.admin.create_service(ORDER_SERVICE, queue="Copy", contracts=[ORDERING])
    with pytest.raises(AlreadyExists, match="Orders"):
        broker.admin.create_service(ORDER_SERVICE, queue="Copy", contracts=[ORDERING], if_not_exists=True)
    dialogs = [begin(broker) for _ in range(5)]
    for dialog in dialogs:
        dialog.send(ORDER)
    broker.flush()
    assert {message.dialog.id for message in receive(broker, "Orders", 5)} == {dialog.id for dialog in dialogs}
    assert drain(broker, "Copy") == []
