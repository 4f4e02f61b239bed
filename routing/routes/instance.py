"""The databases of an instance, as routing sees them, and locating a service in them (R28, R31 to R34)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Final, NamedTuple
from uuid import UUID

from konverse.schemas.catalog.addresses import NetworkAddress

Pick = Callable[[Sequence[str]], int]
"""Draws one of several names (broker ids, routes, databases) and returns its place. The caller owns the randomness."""

MSDB: Final = "msdb"
"""The database whose routes serve messages that arrive from outside the instance."""


class BrokerDatabase(NamedTuple):
    """A database of the instance."""

    name: str
    broker_id: UUID
    services: frozenset[str]
    enabled: bool = True
    """Its broker is enabled; else nothing is delivered there (behaviour 176)."""


class Absence(Enum):
    """Why a service was not located in the instance."""

    NO_SERVICE = "no database of this instance has a service of that name"
    NO_DATABASE = "no database of this instance has that broker id"
    NOT_IN_DATABASE = "the database with that broker id has no service of that name"
    DISABLED = "the broker of its database is disabled"


class RoutingInstance:
    """The databases of an instance and its switches. Immutable."""

    def __init__(
        self,
        databases: Iterable[BrokerDatabase],
        addresses: Iterable[NetworkAddress] = (),
        *,
        forwarding: bool = False,
    ) -> None:
        self.addresses = frozenset(addresses)
        """Network addresses under which this instance can be reached."""
        self.forwarding = forwarding
        """Message forwarding is on."""
        self._by_id: dict[UUID, BrokerDatabase] = {}
        self._by_service: dict[str, list[BrokerDatabase]] = {}
        for database in sorted(databases, key=lambda one: one.enabled):  # of two with one id the enabled one counts
            self._by_id[database.broker_id] = database
            for service in sorted(database.services):
                self._by_service.setdefault(service, []).append(database)

    def has(self, broker_id: UUID) -> bool:
        """Whether a database of this instance has that broker id."""
        return broker_id in self._by_id

    def has_service(self, service: str) -> bool:
        """Whether a database whose broker is enabled has a service of this name, compared byte by byte."""
        return any(one.enabled for one in self._by_service.get(service, ()))

    def locate(self, service: str, broker_id: UUID | None, own: str, pick: Pick) -> BrokerDatabase | Absence:
        """The database that gets the messages for a service.

        `broker_id` is that of the conversation or of the route. Without one the database `own` comes first, then any of
        the others.
        """
        if broker_id is not None:
            database = self._by_id.get(broker_id)
            if database is None:
                return Absence.NO_DATABASE
            if not database.enabled:
                return Absence.DISABLED
            return database if service in database.services else Absence.NOT_IN_DATABASE
        known = self._by_service.get(service, ())
        candidates = [one for one in known if one.enabled]
        if not candidates:
            return Absence.DISABLED if known else Absence.NO_SERVICE
        mine = next((one for one in candidates if one.name == own), None)
        return mine or candidates[pick([one.name for one in candidates])]
