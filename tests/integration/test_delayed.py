"""Dialogs with services that do not exist yet wait in the link queue, and go on when routing finds a place."""

from __future__ import annotations

import pytest

from konverse.bridge.broker import Broker
from konverse.bridge.client.dialog import Dialog
from konverse.bridge.client.outgoing import TransmissionQueueRow
from konverse.schemas.catalog.broker_configuration import (
    MISSING_ROUTE,
    NOTICE,
    REQUESTING_SERVICE,
    MissingRoute,
    read_missing_route,
)
from konverse.schemas.catalog.routes import BROKER_CONFIGURATION
from tests.kit.delays import serving
from tests.kit.servers import Servers
from tests.kit.shop import ORDER, ORDERING, SHOP_SERVICE, connected, drain, open_shop, receive, until

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


def test_185_a_missing_route_is_asked_for_once_and_its_creation_releases_the_messages(
    servers: Servers, database: str
) -> None:
    """And 186: the broker configuration service creates the route, and ends the dialog."""
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        broker.admin.create_queue("Configuration")
        broker.admin.create_service(BROKER_CONFIGURATION, queue="Configuration", contracts=[NOTICE])
        broker.admin.create_route("Ask", "LOCAL", service_name=BROKER_CONFIGURATION)
        broker.admin.create_queue("Later")
        broker.admin.create_service(LATER, queue="Later", contracts=[ORDERING])
        dialogs = [broker.begin_dialog(SHOP_SERVICE, LATER, ORDERING) for _ in range(2)]
        for dialog in dialogs:
            dialog.send(ORDER, b"waits for a route")
        broker.flush()
        with serving(broker), broker.reader("Configuration", timeout=12) as reader:
            with next(reader) as transaction:
                (request,) = transaction
                assert (request.type, request.dialog.far_service) == (MISSING_ROUTE, REQUESTING_SERVICE)
                assert read_missing_route(request.body) == MissingRoute(LATER)
                broker.admin.create_route("Later", "LOCAL", service_name=LATER)
                transaction.end(request.dialog)
            found = receive(broker, "Later", 2)
            assert {one.dialog.id for one in found} == {dialog.id for dialog in dialogs}
        with broker.reader("Configuration", timeout=2) as reader:
            assert [*reader] == [], "there was one request"
