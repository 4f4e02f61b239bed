"""Dialogs with services that do not exist yet wait in the link queue, and go on when routing finds a place."""

from __future__ import annotations

import pytest

from konverse.bridge.broker import Broker
from konverse.bridge.client.dialog import Dialog
from konverse.bridge.client.outgoing import TransmissionQueueRow
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
