"""An instance of several databases: the shop in one of them, and copies of the order service in the others."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from konverse.bridge.broker import Broker
from konverse.bridge.client.dialog import Dialog
from konverse.schemas.catalog.objects import Queue
from tests.kit.shop import NOTE, ORDER, ORDER_SERVICE, ORDERING, RECEIPT, SHOP_SERVICE, begin, connected

COPIES: Final = ("east", "west")
"""Databases that have the order service."""


class Instance:
    """Database `sales` with the shop, and copies of the order service in other databases."""

    def __init__(self, brokers: dict[str, Broker]) -> None:
        self._brokers = brokers
        self.sales = brokers["sales"]

    def __getitem__(self, database: str) -> Broker:
        return self._brokers[database]

    def id_of(self, database: str) -> uuid.UUID:
        """The broker id of a database."""
        return self[database].catalog.broker_id

    def place_of(self, dialog: Dialog) -> str | None:
        """The database that was chosen for a dialog."""
        return self.sales.catalog.database_of(dialog.begin.target.topic)

    def queues(self) -> list[Queue]:
        """All queues of the instance, with its transmission queue if there is one."""
        found = [queue for broker in self._brokers.values() for queue in broker.catalog.all(Queue)]
        shared = self.sales.operations.transmission_queue()
        return found if shared is None else [*found, shared]

    def spread(self, **options: Any) -> Counter[str | None]:
        """Databases of sixty new dialogs."""
        return Counter(self.place_of(begin(self.sales, **options)) for _ in range(60))

    def route_to(self, database: str, name: str, **clauses: Any) -> None:
        """CREATE ROUTE in `sales` for the order service in a database."""
        self.sales.admin.create_route(
            name,
            "LOCAL",
            service_name=ORDER_SERVICE,
            broker_instance=self.id_of(database),
            **clauses,
        )


def create_ordering(broker: Broker) -> None:
    """CREATE the types and the contract, which each database needs."""
    for name in (ORDER, RECEIPT, NOTE):
        broker.admin.create_message_type(name)
    broker.admin.create_contract(ORDERING, {ORDER: "INITIATOR", RECEIPT: "TARGET", NOTE: "ANY"})


@contextmanager
def several_databases(bootstrap: str) -> Iterator[Instance]:
    """A new instance with databases `sales`, `east` and `west`."""
    name = f"i{uuid.uuid4().hex[:10]}"
    with ExitStack() as stack:
        brokers = {
            database: stack.enter_context(connected(bootstrap, database, instance=name))
            for database in ("sales", *COPIES)
        }
        for broker in brokers.values():
            create_ordering(broker)
        brokers["sales"].admin.create_queue("Shop", partitions=1)
        brokers["sales"].admin.create_service(SHOP_SERVICE, queue="Shop")
        for database in COPIES:
            brokers[database].admin.create_queue("Orders", partitions=1)
            brokers[database].admin.create_service(ORDER_SERVICE, queue="Orders", contracts=[ORDERING])
        brokers["sales"].catalog.refresh()
        yield Instance(brokers)
