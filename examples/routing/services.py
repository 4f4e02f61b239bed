"""A router, the services of the four regions to which it routes, and the orders."""

from __future__ import annotations

import json
from typing import Final

from konverse.bridge.broker import Broker

ORDER: Final = "//sales/Order"
ORDERING: Final = "//sales/Ordering"
ROUTER: Final = "//sales/Router"
SHOP: Final = "//sales/Shop"
ORDERS: Final = "Orders"
REGIONS: Final = ("north", "east", "south", "west")


def service_of(region: str) -> str:
    """The service of a region."""
    return f"//sales/{region.capitalize()}"


def queue_of(region: str) -> str:
    """The queue of a region's service."""
    return region.capitalize()


def region_of(conversation: int) -> str:
    """The region of a conversation's orders."""
    return REGIONS[conversation % len(REGIONS)]


def order(number: int, each: int) -> bytes:
    """The body of an order. Orders are numbered conversation by conversation, with `each` orders in each."""
    return json.dumps({"number": number, "region": region_of(number // each)}).encode()


def create(broker: Broker, *, partitions: int) -> None:
    """Create message type, contract, queues and services in an empty database."""
    broker.admin.create_message_type(ORDER)
    broker.admin.create_contract(ORDERING, {ORDER: "INITIATOR"})
    for queue, service in ((ORDERS, ROUTER), *((queue_of(region), service_of(region)) for region in REGIONS)):
        broker.admin.create_queue(queue, partitions=partitions)
        broker.admin.create_service(service, queue=queue, contracts=[ORDERING])
    broker.admin.create_queue("Shop")
    broker.admin.create_service(SHOP, queue="Shop")
