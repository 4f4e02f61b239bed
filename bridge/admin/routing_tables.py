"""Changes to routing tables, which are catalog objects. Routers notice a change within a fraction of a second."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from uuid import uuid4

from konverse.bridge.client.connection import Connection
from konverse.routing.loops import find_cycle, targets_by_router
from konverse.schemas.catalog.objects import Service
from konverse.schemas.catalog.routing_tables import RoutingTable, TableChange, check_entries
from konverse.schemas.catalog.table_entries import Target
from konverse.schemas.counting import counted
from konverse.schemas.errors import AlreadyExists, InvalidRoute, NothingChanged

Destination = str | tuple[str, str | None] | Target
"""A service by name, or as a pair of name and id of its database."""

TIMES_TRIED: Final = 5
"""Attempts to write a change of several records when other changes of the same table come in between."""


class RoutingTableChanges:
    """Writes changes to routing tables to the catalog; a change larger than one record is split into parts."""

    def __init__(self, connection: Connection) -> None:
        self._check_open = connection.check_open
        self._catalog = connection.catalog
        self._network = connection.network

    def change(self, change: TableChange) -> RoutingTable:
        """Append a change, in parts if it is large. Starts again when another change of the table comes in between."""
        self._check_open()
        for _ in range(TIMES_TRIED):
            written: list[TableChange] = []
            try:
                for part in change.divided(uuid4().bytes):
                    self._append(part, written, change)
                    written.append(part)
            except _Overtaken:
                continue
            return self._catalog.get(RoutingTable, change.name)
        raise NothingChanged(
            f"other changes to routing table {change.name!r} overtook each attempt to change "
            f"{counted(len(change.put), 'key')}, so none of them took effect: repeat the change"
        )

    def _append(self, part: TableChange, written: list[TableChange], change: TableChange) -> None:
        def decide() -> TableChange:
            if not written or part.last:  # early, to fail before much is written; and again before it takes effect
                self._check_table(change)
            if self._catalog.parts_of(change.name)[: len(written)] != written and written:
                raise _Overtaken
            return part

        self._catalog.change(change.name, decide, RoutingTable)

    def _check_table(self, change: TableChange) -> None:
        """Raise when the changed table would be invalid."""
        known = self._catalog.find(RoutingTable, change.name)
        if change.creates and known is not None:
            raise AlreadyExists
        if known is None:
            known = RoutingTable(change.name) if change.creates else self._catalog.get(RoutingTable, change.name)
        for key in change.remove:
            if key not in known.entries:
                raise InvalidRoute(f"routing table {change.name!r} has no key {key!r} to remove")
        here = (None, str(self._catalog.broker_id))
        after = check_entries(known.changed(change))
        for target in change.targets():
            if target.broker_instance in here:
                self._network.service(target.service)
        queues = {self._catalog.get(Service, router).queue: router for router in after.routers}
        services = {target.service for target in after.targets() if target.broker_instance in here} if queues else ()
        self._check_circle(after, here)
        for service in sorted(services):
            found, database = self._network.service(service)
            router = queues.get(found.queue)
            if router is not None and database == self._catalog.database:
                raise InvalidRoute(
                    f"routing table {after.name!r} leads to service {service!r}, on the queue of router {router!r}, "
                    "which routes by this table and would receive the conversations again: let the table lead to "
                    "services on other queues"
                )

    def leads_here(self, table: RoutingTable, service: str) -> bool:
        """Whether a table uses this service of this database, as a target or as a router."""
        here = (None, str(self._catalog.broker_id))
        named = (target.broker_instance in here for target in table.targets() if target.service == service)
        return service in table.routers or (any(named) and self._network.is_here(service))

    def _check_circle(self, after: RoutingTable, here: tuple[str | None, ...]) -> None:
        tables = [table for table in self._catalog.known(RoutingTable) if table.name != after.name]
        leads = targets_by_router([*tables, after], here)
        way = find_cycle({router: [*filter(self._network.is_here, services)] for router, services in leads.items()})
        if way:
            raise InvalidRoute(
                f"routing table {after.name!r} closes a loop: conversations would loop through "
                f"{' to '.join(map(repr, way))}. Let the table of one of these routers lead elsewhere"
            )


class _Overtaken(Exception):
    """Another change of the table came in between, so the parts written so far have no effect."""


def entries_of(entries: Mapping[str, Destination]) -> dict[str, Target]:
    """Entries with a `Target` for each key."""
    return {key: _destination(target) for key, target in entries.items()}


def _destination(destination: Destination) -> Target:
    return Target(destination) if isinstance(destination, str) else Target(*destination)


def target_of(destination: Destination | None) -> Target | None:
    """The `Target` of a destination, if there is one."""
    return None if destination is None else _destination(destination)
