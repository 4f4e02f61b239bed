"""Where the messages of one conversation go: match, choose and locate (service-broker.md 6, R1 to R45)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Final, NamedTuple
from uuid import UUID

from konverse.schemas.catalog.addresses import NetworkAddress, network_address, transport_address
from konverse.schemas.catalog.routes import LOCAL, Route
from konverse.schemas.limits import FORWARD_HOPS_MAX

from .instance import MSDB, Absence, BrokerDatabase, Pick, RoutingInstance
from .table import RouteSet, RouteTable


class RouteQuestion(NamedTuple):
    """A conversation whose messages need a route."""

    service: str
    """The service to which the message goes. A reply goes to the service of the initiator."""
    broker_id: UUID | None = None
    """The broker id that BEGIN DIALOG named, or that an acknowledgement carried since (R8)."""
    database: str = ""
    """The database that sends the message; empty for one that arrived."""
    arrived: bool = False
    """The message came from outside the instance (R3)."""
    reply: bool = False
    """Its sender is the target of the conversation (R10)."""
    hops_left: int = FORWARD_HOPS_MAX
    """How often a message that arrived may still be forwarded to another instance (R36)."""


class MatchStep(IntEnum):
    """The steps of matching, numbered as in the source (R12 to R19)."""

    REPLY = 0
    """Not a step: a reply for a database of this instance is delivered without a route (R10)."""
    NAMED = 1
    """Routes with the service and the broker id of the conversation."""
    SERVICE = 2
    """Routes with the service and no broker id."""
    ANY_ID = 3
    """The conversation names no broker id: routes with the service and one broker id, which is drawn."""
    ASK = 4
    """A dynamic routing service is asked for a route."""
    WILDCARD = 5
    """Routes that name neither a service nor a broker id."""
    AS_LOCAL = 6
    """The conversation names a broker id and the service is here: as if a route with LOCAL existed."""
    NONE = 7
    """No route matches."""


class RouteOutcome(Enum):
    """The fate of the messages."""

    DELIVER = "deliver"
    """To a database of this instance."""
    SEND = "send"
    """To a network address."""
    DELAY = "delay"
    """They wait until something changes. That is no error (R20, R21)."""
    DROP = "drop"
    """They arrived and cannot go on. Their sender keeps them and sends them again."""
    REFUSE = "refuse"
    """The database with the named broker id lacks the service: an Error for the sender (-8490, behaviour 134)."""


class Wake(Enum):
    """A change after which a delayed conversation is matched again (R20)."""

    ROUTE = "a route of that table is created, altered, or expires"
    SERVICE = "a service of that name is created in this instance"
    DATABASE = "a database of this instance is enabled, or gets that broker id"
    REQUEST = "the request for a route ends"


@dataclass(frozen=True, slots=True)
class RouteDecision:
    """Where the messages go, and why."""

    outcome: RouteOutcome
    reason: str
    """In words, for a status or `konverse route explain`."""
    step: MatchStep
    table: str
    """The database whose routes were used."""
    candidates: tuple[Route, ...] = ()
    """The routes that matched, in the order of the choice."""
    route: Route | None = None
    """The chosen route; None when there is none."""
    database: BrokerDatabase | None = None
    """For DELIVER."""
    addresses: tuple[NetworkAddress, ...] = ()
    """For SEND: the address, then that of the mirror, if there is one. The two ends agree which of them is used."""
    hops_left: int = FORWARD_HOPS_MAX
    """For SEND: how often the next instances may forward the message (R36)."""
    asks: bool = False
    """A request for a route to the service must be made (R16)."""
    wakes: tuple[Wake, ...] = ()
    """For DELAY: the changes after which the conversation is matched again."""


_LOCAL_ROUTE: Final = Route("(as LOCAL)", LOCAL)
_AS_LOCAL: Final = RouteSet(local=(_LOCAL_ROUTE,))


def decide(
    question: RouteQuestion,
    instance: RoutingInstance,
    tables: Mapping[str, RouteTable],
    pick: Pick,
    *,
    requested: bool = False,
) -> RouteDecision:
    """Decide for one conversation. `tables` has the routes of each database; an absent table is empty.

    `pick` draws among equals: broker ids, routes and databases. `requested`: a request for a route to this service
    has not ended yet. The function is pure: the same draws give the same decision.
    """
    return _Choice(question, instance, tables, pick, requested=requested).made()


class _Choice:
    """One decision in progress."""

    def __init__(
        self,
        question: RouteQuestion,
        instance: RoutingInstance,
        tables: Mapping[str, RouteTable],
        pick: Pick,
        *,
        requested: bool,
    ) -> None:
        self._question = question
        self._instance = instance
        self._tables = tables
        self._pick = pick
        self._requested = requested
        self._arrived = question.arrived
        name = MSDB if question.arrived else question.database
        self._table = tables.get(name) or RouteTable(name)
        self._step = MatchStep.NONE
        self._matched = RouteSet()

    def made(self) -> RouteDecision:
        question = self._question
        if question.reply and question.broker_id is not None and self._instance.has(question.broker_id):
            self._step = MatchStep.REPLY
            return self._delivered(None, question.broker_id, rest=())
        return self._routed()

    def _routed(self) -> RouteDecision:
        self._step, matched = self._match()
        self._matched = matched or RouteSet()
        return self._unmatched() if matched is None else self._choose()

    # -------------------------------------------------------------------------------------------------------- match

    def _match(self) -> tuple[MatchStep, RouteSet | None]:
        table, service, broker_id = self._table, self._question.service, self._question.broker_id
        if broker_id is not None:
            found = table.named.get((service, broker_id))
            if found is not None:
                return MatchStep.NAMED, found
        found = table.services.get(service)
        if found is not None:
            return MatchStep.SERVICE, found
        ids = table.ids.get(service)
        if broker_id is None and ids is not None:
            return MatchStep.ANY_ID, table.named[service, ids[self._draw([*map(str, ids)])]]
        if table.asks and not self._arrived:
            return MatchStep.ASK, None
        if table.wildcard.all:
            return MatchStep.WILDCARD, table.wildcard
        if broker_id is not None and self._instance.has_service(service):
            return MatchStep.AS_LOCAL, _AS_LOCAL
        return MatchStep.NONE, None

    def _unmatched(self) -> RouteDecision:
        service = self._question.service
        if self._step is MatchStep.ASK:
            asked = "has been asked" if self._requested else "is asked"
            reason = f"no route names service {service!r}, and the broker configuration service {asked} for one"
            decided = RouteOutcome.DELAY, reason, *self._found()
            return RouteDecision(*decided, asks=not self._requested, wakes=(Wake.REQUEST, Wake.ROUTE))
        reason = f"no route of database {self._table.database!r} matches service {service!r}"
        return self._impossible(reason, (Wake.ROUTE, Wake.SERVICE) if self._question.broker_id else (Wake.ROUTE,))

    # ------------------------------------------------------------------------------------------------------- choose

    def _choose(self) -> RouteDecision:
        matched = self._matched
        if matched.mirrored:
            return self._sent(self._one_of(matched.mirrored))
        rest = matched.network or matched.transport
        if matched.local:
            route = self._one_of(matched.local)
            return self._delivered(route, self._question.broker_id or _id_of(route), rest)
        return self._sent(self._one_of(rest))

    def _delivered(self, route: Route | None, broker_id: UUID | None, rest: Sequence[Route]) -> RouteDecision:
        """Deliver in the instance; where the service is not located, one of the routes in `rest` is chosen (R7)."""
        question = self._question
        own = "" if self._arrived else question.database
        found = self._instance.locate(question.service, broker_id, own, self._pick)
        if isinstance(found, BrokerDatabase):
            reason = f"database {found.name!r} of this instance has service {question.service!r}"
            return RouteDecision(RouteOutcome.DELIVER, reason, *self._found(route), database=found)
        if rest:
            return self._sent(self._one_of(rest))
        reason = f"service {question.service!r} is not in this instance: {found.value}"
        if found is Absence.NOT_IN_DATABASE and not question.reply:
            return RouteDecision(RouteOutcome.REFUSE, reason, *self._found(route))
        of_database = found in (Absence.DISABLED, Absence.NO_DATABASE)
        return self._impossible(reason, (Wake.DATABASE if of_database else Wake.SERVICE, Wake.ROUTE), route)

    def _sent(self, route: Route) -> RouteDecision:
        """Send to the address of a route that is not LOCAL."""
        question = self._question
        service = question.service
        address = network_address(route.address) or transport_address(service)
        if address is None:
            reason = f"route {route.name!r} takes the address from the name of the service, and {service!r} has none"
            return self._impossible(reason, (Wake.ROUTE,), route)
        if self._arrived and not self._instance.forwarding:
            reason = f"route {route.name!r} leads to {address}, and message forwarding is off"
            return self._impossible(reason, (Wake.ROUTE,), route)
        if address in self._instance.addresses:
            return self._came_round(route, address)
        if question.arrived and question.hops_left == 0:
            reason = f"route {route.name!r} leads to {address}, and the message was forwarded {FORWARD_HOPS_MAX} times"
            return self._impossible(reason, (Wake.ROUTE,), route)
        mirror = network_address(route.mirror_address) if route.mirror_address else None
        reason = f"route {route.name!r} leads to {address}" + (f" or its mirror {mirror}" if mirror else "")
        addresses = (address,) if mirror is None else (address, mirror)
        hops_left = question.hops_left - question.arrived
        return RouteDecision(RouteOutcome.SEND, reason, *self._found(route), addresses=addresses, hops_left=hops_left)

    def _came_round(self, route: Route, address: NetworkAddress) -> RouteDecision:
        """The address is this instance: the message is routed as one that arrived from outside, once (R37)."""
        if self._arrived:
            reason = f"route {route.name!r} of database {MSDB!r} leads to {address}, which is this instance again"
            return self._impossible(reason, (Wake.ROUTE,), route)
        self._arrived = True
        self._table = self._tables.get(MSDB) or RouteTable(MSDB)
        return self._routed()

    # ------------------------------------------------------------------------------------------------------ results

    def _draw(self, names: Sequence[str]) -> int:
        return self._pick(names) if len(names) > 1 else 0

    def _one_of(self, routes: Sequence[Route]) -> Route:
        return routes[self._draw([route.name for route in routes])]

    def _impossible(self, reason: str, wakes: tuple[Wake, ...], route: Route | None = None) -> RouteDecision:
        """The messages cannot go on now: those sent here wait, and those that arrived are dropped."""
        if self._question.arrived:
            return RouteDecision(RouteOutcome.DROP, reason, *self._found(route))
        return RouteDecision(RouteOutcome.DELAY, reason, *self._found(route), wakes=wakes)

    def _found(self, route: Route | None = None) -> tuple[MatchStep, str, tuple[Route, ...], Route | None]:
        """The fields of a decision that name its step, the table, the candidates and the chosen route."""
        chosen = None if route is _LOCAL_ROUTE else route
        candidates = () if self._step is MatchStep.AS_LOCAL else self._matched.all
        return self._step, self._table.database, candidates, chosen


def _id_of(route: Route) -> UUID | None:
    return UUID(route.broker_instance) if route.broker_instance else None
