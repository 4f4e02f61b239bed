"""Statements about routing tables, which stand in the catalog. Routers notice a change in a fraction of a second."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final
from uuid import uuid4

from konverse.bridge.catalog.lookups import bound
from konverse.bridge.runtime.arguments import checked
from konverse.routing.classifiers import Classifier, parse
from konverse.routing.loops import circle_of, leads_of
from konverse.schemas.catalog.objects import Service
from konverse.schemas.catalog.routing_tables import RoutingTable, TableChange, check_entries
from konverse.schemas.catalog.table_entries import Target
from konverse.schemas.errors import AlreadyExists, InvalidRoute, NothingChanged

from .ddl import Defining

Destination = str | tuple[str, str | None] | Target
"""A service by name, or as a pair of name and id of its database."""

TIMES_TRIED: Final = 5
"""Attempts to write a change of several records when other changes of the same table come in between."""


class RoutingTables(Defining):
    """The part of a broker for statements about routing tables, and for ready-made classifiers."""

    @checked
    def create_routing_table(
        self,
        name: str,
        entries: Mapping[str, Destination],
        *,
        default: Destination | None = None,
        routers: Sequence[str] = (),
        if_not_exists: bool = False,
    ) -> RoutingTable:
        """Create a routing table: key -> service, or `Target` with a broker instance; `default` for all other keys.

        `routers` are the services whose routers use the table: no entry may lead back to one of them, directly or
        through tables of other routers. The whole table counts at once, whatever its size (at most 1,000,000 keys).
        Raises ServiceNotFound for a service that is not in this database (with the id of another database it is not
        checked), InvalidRoute for an impossible table, naming the path of a circle, InvalidName, AlreadyExists.
        """
        wanted = TableChange.of(name, _entries(entries), default=_target(default), routers=(*routers,), creates=True)
        try:
            return self._change_table(wanted)
        except AlreadyExists:
            return self._existing(RoutingTable(name).changed(wanted), if_not_exists=if_not_exists)

    @checked
    def alter_routing_table(  # noqa: PLR0913  # what can be altered
        self,
        name: str,
        *,
        set: Mapping[str, Destination] | None = None,  # noqa: A002  # the word for it
        remove: Sequence[str] = (),
        default: Destination | None = None,
        without_default: bool = False,
        routers: Sequence[str] | None = None,
    ) -> RoutingTable:
        """Set and remove entries of a routing table; everything else stays. All changes count at once; `version` rises.

        Routers apply it to new conversations within a fraction of a second; conversations that were already classified
        keep their service. Raises RoutingTableNotFound, NothingChanged when nothing is given, InvalidRoute for a key to
        remove that does not exist, and what CREATE raises.
        """
        change = TableChange.of(
            name,
            _entries(set or {}),
            (*remove,),
            default=_target(default),
            without_default=without_default,
            routers=None if routers is None else (*routers,),
        )
        if change.is_empty:
            raise NothingChanged(f"ALTER of routing table {name!r} names nothing to alter; set or remove an entry")
        return self._change_table(change)

    @checked
    def drop_routing_table(self, name: str) -> None:
        """Drop a routing table. Raises RoutingTableNotFound.

        Conversations routed by it fail until the table exists again, and are suspended after five attempts (see
        `konverse resume`).
        """
        self._drop(RoutingTable, name)

    @checked
    def routing_table(self, name: str) -> RoutingTable:
        """The present state of a routing table, after a refresh. Raises RoutingTableNotFound."""
        self._check_open()
        self.catalog.refresh()
        return self.catalog.get(RoutingTable, name)

    @checked
    def classifier(self, classifier: Classifier | str | Mapping[str, object]) -> Classifier:
        """A ready classifier, given or described by data or a text, bound to the tables and schemas of this database.

        Each classification looks names up in the catalog of this process, which notices changes by others within a
        fraction of a second. Raises InvalidSettings for an invalid description.
        """
        self._check_open()
        made = classifier if isinstance(classifier, Classifier) else parse(classifier)
        ready: Classifier = bound(self.catalog, made)
        return ready

    # ------------------------------------------------------------------------------------------------------ inside

    def _change_table(self, change: TableChange) -> RoutingTable:
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
            return self.catalog.get(RoutingTable, change.name)
        raise NothingChanged(
            f"others changed routing table {change.name!r} each time while a change of {len(change.put)} keys was "
            "written, and nothing of it counts: repeat it"
        )

    def _append(self, part: TableChange, written: list[TableChange], change: TableChange) -> None:
        def decide() -> TableChange:
            if not written or part.last:  # early, before much is written, and once more before the change counts
                self._check_table(change)
            if self.catalog.parts_of(change.name)[: len(written)] != written and written:
                raise _Overtaken
            return part

        self.catalog.change(change.name, decide, RoutingTable)

    def _check_table(self, change: TableChange) -> None:
        """Raise when the changed table would be invalid."""
        known = self.catalog.find(RoutingTable, change.name)
        if change.creates and known is not None:
            raise AlreadyExists
        if known is None:
            known = RoutingTable(change.name) if change.creates else self.catalog.get(RoutingTable, change.name)
        for key in change.remove:
            if key not in known.entries:
                raise InvalidRoute(f"routing table {change.name!r} has no key {key!r} to remove")
        here = (None, str(self.catalog.broker_id))
        after = check_entries(known.changed(change))
        for target in change.targets():
            if target.broker_instance in here:
                self.catalog.get(Service, target.service)
        queues = {self.catalog.get(Service, router).queue: router for router in after.routers}
        services = {target.service for target in after.targets() if target.broker_instance in here} if queues else ()
        self._check_circle(after, here)
        for service in sorted(services):
            router = queues.get(self.catalog.get(Service, service).queue)
            if router is not None:
                raise InvalidRoute(
                    f"routing table {after.name!r} leads to service {service!r}, on the queue of {router!r}, which "
                    "routes by it and would receive it again: let it lead to services on other queues"
                )

    def _leads_here(self, table: RoutingTable, service: str) -> bool:
        """Whether a table uses this service of this database, as a target or as a router."""
        here = (None, str(self.catalog.broker_id))
        named = (target.broker_instance in here for target in table.targets() if target.service == service)
        return service in table.routers or any(named)

    def _check_circle(self, after: RoutingTable, here: tuple[str | None, ...]) -> None:
        tables = [table for table in self.catalog.known(RoutingTable) if table.name != after.name]
        way = circle_of(leads_of([*tables, after], here))
        if way:
            raise InvalidRoute(
                f"routing table {after.name!r} cannot be so: conversations would go round from "
                f"{' to '.join(map(repr, way))}. Let one of these routers' tables lead elsewhere"
            )


class _Overtaken(Exception):
    """Another change of the table came in between, so the parts written so far do not count."""


def _entries(entries: Mapping[str, Destination]) -> dict[str, Target]:
    return {key: _some(target) for key, target in entries.items()}


def _some(destination: Destination) -> Target:
    return Target(destination) if isinstance(destination, str) else Target(*destination)


def _target(destination: Destination | None) -> Target | None:
    return None if destination is None else _some(destination)
