"""The product under measurement: a database with a shop and an order service, and its use by runs."""

from __future__ import annotations

import os
from typing import Final

import konverse
from konverse.bridge.broker import Broker
from konverse.bridge.client.dialog import Dialog
from tests.bench.clients import PARTITIONS
from tests.bench.model import Load, Place

MESSAGE: Final = "//order/line"
REPLY: Final = "//order/reply"
QUEUE: Final = "Orders"


def database(place: Place) -> str:
    """The run's own database."""
    return "".join(c for c in place.name if c.isalnum())


def connect(place: Place) -> Broker:
    """A broker of that database."""
    return konverse.connect(f"kafka://{place.bootstrap}", database=database(place))


def create(broker: Broker) -> None:
    """Create two services that may talk, and their queues."""
    broker.admin.create_message_type(MESSAGE)
    broker.admin.create_message_type(REPLY)
    broker.admin.create_contract("//order", {MESSAGE: "INITIATOR", REPLY: "TARGET"})
    broker.admin.create_queue(QUEUE, partitions=PARTITIONS)
    broker.admin.create_service("//order/service", queue=QUEUE, contracts=["//order"])
    broker.admin.create_queue("Shop", partitions=PARTITIONS)
    broker.admin.create_service("//order/shop", queue="Shop")


def dialogs(broker: Broker, count: int) -> list[Dialog]:
    """`count` dialogs from the shop to the order service."""
    return [broker.begin_dialog("//order/shop", "//order/service", "//order") for _ in range(count)]


def send_in_turn(dialogs_: list[Dialog], messages: int, body_bytes: int) -> None:
    """Send `messages` messages over the dialogs in turn."""
    body = os.urandom(body_bytes)
    count = len(dialogs_)
    for i in range(messages):
        dialogs_[i % count].send(MESSAGE, body)


def filled(place: Place, load: Load) -> None:
    """Fill the queue with the load's messages and those of the warm-up."""
    with connect(place) as broker:
        create(broker)
        opened = dialogs(broker, load.conversations)
        send_in_turn(opened, load.with_warm_up, load.body_bytes)
        broker.flush()
