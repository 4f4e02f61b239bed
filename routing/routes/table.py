"""The routes of one database, prepared for matching at one time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from uuid import UUID

from konverse.schemas.catalog.addresses import NetworkAddress, network_address
from konverse.schemas.catalog.routes import BROKER_CONFIGURATION, LOCAL, NEVER, TRANSPORT, Route


@dataclass(frozen=True, slots=True)
class RouteSet:
    """Matching routes by the classes among which a decision chooses, each address once (R22)."""

    mirrored: tuple[Route, ...] = ()
    local: tuple[Route, ...] = ()
    network: tuple[Route, ...] = ()
    transport: tuple[Route, ...] = ()

    @classmethod
    def of(cls, routes: Iterable[Route]) -> RouteSet:
        """The set of some routes with one service name and one broker id.

        Of two routes with one address the mirrored one counts, then the one that expires later.
        """
        best: dict[NetworkAddress | str, Route] = {}
        for route in sorted(routes, key=lambda one: (bool(one.mirror_address), _expiry(one)), reverse=True):
            best.setdefault(network_address(route.address) or route.address.upper(), route)
        kinds: tuple[list[Route], ...] = ([], [], [], [])
        for route in best.values():
            kinds[_class_of(route)].append(route)
        return cls(*(tuple(sorted(kind, key=lambda one: one.name)) for kind in kinds))

    @property
    def all(self) -> tuple[Route, ...]:
        """All routes, in the order of the choice."""
        return self.mirrored + self.local + self.network + self.transport


def _class_of(route: Route) -> int:
    if route.mirror_address:
        return 0
    return {LOCAL: 1, TRANSPORT: 3}.get(route.address.upper(), 2)


def _expiry(route: Route) -> float:
    return float("inf") if route.expires_ms == NEVER else route.expires_ms


@dataclass(frozen=True, slots=True)
class RouteTable:
    """`sys.routes` of one database without the expired routes, indexed for the steps of matching."""

    database: str
    named: dict[tuple[str, UUID], RouteSet] = field(default_factory=dict)
    """Service and broker id -> routes that name both."""
    services: dict[str, RouteSet] = field(default_factory=dict)
    """Service -> routes that name it and no broker id."""
    ids: dict[str, tuple[UUID, ...]] = field(default_factory=dict)
    """Service -> broker ids of the routes that name both, sorted."""
    wildcard: RouteSet = RouteSet()
    """Routes that name neither."""
    asks: bool = False
    """A route to the broker configuration service exists (dynamic routing)."""
    valid_until_ms: int = NEVER
    """Time at which the next of these routes expires: prepare the table again then. NEVER: no route expires."""

    @classmethod
    def of(cls, database: str, routes: Iterable[Route], now_ms: int) -> RouteTable:
        """Prepare the routes of a database for decisions from `now_ms` until `valid_until_ms` (R5, behaviour 163)."""
        live = [route for route in routes if route.expires_ms == NEVER or route.expires_ms > now_ms]
        named: dict[tuple[str, UUID], list[Route]] = {}
        services: dict[str, list[Route]] = {}
        wildcard: list[Route] = []
        for route in live:
            if route.broker_instance:
                named.setdefault((route.service_name, UUID(route.broker_instance)), []).append(route)
            elif route.service_name:
                services.setdefault(route.service_name, []).append(route)
            else:
                wildcard.append(route)
        ids: dict[str, list[UUID]] = {}
        for service, broker_id in named:
            ids.setdefault(service, []).append(broker_id)
        return cls(
            database,
            {key: RouteSet.of(some) for key, some in named.items()},
            {service: RouteSet.of(some) for service, some in services.items()},
            {service: tuple(sorted(some)) for service, some in ids.items()},
            RouteSet.of(wildcard),
            BROKER_CONFIGURATION in services,
            min((route.expires_ms for route in live if route.expires_ms != NEVER), default=NEVER),
        )
