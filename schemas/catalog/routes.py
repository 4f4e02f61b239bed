"""Routes: the address of a service (service-broker.md 1.5). `konverse.routing.routes` chooses among them.

A network address is `TCP://host[:port][/]`; `addresses` reads it. A route keeps the text that was written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from uuid import UUID

from konverse.schemas.errors import InvalidRoute
from konverse.schemas.identifiers import check_name
from konverse.schemas.limits import ADDRESS_CHARACTERS_MAX, ROUTE_LIFETIME_MS_MAX

from .addresses import network_address

LOCAL: Final = "LOCAL"
"""Address: this instance."""
TRANSPORT: Final = "TRANSPORT"
"""Address: given by the beginning of the service's own name."""

NEVER: Final = -1
"""Expiry time of a route that never expires."""

AUTO_CREATED_LOCAL: Final = "AutoCreatedLocal"
"""The only route of a new database: any service, at this instance (behaviour 155)."""

BROKER_CONFIGURATION: Final = "SQL/ServiceBroker/BrokerConfiguration"
"""Service that is asked for missing routes; a route to it names no instance (192)."""


@dataclass(frozen=True, slots=True)
class Route:
    """A row of sys.routes; an empty string stands for a clause that was left out."""

    name: str
    address: str
    """`LOCAL`, `TRANSPORT`, or the network address of the service's instance."""
    service_name: str = ""
    """Compared byte by byte; empty: any."""
    broker_instance: str = ""
    """Id of the service's database; empty: any."""
    expires_ms: int = NEVER
    """When the route expires, in milliseconds since 1970, UTC. It stays in the catalog."""
    mirror_address: str = ""
    """Network address of the instance that mirrors that database."""

    @classmethod
    def of(cls, value: Route) -> Route:
        """The route in canonical spelling; raises InvalidRoute, with the original's number, when it is invalid.

        Behaviours 174, 192. Raises InvalidName too.
        """
        check_name("route", value.name)
        if value.service_name:
            check_name("service", value.service_name)
        checked = cls(
            value.name,
            _address(value.name, "address", value.address),
            value.service_name,
            _instance(value),
            value.expires_ms,
            _address(value.name, "mirror_address", value.mirror_address) if value.mirror_address else "",
        )
        _check_together(checked)
        return checked


def check_lifetime(name: str, lifetime_ms: int) -> None:
    """Raise InvalidRoute (9746) unless this is a valid lifetime of a route, in milliseconds."""
    if not 1_000 <= lifetime_ms <= ROUTE_LIFETIME_MS_MAX:
        raise InvalidRoute(
            f"route {name!r} cannot have a lifetime of {lifetime_ms / 1000} s; "
            f"1 to {ROUTE_LIFETIME_MS_MAX // 1000} s are allowed, and without one it never expires",
            9746,
        )


def _instance(value: Route) -> str:
    if not value.broker_instance:
        return ""
    if not value.service_name:
        raise InvalidRoute(f"route {value.name!r} names a broker instance without a service; name both, or none", 9662)
    if value.service_name == BROKER_CONFIGURATION:
        raise InvalidRoute(
            f"route {value.name!r} is one to {BROKER_CONFIGURATION!r}, which names no broker instance; leave it out"
        )
    try:
        return str(UUID(value.broker_instance))
    except ValueError:
        raise InvalidRoute(
            f"route {value.name!r}: {value.broker_instance!r} is not a valid id of a broker instance; it looks like "
            "0f8fad5b-d9cb-469f-a165-70867728950e"
        ) from None


def _address(name: str, what: str, text: str) -> str:
    """The address as it was written; a keyword in capitals."""
    if not text:
        raise InvalidRoute(f"the {what} of route {name!r} is empty; give LOCAL, TRANSPORT or TCP://host:port", 9659)
    if len(text) > ADDRESS_CHARACTERS_MAX:
        raise InvalidRoute(
            f"the {what} of route {name!r} has {len(text)} characters; at most {ADDRESS_CHARACTERS_MAX} are allowed",
            9660,
        )
    if text.upper() in (LOCAL, TRANSPORT):
        return text.upper()
    if network_address(text) is None:
        raise InvalidRoute(
            f"the {what} of route {name!r} is not a valid address: {text!r}; give LOCAL, TRANSPORT or TCP://host:port",
            9744,
        )
    return text


def _check_together(route: Route) -> None:
    """Check clauses that must agree with each other."""
    if route.address == TRANSPORT and route.service_name:
        raise InvalidRoute(
            f"route {route.name!r} takes its address from the name of any service (TRANSPORT) and names one; "
            "leave the name out",
            9745,
        )
    if not route.mirror_address:
        return
    if not route.service_name or not route.broker_instance:
        raise InvalidRoute(f"route {route.name!r} has a mirror; it must name a service and a broker instance", 9661)
    for what, address in (("address", route.address), ("mirror_address", route.mirror_address)):
        if address in (LOCAL, TRANSPORT):
            raise InvalidRoute(
                f"the {what} of route {route.name!r} is {address}; with a mirror both are of the form TCP://host:port",
                9743,
            )
    if network_address(route.mirror_address) == network_address(route.address):
        raise InvalidRoute(f"route {route.name!r} has the same address twice; its mirror is elsewhere", 9747)
