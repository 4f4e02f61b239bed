"""Dialogs with services that do not exist yet wait in the link queue, and go on when routing finds a place."""

from __future__ import annotations

import pytest

from konverse.bridge.broker import Broker
from konverse.bridge.client.dialog import Dialog
from konverse.bridge.client.outgoing import TransmissionQueueRow
from konverse.schemas.errors import DialogNotFound, OutcomeUnknown
from tests.kit.delays import serving
from tests.kit.servers import Servers
from tests.kit.shop import DEADLINE_S, ORDER, ORDERING, SHOP_SERVICE, connected, drain, open_shop, receive, until

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
