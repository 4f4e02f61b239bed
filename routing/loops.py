"""Routers that lead to each other: a conversation that goes round in them would never arrive.

Through how many routers a conversation has come, said by its id.

Routers that forward to each other would hand a conversation around for ever, each time under another id. So a router
begins its dialogs under ids of version 8, which RFC 9562 leaves to whoever makes them: four bits count the routers, 110
are random. The count costs no byte in any record, and survives whatever the conversation survives.

Where an initiator goes that is redirected from service to service: never in a circle (behaviour 233).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Final

from konverse.schemas.catalog.routing_tables import RoutingTable
from konverse.schemas.catalog.table_entries import Target
from konverse.schemas.errors import InvalidRoute
from konverse.schemas.limits import ROUTER_HOPS_MAX

_VERSION_AT: Final = 6
_VERSION_8: Final = 0x80
_COUNT: Final = 0x0F
_MARK_AT: Final = 7
_MARK: Final = 0x5B
"""Of an id of version 8 that is a router's: others may make such ids too."""


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


assert ROUTER_HOPS_MAX <= _COUNT, "four bits hold the count"


def hops_of(conversation: bytes) -> int:
    """Through how many routers a conversation has come to whoever receives it; 0 for one that no router has begun."""
    if conversation[_VERSION_AT] & 0xF0 != _VERSION_8 or conversation[_MARK_AT] != _MARK:
        return 0
    return conversation[_VERSION_AT] & _COUNT


def with_hops(identifier: bytes, hops: int) -> bytes:
    """A random id (16 bytes) as that of a conversation behind so many routers, 1 to ROUTER_HOPS_MAX."""
    assert 0 < hops <= ROUTER_HOPS_MAX, f"{hops} routers cannot be counted"
    return identifier[:_VERSION_AT] + bytes((_VERSION_8 | hops, _MARK)) + identifier[_MARK_AT + 1 :]


def followed(way: Sequence[Target], target: Target) -> tuple[Target, ...]:
    """The way of an initiator, from the service that it asked first on, with where it is redirected now.

    Raises InvalidRoute for a service at which it has been, and for more than ROUTER_HOPS_MAX redirections.
    """
    if target in way or len(way) > ROUTER_HOPS_MAX:
        names = " to ".join(repr(one.service) for one in (*way, target))
        raise InvalidRoute(
            f"redirected from {names}: "
            + (
                "routers redirect in a circle, and nobody on it answers. Look at what they decide"
                if target in way
                else f"{ROUTER_HOPS_MAX} redirections are the most that are followed"
            )
        )
    return (*way, target)
