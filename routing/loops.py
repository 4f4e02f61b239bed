"""Loops: routers that forward or redirect to each other, so that a conversation would never arrive.

Forwarding. Each router begins another conversation, so a loop cannot be seen from one id alone. A router therefore
counts: it begins its dialogs under ids of version 8, which RFC 9562 leaves to its users. Four bits hold the number of
routers that a conversation has passed, 110 bits are random. The count costs no byte in any record, and lasts as long as
the conversation.

Redirection. An initiator that is redirected from service to service never returns to one of them (behaviour 233).

Both stop at run time. `find_cycle` finds loops in routing tables beforehand.
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
_MARK_AT: Final = slice(9, 12)
_MARK: Final = b"\x5b\x9d\x26"
"""Mark of a router in a conversation id: Spark writes (`spark.write.plan`, with a mark of their own) and other programs
make ids of this version, too."""


def find_cycle(leads: Mapping[str, Collection[str]]) -> list[str]:
    """A circle of routers, as `[router, …, router]`; empty when there is none.

    `leads` maps the service of each router to the services to which it may forward or redirect a conversation. The
    order of its entries does not change the result.
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


def targets_by_router(tables: Iterable[RoutingTable], here: Collection[str | None] = (None,)) -> dict[str, set[str]]:
    """Router -> services to which it leads according to these tables, without targets in databases outside of `here`.

    None in `here` stands for targets that name no database. Routers whose classifiers name services without a table are
    missing; their `targets()` may be added.
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
    """Number of routers that a conversation has passed; 0 for one that no router has begun."""
    if conversation[_VERSION_AT] & 0xF0 != _VERSION_8 or conversation[_MARK_AT] != _MARK:
        return 0
    return conversation[_VERSION_AT] & _COUNT


def with_hops(identifier: bytes, hops: int) -> bytes:
    """Turn a random id (16 bytes) into that of a conversation after `hops` routers, 1 to ROUTER_HOPS_MAX."""
    assert 0 < hops <= ROUTER_HOPS_MAX, f"{hops} routers cannot be counted"
    counted = bytes((_VERSION_8 | hops,))
    between = identifier[_VERSION_AT + 1 : _MARK_AT.start]
    return b"".join((identifier[:_VERSION_AT], counted, between, _MARK, identifier[_MARK_AT.stop :]))


def followed(way: Sequence[Target], target: Target) -> tuple[Target, ...]:
    """The way of an initiator, from the service that it asked first, extended by a redirection to `target`.

    Raises InvalidRoute for a service that is on the way already, and for more than ROUTER_HOPS_MAX redirections.
    """
    if target in way or len(way) > ROUTER_HOPS_MAX:
        names = " to ".join(repr(one.service) for one in (*way, target))
        raise InvalidRoute(
            f"redirected from {names}: "
            + (
                "routers redirect in a circle, and no service on it answers. Check their classifiers"
                if target in way
                else f"{ROUTER_HOPS_MAX} redirections are the most that are followed"
            )
        )
    return (*way, target)
