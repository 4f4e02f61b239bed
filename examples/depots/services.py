"""The shop's database, and the database of a depot. Each checks messages by its own contract."""

from __future__ import annotations

from typing import Final

from konverse.bridge.broker import Broker

ORDER: Final = "//sales/Order"
RECEIPT: Final = "//sales/Receipt"
END_OF_STREAM: Final = "//sales/EndOfStream"
ORDERING: Final = "//sales/Ordering"
SHOP: Final = "//sales/Shop"
SHOPS: Final = "Shops"
DEPOT: Final = "//sales/Depot"
DEPOTS: Final = "Depots"


def create_shop(broker: Broker, *, partitions: int) -> None:
    """Create what the shop needs in its database."""
    _create_types(broker)
    broker.admin.create_queue(SHOPS, partitions=partitions)
    broker.admin.create_service(SHOP, queue=SHOPS)


def create_depot(broker: Broker, *, partitions: int) -> None:
    """Create a depot in its database. From now on routing finds its service."""
    _create_types(broker)
    broker.admin.create_queue(DEPOTS, partitions=partitions)
    broker.admin.create_service(DEPOT, queue=DEPOTS, contracts=[ORDERING])


def _create_types(broker: Broker) -> None:
    for name in (ORDER, RECEIPT, END_OF_STREAM):
        broker.admin.create_message_type(name)
    broker.admin.create_contract(ORDERING, {ORDER: "INITIATOR", END_OF_STREAM: "INITIATOR", RECEIPT: "TARGET"})
