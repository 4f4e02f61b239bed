"""Dialogs with services that do not exist yet wait in the link queue, and go on when routing finds a place."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Final

import pytest

from konverse.bridge.broker import Broker
from konverse.bridge.catalog.instance_queues import LINK, find_queue
from konverse.bridge.client.dialog import Dialog
from konverse.bridge.client.outgoing import TransmissionQueueRow
from konverse.deploy import LocalStack
from konverse.schemas.errors import DialogNotFound, OutcomeUnknown
from konverse.schemas.system_messages import END_DIALOG
from tests.kit.delays import serving
from tests.kit.oracle import verify
from tests.kit.pools import STREAMING, stream_shop
from tests.kit.servers import Servers
from tests.kit.shop import (
    DEADLINE_S,
    ORDER,
    ORDER_SERVICE,
    ORDERING,
    RECEIPT,
    SHOP_SERVICE,
    begin,
    connected,
    drain,
    open_shop,
    queue_of,
    receive,
    until,
)

pytestmark = pytest.mark.stack
LATER = "//later/Service"


def delayed_of(broker: Broker, dialog: Dialog) -> list[TransmissionQueueRow]:
    return [row for row in broker.views.transmission_queue() if row.conversation_handle == dialog.id]


def test_019_a_dialog_waits_for_its_service_and_nothing_is_sent_again(servers: Servers, database: str) -> None:
    """R19 to R21: no route or service is no error. The conversation waits, and goes on by itself."""
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        dialog = broker.begin_dialog(SHOP_SERVICE, LATER, ORDERING)
        for number in range(3):
            dialog.send(ORDER, b"%d" % number)
        dialog.flush()
        waiting = delayed_of(broker, dialog)
        assert [row.message_sequence_number for row in waiting] == [0, 1, 2]
        assert all("has no owner: run `konverse server`" in row.transmission_status for row in waiting)
        with serving(broker):
            why = (
                "The target service name could not be found: service '//later/Service' is not in this instance: no "
                "database of this instance has a service of that name"
            )
            until(
                lambda: [row.transmission_status for row in delayed_of(broker, dialog)] == [why] * 3,
                "the server owns the partition, and finds no place",
            )
            drain(broker, "Shop")
            *_, sides = broker.why(dialog.id)
            (there,) = [side for side in sides if side.role == "target"]
            assert any(reason.startswith("It is delayed with 3 records. The target") for reason in there.reasons)
            broker.admin.create_queue("Later")
            broker.admin.create_service(LATER, queue="Later", contracts=[ORDERING])
            found = receive(broker, "Later", 3)
            assert [(one.type, one.body, one.dialog.id) for one in found] == [
                (ORDER, b"%d" % number, dialog.id) for number in range(3)
            ]
            dialog.send(ORDER, b"3")
            dialog.flush()
            (last,) = receive(broker, "Later", 1)
            assert (last.body, last.sequence) == (b"3", 3)


WAYS = ("end WITH CLEANUP", "end_leaked", "NEW_BROKER")


def removed(broker: Broker, dialog: Dialog, way: str) -> None:
    """Remove everything of a conversation, as an operator does."""
    if way == "NEW_BROKER":
        broker.admin.alter_database(new_broker=True)
    elif way == "end_leaked":
        assert broker.operations.end_leaked(broker.operations.leaked(older_than=0)) == [dialog.id]
    else:
        broker.operations.end(dialog.id, cleanup=True)


@pytest.mark.parametrize("way", WAYS)
def test_what_waits_goes_with_the_conversation_that_an_operator_removes(
    servers: Servers, database: str, way: str
) -> None:
    """Behaviours 120 and 222: its messages wait for delivery, wherever that is."""
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        dialog = broker.begin_dialog(SHOP_SERVICE, LATER, ORDERING)
        dialog.send(ORDER, b"never")
        dialog.flush()
        with serving(broker) as server:
            server.reader.wait_for_partitions(4)
            with broker.reader("Shop", timeout=DEADLINE_S) as reader:  # its owner obeys too
                reader.wait_for_partitions(1)
                removed(broker, dialog, way)
            assert delayed_of(broker, dialog) == []
            broker.admin.create_queue("Later")
            broker.admin.create_service(LATER, queue="Later", contracts=[ORDERING])
            other = broker.begin_dialog(SHOP_SERVICE, LATER, ORDERING)
            other.send(ORDER, b"the only one")
            assert [one.body for one in drain(broker, "Later")] == [b"the only one"]


def test_operators_of_another_database_remove_nothing_that_waits(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database) as broker, connected(servers.bootstrap, f"{database}2") as other:
        for one in (broker, other):
            open_shop(one)
        dialog = broker.begin_dialog(SHOP_SERVICE, LATER, ORDERING)
        dialog.send(ORDER, b"kept")
        dialog.flush()
        with serving(broker):
            with pytest.raises(DialogNotFound):
                other.operations.end(dialog.id, cleanup=True)
            other.admin.alter_database(new_broker=True)
            assert len(delayed_of(broker, dialog)) == 1


def test_without_a_server_the_outcome_of_a_removal_is_unknown_until_one_comes(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        dialog = broker.begin_dialog(SHOP_SERVICE, LATER, ORDERING)
        dialog.send(ORDER, b"never")
        dialog.flush()
        with broker.reader("Shop", timeout=DEADLINE_S) as reader:
            reader.wait_for_partitions(1)
            with pytest.raises(OutcomeUnknown):
                broker.operations.end(dialog.id, cleanup=True, timeout=1.0)
        assert len(delayed_of(broker, dialog)) == 1
        with serving(broker):
            until(lambda: delayed_of(broker, dialog) == [], "the server carries out the instruction")


def test_a_pool_begins_before_its_service_exists_and_its_messages_arrive_in_order(
    servers: Servers, database: str
) -> None:
    with (
        stream_shop(servers.bootstrap, database) as broker,
        broker.pool(SHOP_SERVICE, LATER, STREAMING) as pool,
        serving(broker),
    ):
        for number in range(20):
            pool.send(ORDER, b"%d" % number, key=f"key {number % 4}")
        broker.flush()
        assert len([*broker.views.transmission_queue()]) == 20
        broker.admin.create_queue("Later")
        broker.admin.create_service(LATER, queue="Later", contracts=[STREAMING])
        found = receive(broker, "Later", 20)
        pool.send(ORDER, b"20", key="key 0")
        (last,) = receive(broker, "Later", 1)
    assert (last.body, last.dialog.id) == (b"20", next(one.dialog.id for one in found if one.body == b"0"))
    by_dialog = {one.dialog.id: [same.body for same in found if same.dialog.id == one.dialog.id] for one in found}
    assert sorted(by_dialog.values()) == sorted([b"%d" % number for number in range(key, 20, 4)] for key in range(4))


def test_dialogs_that_were_begun_in_any_way_wait_and_go_on_with_replies_and_ends(
    servers: Servers, database: str
) -> None:
    """Directly, related, in a client transaction and by a handler; the place gives the priority (N13, M296)."""
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        broker.admin.create_broker_priority("urgent", contract=ORDERING, remote_service=SHOP_SERVICE, level=9)
        first = broker.begin_dialog(SHOP_SERVICE, LATER, ORDERING, key=b"a key")
        related = broker.begin_dialog(SHOP_SERVICE, LATER, ORDERING, related_to=first)
        for dialog in (first, related):
            dialog.send(ORDER, b"1")
        with broker.transaction() as together:
            for dialog in (first, related):
                together.send(dialog, ORDER, b"2")
        question = begin(broker)
        question.send(ORDER, b"for the shop")
        broker.flush()
        with broker.reader("Orders", timeout=DEADLINE_S) as reader, next(reader) as transaction:
            (message,) = transaction
            handlers = transaction.begin(ORDER_SERVICE, LATER, ORDERING)
            transaction.send(handlers, ORDER, b"1")
            transaction.send(handlers, ORDER, b"2")
            transaction.end(message.dialog)
        with serving(broker):
            until(lambda: len([*broker.views.transmission_queue()]) == 6, "all of them wait in the link queue")
            broker.admin.create_queue("Later")
            broker.admin.create_service(LATER, queue="Later", contracts=[ORDERING])
            with broker.reader("Later", timeout=DEADLINE_S) as reader:
                got: dict[bytes, list[bytes | None]] = {}
                while sum(map(len, got.values())) < 6:
                    with next(reader) as transaction:
                        for message in transaction:
                            got.setdefault(message.dialog.conversation, []).append(message.body)
                            assert message.dialog.level == (9 if message.dialog.far_service == SHOP_SERVICE else 5)
                            if len(got[message.dialog.conversation]) == 2:
                                transaction.send(message.dialog, RECEIPT, b"done")
                                transaction.end(message.dialog)
        assert sorted(got.values()) == [[b"1", b"2"]] * 3
        shop, orders = receive(broker, "Shop", 5), receive(broker, "Orders", 2)
        assert sorted(message.type for message in (*shop, *orders)) == [RECEIPT] * 3 + sorted([END_DIALOG] * 4)
        queues = [queue_of(broker, name) for name in ("Shop", "Orders", "Later")]
        link = find_queue(broker._kafka, broker.settings.instance, LINK)
        assert link is not None
        assert verify(servers.bootstrap, [*queues, link]) == []


OBSTACLES: Final = {
    "no service": "no database of this instance has a service of that name",
    "another case": "no database of this instance has a service of that name",
    "disabled database": "the broker of its database is disabled",
    "network address": "Dialogs do not leave their instance yet",
    "expired route": "no route of database",
}


@pytest.mark.parametrize("obstacle", OBSTACLES)
def test_the_status_names_the_obstacle_and_the_dialog_goes_on_when_it_is_gone(
    servers: Servers, database: str, obstacle: str
) -> None:
    with connected(servers.bootstrap, database) as broker, connected(servers.bootstrap, f"{database}2") as other:
        open_shop(broker)
        open_shop(other)
        other.admin.create_queue("Later")
        if obstacle == "disabled database":
            other.admin.create_service(LATER, queue="Later", contracts=[ORDERING])
            other.admin.alter_database(enabled=False)
        elif obstacle == "another case":
            other.admin.create_service(LATER.upper(), queue="Later", contracts=[ORDERING])
        elif obstacle == "network address":
            broker.admin.create_route("away", "TCP://elsewhere:4022", service_name=LATER)
        elif obstacle == "expired route":
            broker.admin.drop_route("AutoCreatedLocal")
            broker.admin.create_route("short", "LOCAL", service_name=LATER, lifetime=timedelta(seconds=1))
            time.sleep(1.5)  # the lifetime itself
        dialog = broker.begin_dialog(SHOP_SERVICE, LATER, ORDERING)
        dialog.send(ORDER, b"patient")
        dialog.flush()
        with serving(broker):
            until(
                lambda: (
                    [OBSTACLES[obstacle] in row.transmission_status for row in delayed_of(broker, dialog)] == [True]
                ),
                "the server finds the obstacle",
            )
            if obstacle in ("no service", "another case"):
                other.admin.create_service(LATER, queue="Later", contracts=[ORDERING])
            elif obstacle == "disabled database":
                other.admin.alter_database(enabled=True)
            else:
                other.admin.create_service(LATER, queue="Later", contracts=[ORDERING])
                name = "away" if obstacle == "network address" else "short"
                broker.admin.alter_route(name, address="LOCAL", lifetime=timedelta(hours=1))
            (message,) = receive(other, "Later", 1)
            assert (message.body, message.dialog.id) == (b"patient", dialog.id)


def test_what_waits_survives_a_broker_that_is_killed(own_stack: LocalStack, database: str) -> None:
    with connected(own_stack.bootstrap, database) as broker:
        open_shop(broker)
        dialog = broker.begin_dialog(SHOP_SERVICE, LATER, ORDERING)
        for number in range(3):
            dialog.send(ORDER, b"%d" % number)
        dialog.flush()
        with serving(broker):
            until(lambda: len(delayed_of(broker, dialog)) == 3, "the server has them")
            own_stack.kill("kafka")
            own_stack.restart("kafka")
            broker.admin.create_queue("Later")
            broker.admin.create_service(LATER, queue="Later", contracts=[ORDERING])
            assert [one.body for one in receive(broker, "Later", 3)] == [b"0", b"1", b"2"]
