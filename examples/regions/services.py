"""The shop, the router, and three services that share five regions."""

from __future__ import annotations

from typing import Final

from konverse.bridge.broker import Broker

ORDER: Final = "//sales/Order"
RECEIPT: Final = "//sales/Receipt"
END_OF_STREAM: Final = "//sales/EndOfStream"
ORDERING: Final = "//sales/Ordering"
SHOP: Final = "//sales/Shop"
SHOPS: Final = "Shops"
ROUTER: Final = "//sales/Router"
ORDERS: Final = "Orders"
TABLE: Final = "Regions"

SERVICES: Final = {"//sales/West": "West", "//sales/South": "South", "//sales/NorthEast": "NorthEast"}
"""Service -> its queue."""

REGIONS: Final = {
    "West": "//sales/West",
    "South": "//sales/South",
    "Central": "//sales/South",
    "North": "//sales/NorthEast",
    "East": "//sales/NorthEast",
}
"""Region -> the service that has it."""


def create(broker: Broker, *, partitions: int) -> None:
    """Create message types, contract, queues, services and routing table in an empty database."""
    for name in (ORDER, RECEIPT, END_OF_STREAM):
        broker.admin.create_message_type(name)
    broker.admin.create_contract(ORDERING, {ORDER: "INITIATOR", END_OF_STREAM: "INITIATOR", RECEIPT: "TARGET"})
    broker.admin.create_queue(SHOPS, partitions=partitions)
    broker.admin.create_service(SHOP, queue=SHOPS)
    for service, queue in ((ROUTER, ORDERS), *SERVICES.items()):
        broker.admin.create_queue(queue, partitions=partitions)
        broker.admin.create_service(service, queue=queue, contracts=[ORDERING])
    broker.admin.create_routing_table(TABLE, REGIONS)
