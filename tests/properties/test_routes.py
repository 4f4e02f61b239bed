"""Random tables of routes: a decision agrees with a second, naive reading of the document's sentences (R1 to R44)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from konverse.routing.routes.decision import RouteDecision, RouteQuestion, decide
from konverse.routing.routes.instance import MSDB, BrokerDatabase, RoutingInstance
from konverse.routing.routes.table import RouteTable
from konverse.schemas.catalog.addresses import NetworkAddress
from konverse.schemas.catalog.routes import BROKER_CONFIGURATION, LOCAL, NEVER, TRANSPORT, Route

NOW: Final = 100
SERVICES: Final = ("S", "T", "TCP://transport/U", BROKER_CONFIGURATION)
IDS: Final = tuple(UUID(int=number) for number in range(1, 5))
DATABASES: Final = ("sales", "stock", MSDB)
HOSTS: Final = ("here", "one", "two")


def _may_be(route: Route) -> bool:
    """No id without a service (9662), no mirror of a keyword (9743)."""
    return bool(route.service_name or not route.broker_instance) and (
        not route.mirror_address or route.address not in (LOCAL, TRANSPORT)
    )


ids = st.sampled_from(IDS)
services = st.sampled_from(SERVICES)
networks = st.sampled_from(
    [f"{scheme}://{host}:4022{end}" for host in HOSTS for scheme in ("TCP", "tcp") for end in ("", "/")]
)
addresses = st.one_of(st.sampled_from([LOCAL, TRANSPORT]), networks)
routes = st.lists(
    st.builds(
        Route,
        name=st.sampled_from("abcdefgh"),
        address=addresses,
        service_name=st.one_of(st.just(""), services),
        broker_instance=st.one_of(st.just(""), ids.map(str)),
        expires_ms=st.sampled_from([NEVER, NOW - 1, NOW, NOW + 1]),
        mirror_address=st.one_of(st.just(""), networks),
    ).filter(_may_be),
    max_size=8,
    unique_by=lambda one: one.name,
)
databases = st.lists(
    st.builds(BrokerDatabase, st.sampled_from(DATABASES[:2]), ids, st.frozensets(services), st.booleans()),
    max_size=3,
    unique_by=(lambda one: one.name, lambda one: one.broker_id),
)
questions = st.builds(
    lambda service, broker_id, arrived, reply, hops_left: RouteQuestion(
        service, broker_id, "" if arrived else "sales", arrived, reply, hops_left
    ),
    services,
    st.one_of(st.none(), ids),
    st.booleans(),
    st.booleans(),
    st.integers(0, 2),
)


class Case(NamedTuple):
    """One conversation in one network."""

    question: RouteQuestion
    databases: list[BrokerDatabase]
    own: list[Route]
    msdb: list[Route]
    forwarding: bool
    requested: bool


class Reading:
    """The document, sentence by sentence. It returns all answers that the document allows, as words."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.wanted = case.question

    def answers(self) -> set[str]:
        """All allowed answers."""
        question = self.wanted
        if question.reply and any(one.broker_id == question.broker_id for one in self.case.databases):
            return self.locate(question.broker_id, own="", then=self.stuck)
        return self.route(outside=question.arrived)

    def route(self, *, outside: bool, again: bool = False) -> set[str]:
        """The matching steps, for one of the two tables."""
        question = self.wanted
        table = [one for one in (self.case.msdb if outside else self.case.own) if not 0 <= one.expires_ms <= NOW]
        if question.broker_id is not None:
            exact = [
                one
                for one in table
                if one.service_name == question.service and one.broker_instance == str(question.broker_id)
            ]
            if exact:
                return self.choose(exact, outside=outside, again=again)
        without_id = [one for one in table if one.service_name == question.service and not one.broker_instance]
        if without_id:
            return self.choose(without_id, outside=outside, again=again)
        if question.broker_id is None:
            with_id = [one for one in table if one.service_name == question.service]
            if with_id:
                return set().union(
                    *(
                        self.choose(
                            [one for one in with_id if one.broker_instance == picked], outside=outside, again=again
                        )
                        for picked in {one.broker_instance for one in with_id}
                    )
                )
        asks = any(one.service_name == BROKER_CONFIGURATION and not one.broker_instance for one in table)
        if asks and not outside:
            return {"delay" if self.case.requested else "delay and ask"}
        wildcard = [one for one in table if not one.service_name and not one.broker_instance]
        if wildcard:
            return self.choose(wildcard, outside=outside, again=again)
        here = any(question.service in one.services for one in self.case.databases if one.enabled)
        if question.broker_id is not None and here:
            return self.locate(question.broker_id, own="" if outside else question.database, then=self.stuck)
        return self.stuck()

    def choose(self, matched: Sequence[Route], *, outside: bool, again: bool) -> set[str]:
        """The choosing steps. Of identical routes any one may be chosen."""
        question = self.wanted
        mirrored = [one for one in matched if one.mirror_address]
        if mirrored:
            return self.send(mirrored, outside=outside, again=again)
        local = [one for one in matched if one.address == LOCAL]
        network = [one for one in matched if one.address not in (LOCAL, TRANSPORT)]
        transport = [one for one in matched if one.address == TRANSPORT]
        rest = network or transport

        def further() -> set[str]:
            return self.send(rest, outside=outside, again=again) if rest else self.stuck()

        if not local:
            return further()
        named = question.broker_id or (UUID(local[0].broker_instance) if local[0].broker_instance else None)
        own = "" if outside else question.database
        return self.locate(named, own=own, then=further, refuses=not rest)

    def send(self, chosen: Sequence[Route], *, outside: bool, again: bool) -> set[str]:
        """Each address to which the message may go."""
        found: set[str] = set()
        for one in chosen:
            text = self.wanted.service if one.address == TRANSPORT else one.address
            host = text[6:].partition("/")[0].partition(":")[0] if text.lower().startswith("tcp://") else ""
            if not host or (outside and not self.case.forwarding):
                found |= self.stuck()
            elif host == "here":
                found |= self.stuck() if outside else self.route(outside=True, again=True)
            elif self.wanted.arrived and self.wanted.hops_left == 0:
                found |= self.stuck()
            else:
                found.add(f"send to {host} with {self.wanted.hops_left - self.wanted.arrived} hops")
        return found

    def locate(self, named: UUID | None, *, own: str, then: Callable[[], set[str]], refuses: bool = True) -> set[str]:
        """The databases that may get the message."""
        question = self.wanted
        if named is not None:
            there = [one for one in self.case.databases if one.broker_id == named]
            if there and there[0].enabled and question.service in there[0].services:
                return {f"deliver to {there[0].name}"}
            if there and there[0].enabled and refuses and not question.reply:
                return {"refuse"}
            return then()
        having = [one.name for one in self.case.databases if one.enabled and question.service in one.services]
        if not having:
            return then()
        return {f"deliver to {own}"} if own in having else {f"deliver to {one}" for one in having}

    def stuck(self) -> set[str]:
        """A message without a way on waits here, or is dropped if it came from outside."""
        return {"drop" if self.wanted.arrived else "delay"}


def words(decision: RouteDecision) -> str:
    """A decision in the words of the second reading."""
    if decision.database is not None:
        return f"deliver to {decision.database.name}"
    if decision.addresses:
        return f"send to {decision.addresses[0].host} with {decision.hops_left} hops"
    return decision.outcome.value + " and ask" * decision.asks


@given(
    st.builds(Case, questions, databases, routes, routes, st.booleans(), st.booleans()),
    st.lists(st.integers(min_value=0, max_value=7), min_size=8, max_size=8),
)
def test_r01_to_r44_a_decision_is_one_that_the_document_allows(case: Case, draws: list[int]) -> None:
    instance = RoutingInstance(case.databases, [NetworkAddress("here", 4022)], forwarding=case.forwarding)
    tables = {"sales": RouteTable.of("sales", case.own, NOW), MSDB: RouteTable.of(MSDB, case.msdb, NOW)}
    left = iter(draws)
    found = decide(case.question, instance, tables, lambda names: next(left) % len(names), requested=case.requested)
    assert words(found) in Reading(case).answers()
