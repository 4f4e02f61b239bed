"""Routers that lead to each other: a conversation that goes round in them would never arrive."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from graphlib import CycleError, TopologicalSorter

from konverse.schemas.routing_tables import RoutingTable


def circle_of(leads: Mapping[str, Collection[str]]) -> list[str]:
    """A way from a router back to itself, as `[router, …, router]`; empty when there is none.

    `leads` says of each router, by the name of its service, to which services it may pass a conversation on or redirect
    it. The same circle is found whatever the order is in which they are given.
    """
    sorter = TopologicalSorter[str]()
    for router in sorted(leads):
        for service in sorted(leads[router]):
            if service in leads:
                sorter.add(service, router)
    try:
        sorter.prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def leads_of(tables: Iterable[RoutingTable], here: Collection[str | None] = (None,)) -> dict[str, set[str]]:
    """Where the routers that go by these tables lead; what is in another database than those of `here` is left out.

    None among them stands for targets that name no database. Routers whose classifiers name services on their own are
    not known here; their `targets()` may be added.
    """
    found: dict[str, set[str]] = {}
    for table in tables:
        if table.routers:
            services = {target.service for target in table.targets() if target.broker_instance in here}
            for router in table.routers:
                found.setdefault(router, set()).update(services)
    return found
