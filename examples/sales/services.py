"""The two services, and the contract between them."""

from __future__ import annotations

from typing import Final

from konverse.bridge.broker import Broker

ORDER: Final = "//sales/Order"
RECEIPT: Final = "//sales/Receipt"
ORDERING: Final = "//sales/Ordering"
ORDER_SERVICE: Final = "//sales/OrderService"
SHOP_SERVICE: Final = "//sales/ShopService"
ORDERS: Final = "Orders"
SHOP: Final = "Shop"


def create(broker: Broker, *, partitions: int = 4) -> None:
    """Create message types, contract, queues and services in an empty database."""
    broker.admin.create_message_type(ORDER)
    broker.admin.create_message_type(RECEIPT)
    broker.admin.create_contract(ORDERING, {ORDER: "INITIATOR", RECEIPT: "TARGET"})
    broker.admin.create_queue(ORDERS, partitions=partitions)
    broker.admin.create_queue(SHOP, partitions=partitions)
    broker.admin.create_service(ORDER_SERVICE, queue=ORDERS, contracts=[ORDERING])
    broker.admin.create_service(SHOP_SERVICE, queue=SHOP)
