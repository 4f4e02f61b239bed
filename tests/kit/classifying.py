"""Stand-ins for the message, the dialog and the catalog that a classifier sees."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final, NamedTuple

from konverse.routing.keys.rule import Lookup
from konverse.schemas.catalog.routing_tables import RoutingTable, TableChange
from konverse.schemas.catalog.table_entries import Target
from konverse.schemas.errors import RoutingTableNotFound

ORDER_SCHEMA: Final = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "number", "type": "long"},
            {"name": "customer", "type": {"type": "record", "name": "Customer", "fields": [
                {"name": "region", "type": ["null", "string", {"type": "enum", "name": "Sea", "symbols": ["BALTIC"]}]},
                {"name": "share", "type": "double"},
            ]}},
        ],
    }
)  # fmt: skip


class Dialog(NamedTuple):
    """The attributes of an endpoint that classifiers read."""

    key: bytes | None = None
    conversation: bytes = b"c" * 16


class Letter(NamedTuple):
    """The attributes of a message that classifiers read."""

    body: bytes
    type: str = "Order"
    headers: list[tuple[str, bytes | str | None]] = []  # noqa: RUF012  # default of a tuple's field; never changed
    dialog: Dialog = Dialog()


def lookup(*tables: RoutingTable, services: tuple[str, ...] = (), schema: str = "") -> Lookup:
    """A catalog with these tables and services. Message type Order has the schema."""
    known = {table.name: table for table in tables}

    def routing_table(name: str) -> RoutingTable:
        if name not in known:
            raise RoutingTableNotFound(f"there is no routing table {name!r}")
        return known[name]

    return Lookup(routing_table, services.__contains__, lambda kind: schema if kind == "Order" else "")


def table_of(
    name: str, entries: Mapping[str, Target], default: Target | None = None, routers: tuple[str, ...] = ()
) -> RoutingTable:
    """The first version of a routing table. Raises like `TableChange.of`."""
    return RoutingTable(name).changed(TableChange.of(name, entries, default=default, routers=routers, creates=True))
