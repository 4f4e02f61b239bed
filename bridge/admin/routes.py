"""CREATE, ALTER and DROP ROUTE. Routes are stored in the catalog and not used to find services yet."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

from konverse.bridge.kafka.clients import Kafka
from konverse.bridge.kafka.clock import kafka_time_ms
from konverse.bridge.runtime.arguments import checked
from konverse.schemas.catalog.routes import NEVER, Route, check_lifetime
from konverse.schemas.errors import InvalidRoute, NothingChanged

from .ddl import Defining


class Routes(Defining):
    """The part of a broker for statements about routes."""

    _kafka: Kafka

    @checked
    def create_route(  # noqa: PLR0913  # the clauses of CREATE ROUTE
        self,
        name: str,
        address: str,
        *,
        service_name: str | None = None,
        broker_instance: UUID | str | None = None,
        lifetime: timedelta | None = None,
        mirror_address: str | None = None,
        if_not_exists: bool = False,
    ) -> Route:
        """CREATE ROUTE: the address of a service. Stored, not used yet: dialogs find services of their own database.

        `address` is "LOCAL" (this instance), "TRANSPORT" (the address that the service's name begins with) or
        "TCP://host:port"; `mirror_address` has the last form. Without `service_name` the route is for any service,
        without `broker_instance` (the id of a database) for any database. After `lifetime` a route is not used any
        more, but it stays. A database starts with the route "AutoCreatedLocal" (behaviour 155). Raises InvalidRoute
        (9659 to 9662, 9743 to 9747; 174, 192), InvalidName, AlreadyExists.
        """
        expires_ms = NEVER if lifetime is None else self._expiry(name, lifetime)
        value = _with(Route(name, address, expires_ms=expires_ms), service_name, broker_instance, mirror_address)
        return self._create(Route.of(value), lambda: None, if_not_exists=if_not_exists)

    @checked
    def alter_route(  # noqa: PLR0913  # the clauses of ALTER ROUTE
        self,
        name: str,
        *,
        address: str | None = None,
        service_name: str | None = None,
        broker_instance: UUID | str | None = None,
        lifetime: timedelta | None = None,
        mirror_address: str | None = None,
    ) -> Route:
        """ALTER ROUTE: clauses that are not given stay (behaviour 175). A new lifetime revives an expired route (163).

        A service, an instance or a lifetime can be changed but not removed: for that, drop the route and create it
        again. Raises RouteNotFound, NothingChanged when no clause is given, and what CREATE raises.
        """
        given = (address, service_name, broker_instance, lifetime, mirror_address)
        if all(clause is None for clause in given):
            raise NothingChanged(f"ALTER of route {name!r} names nothing to alter; name one of its clauses")

        def altered(known: Route) -> Route:
            value = known if address is None else replace(known, address=address)
            if lifetime is not None:
                value = replace(value, expires_ms=self._expiry(name, lifetime))
            return Route.of(_with(value, service_name, broker_instance, mirror_address))

        return self._alter(Route, name, altered)

    @checked
    def drop_route(self, name: str) -> None:
        """DROP ROUTE; "AutoCreatedLocal" can be dropped too. Raises RouteNotFound."""
        self._drop(Route, name)

    def _expiry(self, name: str, lifetime: timedelta) -> int:
        """Time at which the route expires, in milliseconds of Kafka's clock. Raises InvalidRoute for a bad lifetime."""
        lifetime_ms = lifetime // timedelta(milliseconds=1)
        check_lifetime(name, lifetime_ms)
        return kafka_time_ms(self._kafka) + lifetime_ms


def _with(
    route: Route, service_name: str | None, broker_instance: UUID | str | None, mirror_address: str | None
) -> Route:
    """The route with the given clauses replaced. Raises InvalidRoute (9659) for an empty clause."""
    given = {"service_name": service_name, "broker_instance": broker_instance, "mirror_address": mirror_address}
    changes: dict[str, Any] = {clause: str(value) for clause, value in given.items() if value is not None}
    if "" in changes.values():
        raise InvalidRoute(f"a clause of route {route.name!r} is empty; leave it out", 9659)
    return replace(route, **changes)
