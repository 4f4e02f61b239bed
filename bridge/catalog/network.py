"""Where conversations go: the databases of an instance and their routes, as the catalog shows them to this process.

`Network.place` answers for BEGIN DIALOG. A decision is kept until services or routes change or a route expires, unless
lots were drawn for it. Lots are drawn by the id of the conversation. So choices are spread evenly, and processes that
begin a conversation under one id make the same choice while they know the same catalog (behaviours 158, 168).
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar
from uuid import UUID, uuid4

from konverse.bridge.kafka.clients import Kafka
from konverse.bridge.kafka.clock import kafka_time_ms
from konverse.routing.routes.decision import RouteDecision, RouteOutcome, RouteQuestion, decide
from konverse.routing.routes.instance import MSDB, BrokerDatabase, RoutingInstance
from konverse.routing.routes.table import RouteTable
from konverse.schemas.catalog.objects import Service
from konverse.schemas.catalog.routes import NEVER, Route
from konverse.schemas.errors import InvalidState, NotSupportedYet, ServiceNotFound, UnknownObject
from konverse.schemas.limits import WAY_ENTRIES_MAX

from .catalog import Catalog

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class _Prepared:
    """Tables and databases as one version of the catalog has them."""

    version: int
    """`Catalog.routed_version`."""
    instance: RoutingInstance
    tables: dict[str, RouteTable]
    valid_until_ms: int
    """Kafka's time at which the next route expires; NEVER: none does."""
    decisions: dict[tuple[str, UUID | None], RouteDecision] = field(default_factory=dict)


class LocatedService(NamedTuple):
    """A service, and the database that has it."""

    service: Service
    database: str


class Network:
    """The routes and services of an instance, seen from one database. Thread-safe."""

    def __init__(self, kafka: Kafka, catalog: Catalog) -> None:
        self.catalog = catalog
        self._kafka = kafka
        self._prepared: _Prepared | None = None
        """Replaced as a whole, so that a thread never sees tables of two versions."""
        self._preparing = threading.Lock()
        """Held while tables are prepared, so that threads do not prepare the same ones."""

    def place(self, service: str, broker_id: UUID | None, conversation: bytes) -> str:
        """The database of this instance for a conversation with `service`. Refreshes the catalog if none is known.

        Raises ServiceNotFound (8423; 8490 when the database with the broker id, of the dialog or of its route, lacks
        the service), InvalidState when the broker of this database is disabled, and NotSupportedYet when the routes
        lead to another instance.
        """
        self.catalog.refresh_every()  # else a process that only begins dialogs would never notice a new route
        self._check_enabled()
        decision = self._decide(service, broker_id, conversation)
        if decision.outcome is not RouteOutcome.DELIVER:
            self.catalog.refresh()
            decision = self._decide(service, broker_id, conversation)
        if decision.database is not None:
            return decision.database.name
        if decision.outcome is RouteOutcome.SEND:
            raise NotSupportedYet(
                f"service {service!r} is elsewhere, by the routes of database {self.catalog.database!r}: "
                f"{decision.reason}. Dialogs do not leave their instance yet"
            )
        raise ServiceNotFound(
            f"there is no service {service!r} for a dialog that begins in database {self.catalog.database!r}: "
            f"{decision.reason}; names are compared byte by byte. Create the service with "
            "broker.admin.create_service(…), or a route to it",
            8490 if decision.outcome is RouteOutcome.REFUSE else None,
        )

    def _check_enabled(self) -> None:
        """Raise InvalidState when the broker of this database is disabled: no dialog begins in it."""
        catalog = self.catalog
        if catalog.broker_of(catalog.database).enabled:
            return
        catalog.refresh()
        if not catalog.broker_of(catalog.database).enabled:
            raise InvalidState(
                f"the broker of database {catalog.database!r} is disabled, so no dialog begins there; enable it with "
                "broker.admin.alter_database(enabled=True)"
            )

    def service(self, name: str, broker_id: UUID | None = None, lot: bytes = b"") -> LocatedService:
        """The service of that name that a conversation would reach. Of several, `lot` draws one. Raises as `place`."""
        return self.placed(name, broker_id, lot, lambda database: self._located(name, database))

    def _located(self, name: str, database: str) -> LocatedService:
        return LocatedService(self.catalog.get_in(database, Service, name), database)

    def placed(self, service: str, broker_id: UUID | None, conversation: bytes, find: Callable[[str], Found]) -> Found:
        """The result of `find` in the database where a conversation goes. Repeated if a DROP came in between."""
        while True:
            version = self.catalog.routed_version
            try:
                return find(self.place(service, broker_id, conversation))
            except UnknownObject:
                if self.catalog.routed_version == version:
                    raise

    def is_here(self, service: str) -> bool:
        """Whether a conversation with this service would find it in this database, as far as is known here."""
        database = self._decide(service, None, b"").database
        return database is not None and database.name == self.catalog.database

    def reaches(self, service: str) -> bool:
        """Whether a conversation with this service would find it in the instance, as far as is known here."""
        return self._decide(service, None, b"").outcome is RouteOutcome.DELIVER

    def explain(self, question: RouteQuestion) -> RouteDecision:
        """The decision for a new conversation at the present moment, after a refresh of the catalog."""
        self.catalog.refresh()
        prepared = self._now()
        return decide(question, prepared.instance, prepared.tables, _Lots(uuid4().bytes))

    def _decide(self, service: str, broker_id: UUID | None, conversation: bytes) -> RouteDecision:
        prepared = self._now()
        known = prepared.decisions.get((service, broker_id))
        if known is not None:
            return known
        lots = _Lots(conversation)
        question = RouteQuestion(service, broker_id, self.catalog.database)
        decision = decide(question, prepared.instance, prepared.tables, lots)
        if not lots.drawn:
            if len(prepared.decisions) >= WAY_ENTRIES_MAX:
                prepared.decisions.clear()
            prepared.decisions[service, broker_id] = decision
        return decision

    def _now(self) -> _Prepared:
        prepared = self._prepared
        if prepared is None or not self._is_valid(prepared):
            with self._preparing:
                prepared = self._prepared
                if prepared is None or not self._is_valid(prepared):
                    prepared = self._prepared = self._prepare()
        return prepared

    def _is_valid(self, prepared: _Prepared) -> bool:
        return prepared.version == self.catalog.routed_version and not self._has_expired(prepared)

    def _prepare(self) -> _Prepared:
        version = self.catalog.routed_version  # read first: a later change is seen at the next call
        tables = self._tables()
        until = min((one.valid_until_ms for one in tables.values() if one.valid_until_ms != NEVER), default=NEVER)
        return _Prepared(version, self._instance(), tables, until)

    def _has_expired(self, prepared: _Prepared) -> bool:
        return prepared.valid_until_ms != NEVER and kafka_time_ms(self._kafka) >= prepared.valid_until_ms

    def _instance(self) -> RoutingInstance:
        catalog = self.catalog
        names = {catalog.database, MSDB, *catalog.known_databases()}
        return RoutingInstance(
            BrokerDatabase(
                name,
                UUID(broker.broker_id),
                frozenset(service.name for service in catalog.known_in(name, Service)),
                broker.enabled,
            )
            for name, broker in ((name, catalog.broker_of(name)) for name in sorted(names))
        )

    def _tables(self) -> dict[str, RouteTable]:
        """The routes of this database and of msdb without those that have expired, by Kafka's clock (behaviour 163).

        No decision for this database uses the routes of others.
        """
        routes = {name: self.catalog.known_in(name, Route) for name in (self.catalog.database, MSDB)}
        expire = any(route.expires_ms != NEVER for some in routes.values() for route in some)
        now_ms = kafka_time_ms(self._kafka) if expire else 0
        return {name: RouteTable.of(name, some, now_ms) for name, some in routes.items()}


class _Lots:
    """Draws one of several names by the id of a conversation (implements `konverse.routing.routes.instance.Pick`).

    The name whose hash together with the id is the highest is drawn (rendezvous hashing). So a new copy of a service
    takes its share of ids from the others, and no other id changes its place.
    """

    def __init__(self, conversation: bytes) -> None:
        self._conversation = conversation
        self.drawn = False

    def __call__(self, names: Sequence[str]) -> int:
        if len(names) == 1:
            return 0
        self.drawn = True
        return max(range(len(names)), key=lambda at: hashlib.sha256(self._conversation + names[at].encode()).digest())
