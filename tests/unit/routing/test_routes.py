"""Decisions about routes: the published examples, and the sentences of the source document (R1 to R45)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from random import Random
from typing import Final
from uuid import UUID

import pytest

from konverse.routing.routes.decision import MatchStep, RouteDecision, RouteOutcome, RouteQuestion, Wake, decide
from konverse.routing.routes.instance import MSDB, BrokerDatabase, Pick, RoutingInstance
from konverse.routing.routes.table import RouteTable
from konverse.schemas.catalog.addresses import NetworkAddress, network_address, transport_address
from konverse.schemas.catalog.routes import AUTO_CREATED_LOCAL, BROKER_CONFIGURATION, LOCAL, NEVER, TRANSPORT, Route
from konverse.schemas.limits import FORWARD_HOPS_MAX

NOW: Final = 1_000
ONE, TWO, OTHER = UUID(int=1), UUID(int=2), UUID(int=3)
AUTO: Final = Route(AUTO_CREATED_LOCAL, LOCAL)
HERE: Final = NetworkAddress("here", 4022)

DELIVER, SEND, DELAY, DROP, REFUSE = RouteOutcome


def route(name: str, address: str, service: str = "", broker_id: UUID | None = None, **clauses: object) -> Route:
    values = {"service_name": service, "broker_instance": str(broker_id or ""), **clauses}
    return Route(name, address, **values)  # type: ignore[arg-type]


def nth(at: int) -> Pick:
    """Draws the name at this place, if there are so many."""
    return lambda names: at % len(names)


class Network:
    """Databases `sales` (broker id 1) and `stock` (2) of an instance, and their routes."""

    def __init__(
        self,
        routes: Iterable[Route] = (AUTO,),
        msdb: Iterable[Route] = (AUTO,),
        *,
        here: Iterable[str] = (),
        stock: Iterable[str] = (),
        enabled: bool = True,
        forwarding: bool = False,
    ) -> None:
        self.databases = (
            BrokerDatabase("sales", ONE, frozenset(here)),
            BrokerDatabase("stock", TWO, frozenset(stock), enabled),
        )
        self.instance = RoutingInstance(self.databases, [HERE], forwarding=forwarding)
        self.tables = {"sales": RouteTable.of("sales", routes, NOW), MSDB: RouteTable.of(MSDB, msdb, NOW)}

    def decide(
        self,
        service: str,
        broker_id: UUID | None = None,
        *,
        arrived: bool = False,
        reply: bool = False,
        requested: bool = False,
        pick: Pick = lambda _: 0,
        hops_left: int = FORWARD_HOPS_MAX,
    ) -> RouteDecision:
        question = RouteQuestion(service, broker_id, "" if arrived else "sales", arrived, reply, hops_left)
        return decide(question, self.instance, self.tables, pick, requested=requested)

    def with_id(self, broker_id: UUID) -> BrokerDatabase:
        """The database with that broker id."""
        return next(one for one in self.databases if one.broker_id == broker_id)

    def sent(
        self, service: str, broker_id: UUID | None = None, *, arrived: bool = False, reply: bool = False
    ) -> tuple[RouteOutcome, str]:
        """Outcome, and the database or the host of the first address."""
        found = self.decide(service, broker_id, arrived=arrived, reply=reply)
        return found.outcome, found.database.name if found.database else "".join(a.host for a in found.addresses[:1])


# ------------------------------------------------------------------------------------------- the published examples

PARTS: Final = route("OrderPartsRoute", "tcp://host2.Adventure-Works.com:4022/", "OrderParts")
MIRRORED: Final = route(
    "OrderPartsRoute",
    "tcp://partner1.Adventure-Works.com:4022/",
    "OrderParts",
    mirror_address="tcp://partner2.Adventure-Works.com:4022/",
)
EXTERNAL: Final = route("ExternalRoute", "tcp://forwarding.Adventure-Works.com:4022/")
BALANCED: Final = (
    route("BalancedRouteOne", "tcp://server1.Adventure-Works.com:4022/", "BalancedService", ONE),
    route("BalancedRouteTwo", "tcp://server2.Adventure-Works.com:4022/", "BalancedService", TWO),
)
ELSEWHERE: Final = route("ForwardingRoute", "tcp://elsewhere.Adventure-Works.com:4022/", "ElsewhereService")
FORWARDING: Final = route("ForwardingRoute", "tcp://forwarding.Adventure-Works.com:4022/")

EXAMPLES: Final = {
    "1": ((AUTO,), (AUTO,)),
    "2": ((AUTO, PARTS), (AUTO,)),
    "3": ((AUTO, MIRRORED), (AUTO,)),
    "4": ((AUTO, EXTERNAL), (AUTO,)),
    "5": ((AUTO, *BALANCED), (AUTO,)),
    "6": ((AUTO,), (AUTO, ELSEWHERE)),
    "7": ((AUTO,), (AUTO, FORWARDING)),
}
"""Example -> routes of the database that begins conversations, and of msdb."""


@pytest.mark.parametrize("number", list(EXAMPLES))
def test_every_example_delivers_to_services_of_the_instance(number: str) -> None:
    network = Network(*EXAMPLES[number], stock=["Here"])
    assert network.sent("Here") == (DELIVER, "stock")
    assert network.sent("Here", arrived=True) == (DELIVER, "stock")


@pytest.mark.parametrize("number", [one for one in EXAMPLES if one != "4"])
def test_every_example_except_the_fourth_delays_messages_to_an_unknown_service(number: str) -> None:
    """The first example says that it is dropped; the others, and the description of the process, say delayed."""
    found = Network(*EXAMPLES[number]).decide("Unknown")
    assert (found.outcome, found.wakes) == (DELAY, (Wake.SERVICE, Wake.ROUTE))


@pytest.mark.parametrize("number", list(EXAMPLES))
def test_every_example_drops_incoming_messages_for_an_unknown_service_when_forwarding_is_off(number: str) -> None:
    assert Network(*EXAMPLES[number]).sent("Unknown", arrived=True) == (DROP, "")


def test_example_2_sends_to_the_address_of_the_route_that_names_the_service() -> None:
    network = Network(*EXAMPLES["2"], here=["OrderParts"])
    assert network.sent("OrderParts") == (SEND, "host2.adventure-works.com")
    assert network.sent("OrderParts", arrived=True) == (DELIVER, "sales")


def test_r41_r42_r43_r44_r45_example_3_names_the_address_and_that_of_the_mirror() -> None:
    """Which of the two is the principal, the instances at these addresses say: the decision leaves that open."""
    found = Network(*EXAMPLES["3"]).decide("OrderParts")
    assert found.outcome is SEND
    assert [str(one) for one in found.addresses] == [
        "TCP://partner1.adventure-works.com:4022",
        "TCP://partner2.adventure-works.com:4022",
    ]


def test_example_4_sends_messages_for_unknown_services_to_one_address() -> None:
    network = Network(*EXAMPLES["4"])
    assert network.sent("Unknown") == (SEND, "forwarding.adventure-works.com")
    assert network.decide("Unknown").candidates == (AUTO, EXTERNAL)


def test_r08_example_5_spreads_conversations_over_both_ids_and_stays_with_an_acknowledged_one() -> None:
    network = Network(*EXAMPLES["5"])
    draws = Random(7)
    hosts = Counter(
        network.decide("BalancedService", pick=lambda names: draws.randrange(len(names)))
        .addresses[0]
        .host.partition(".")[0]
        for _ in range(400)
    )
    assert set(hosts) == {"server1", "server2"}
    assert min(hosts.values()) > 150
    for broker_id, host in ((ONE, "server1"), (TWO, "server2")):
        assert network.sent("BalancedService", broker_id) == (SEND, f"{host}.adventure-works.com")


@pytest.mark.parametrize("forwarding", [False, True])
def test_example_6_forwards_one_service_even_if_it_is_here(forwarding: bool) -> None:
    network = Network(*EXAMPLES["6"], here=["ElsewhereService"], forwarding=forwarding)
    expected = (SEND, "elsewhere.adventure-works.com") if forwarding else (DROP, "")
    assert network.sent("ElsewhereService", arrived=True) == expected
    assert network.sent("ElsewhereService") == (DELIVER, "sales")


def test_example_7_forwards_incoming_messages_for_services_that_are_not_local() -> None:
    network = Network(*EXAMPLES["7"], here=["Here"], forwarding=True)
    assert network.sent("Unknown", arrived=True) == (SEND, "forwarding.adventure-works.com")
    assert network.sent("Here", arrived=True) == (DELIVER, "sales")
    assert network.sent("Unknown") == (DELAY, "")


# ------------------------------------------------------------------------------------------------- which table


def test_r06_a_decision_finds_routes_chooses_one_and_locates_the_service() -> None:
    found = Network([PARTS, SERVICE, AUTO], here=["S"]).decide("S")
    assert (found.step, found.candidates, found.route) == (MatchStep.SERVICE, (SERVICE,), SERVICE)
    assert found.addresses == (network_address(SERVICE.address),)
    network = Network([PARTS, AUTO], here=["S"])
    found = network.decide("S")
    assert (found.step, found.candidates, found.route) == (MatchStep.WILDCARD, (AUTO,), AUTO)
    assert found.database == network.with_id(ONE)


def test_r01_r02_r03_r30_outgoing_messages_use_routes_of_their_database_and_incoming_messages_those_of_msdb() -> None:
    network = Network([route("out", "TCP://out", "S")], [route("in", "TCP://in", "S")], forwarding=True)
    assert network.sent("S") == (SEND, "out")
    assert network.sent("S", arrived=True) == (SEND, "in")
    assert (network.decide("S").table, network.decide("S", arrived=True).table) == ("sales", MSDB)


def test_r04_the_steps_are_the_same_for_both_tables() -> None:
    routes = [AUTO, route("id", "TCP://id", "S", OTHER), route("name", "TCP://name", "S")]
    network = Network(routes, routes, forwarding=True)
    for broker_id, step in ((OTHER, MatchStep.NAMED), (None, MatchStep.SERVICE), (ONE, MatchStep.SERVICE)):
        assert {network.decide("S", broker_id, arrived=way).step for way in (False, True)} == {step}


def test_r05_163_an_expired_route_does_not_count_and_the_table_knows_when_the_next_one_expires() -> None:
    routes = [route("old", "TCP://old", "S", expires_ms=NOW), route("new", "TCP://new", "S", expires_ms=NOW + 5)]
    table = RouteTable.of("sales", routes, NOW)
    assert [one.name for one in table.services["S"].all] == ["new"]
    assert table.valid_until_ms == NOW + 5
    later = RouteTable.of("sales", [*routes, AUTO], NOW + 5)
    assert (later.services, later.valid_until_ms) == ({}, NEVER)


# ------------------------------------------------------------------------------------------------------ replies


def test_r10_170_a_reply_is_delivered_to_its_broker_id_regardless_of_the_routes() -> None:
    network = Network([route("away", "TCP://away", "S")], [route("away", "TCP://away", "S")], stock=["S"], here=["S"])
    for arrived in (False, True):
        found = network.decide("S", TWO, arrived=arrived, reply=True)
        assert (found.outcome, found.step, found.database) == (DELIVER, MatchStep.REPLY, network.with_id(TWO))


def test_r11_a_reply_for_another_instance_is_matched_like_any_message() -> None:
    network = Network([route("away", "TCP://away", "S")], [AUTO], here=["S"])
    assert network.sent("S", OTHER, reply=True) == (SEND, "away")
    assert network.decide("S", OTHER, reply=True, arrived=True).outcome is DROP


# -------------------------------------------------------------------------------------------------------- match

NAMED: Final = route("named", "TCP://named", "S", OTHER)
SERVICE: Final = route("service", "TCP://service", "S")
ASKED: Final = route("ask", "TCP://ask", BROKER_CONFIGURATION)


@pytest.mark.parametrize(
    ("routes", "broker_id", "step", "host"),
    [
        ([NAMED, SERVICE, AUTO], OTHER, MatchStep.NAMED, "named"),
        ([NAMED, SERVICE, AUTO], None, MatchStep.SERVICE, "service"),
        ([NAMED, SERVICE, AUTO], ONE, MatchStep.SERVICE, "service"),
        ([NAMED, EXTERNAL], None, MatchStep.ANY_ID, "named"),
        ([NAMED, EXTERNAL], ONE, MatchStep.WILDCARD, "forwarding.adventure-works.com"),
        ([EXTERNAL], None, MatchStep.WILDCARD, "forwarding.adventure-works.com"),
    ],
)
def test_r12_r13_r14_r15_r17_156_157_158_the_first_step_that_finds_a_route_ends_matching(
    routes: list[Route], broker_id: UUID | None, step: MatchStep, host: str
) -> None:
    found = Network(routes).decide("S", broker_id)
    assert (found.step, found.addresses[0].host) == (step, host)


def test_r15_one_broker_id_is_drawn_and_only_its_routes_match() -> None:
    routes = [
        route(f"{number}{way}", f"TCP://{number}{way}", "S", UUID(int=number)) for number in (7, 8) for way in "ab"
    ]
    names = {tuple(one.name for one in Network(routes).decide("S", pick=nth(at)).candidates) for at in range(2)}
    assert names == {("7a", "7b"), ("8a", "8b")}


@pytest.mark.parametrize("requested", [False, True])
def test_r16_185_188_191_a_dynamic_routing_service_is_asked_once_before_any_wildcard(requested: bool) -> None:
    found = Network([ASKED, AUTO], here=["S"]).decide("S", requested=requested)
    assert (found.outcome, found.step, found.asks) == (DELAY, MatchStep.ASK, not requested)
    assert found.wakes == (Wake.REQUEST, Wake.ROUTE)


def test_r16_no_dynamic_routing_for_arrivals_and_for_services_that_a_route_names() -> None:
    network = Network([ASKED, SERVICE, AUTO], [ASKED, AUTO], here=["T"])
    assert network.sent("S") == (SEND, "service")
    assert network.sent(BROKER_CONFIGURATION) == (SEND, "ask")
    assert network.sent("T", arrived=True) == (DELIVER, "sales")


def test_r18_166_a_named_database_of_the_instance_needs_no_route() -> None:
    network = Network([], [], here=["S"], stock=["S"])
    found = network.decide("S", TWO)
    assert (found.outcome, found.step, found.candidates, found.route) == (DELIVER, MatchStep.AS_LOCAL, (), None)
    assert network.sent("S", TWO) == (DELIVER, "stock")
    assert network.sent("S", TWO, arrived=True) == (DELIVER, "stock")


def test_r19_r20_r21_164_without_a_route_it_waits_for_one() -> None:
    found = Network([], here=["S"]).decide("S")
    assert (found.outcome, found.step, found.wakes) == (DELAY, MatchStep.NONE, (Wake.ROUTE,))
    assert "no route of database 'sales' matches service 'S'" in found.reason
    assert Network([]).decide("S", TWO).wakes == (Wake.ROUTE, Wake.SERVICE)


# ------------------------------------------------------------------------------------------------------- choose


def test_r22_routes_with_one_service_one_broker_id_and_one_address_are_one() -> None:
    routes = [
        route("b", "TCP://x:1", "S", expires_ms=NOW + 1),
        route("a", "tcp://X:1", "S", expires_ms=NOW + 2),
        route("c", "TCP://y:1", "S"),
    ]
    assert [one.name for one in Network(routes).decide("S").candidates] == ["a", "c"]


CLASSES: Final = (
    route("mirrored", "TCP://mirrored", mirror_address="TCP://mirror"),
    AUTO,
    route("network", "TCP://network"),
    route("transport", TRANSPORT),
)


@pytest.mark.parametrize("first", range(4))
@pytest.mark.parametrize("is_here", [False, True])
def test_r23_r24_r25_r26_r39_160_161_162_classes_of_addresses_are_tried_in_order(first: int, is_here: bool) -> None:
    service = "TCP://transport:5/S"
    network = Network(CLASSES[first:], here=[service] if is_here else [])
    expected = {0: "mirrored", 1: "sales" if is_here else "network", 2: "network", 3: "transport"}[first]
    assert network.sent(service)[1] == expected


def test_r40_a_mirrored_route_has_no_part_in_matching() -> None:
    assert Network([CLASSES[0], SERVICE]).sent("S") == (SEND, "service")


def test_r26_161_without_an_address_in_the_name_of_the_service_it_waits() -> None:
    found = Network([CLASSES[3]]).decide("S")
    assert (found.outcome, found.wakes) == (DELAY, (Wake.ROUTE,))
    assert "'S' has none" in found.reason


def test_r27_171_without_forwarding_incoming_messages_are_not_sent_to_another_instance() -> None:
    assert Network(msdb=[SERVICE], here=["S"]).sent("S", arrived=True) == (DROP, "")
    assert Network(msdb=[SERVICE], forwarding=True).sent("S", arrived=True) == (SEND, "service")


@pytest.mark.parametrize(("hops_left", "outcome"), [(2, SEND), (1, SEND), (0, DROP)])
def test_r36_each_instance_that_forwards_a_message_takes_a_hop_from_it(hops_left: int, outcome: RouteOutcome) -> None:
    found = Network(msdb=[SERVICE], forwarding=True).decide("S", arrived=True, hops_left=hops_left)
    assert found.outcome is outcome
    if outcome is SEND:
        assert found.hops_left == hops_left - 1
    else:
        assert "was forwarded 10 times" in found.reason
    assert Network([SERVICE]).decide("S").hops_left == FORWARD_HOPS_MAX, "sent from here, it has all"


# ------------------------------------------------------------------------------------------------------- locate


def test_r28_r32_167_the_own_database_comes_first() -> None:
    network = Network(here=["S"], stock=["S"])
    assert {network.decide("S", pick=nth(at)).database for at in range(2)} == {network.with_id(ONE)}


def test_r31_the_broker_id_of_the_route_names_the_database() -> None:
    assert Network([route("stock", LOCAL, "S", TWO)], here=["S"], stock=["S"]).sent("S") == (DELIVER, "stock")


def test_r33_r34_r29_another_database_is_drawn() -> None:
    network = Network(here=["S"], stock=["S"])
    drawn = {network.decide("S", arrived=True, pick=nth(at)).database for at in range(2)}
    assert {one.name for one in drawn if one is not None} == {"sales", "stock"}


def test_r07_a_route_here_without_the_service_gives_way_to_the_next_class() -> None:
    assert Network([AUTO, EXTERNAL]).sent("S")[0] is SEND
    assert Network([AUTO, EXTERNAL], here=["S"]).sent("S", OTHER)[0] is SEND


def test_134_a_named_database_without_the_service_refuses() -> None:
    found = Network(here=["S"]).decide("S", TWO)
    assert (found.outcome, found.route) == (REFUSE, AUTO)
    assert "the database with that broker id has no service of that name" in found.reason


@pytest.mark.parametrize("broker_id", [None, TWO])
def test_176_nothing_is_delivered_to_a_database_whose_broker_is_disabled(broker_id: UUID | None) -> None:
    found = Network(stock=["S"], enabled=False).decide("S", broker_id)
    assert (found.outcome, found.wakes) == (DELAY, (Wake.DATABASE, Wake.ROUTE))


# ------------------------------------------------------------------------------------------------- loops, addresses


def test_r35_r37_r38_172_an_address_of_this_instance_is_routed_by_msdb_once() -> None:
    back = route("back", "TCP://HERE:4022/", "S")
    assert Network([back], [AUTO], here=["S"]).sent("S") == (DELIVER, "sales")
    assert Network([back], [SERVICE]).sent("S") == (DELAY, "")
    assert Network([back], [SERVICE], forwarding=True).sent("S") == (SEND, "service")
    again = Network([back], [back], forwarding=True).decide("S")
    assert (again.outcome, again.table) == (DELAY, MSDB)
    assert "this instance again" in again.reason
    assert Network([back], [back], forwarding=True).sent("S", arrived=True) == (DROP, "")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("TCP://host:4022", ("host", 4022)),
        ("tcp://Host.Example.com:1/", ("host.example.com", 1)),
        ("TCP://dispatch.Adventure-Works.com", ("dispatch.adventure-works.com", 4022)),
        ("TCP://[::1]:65535", ("[::1]", 65_535)),
        ("TCP://host:0", None),
        ("TCP://host:65536", None),
        ("TCP://host:4022/service", None),
        ("TCP://:4022", None),
        ("host:4022", None),
        (LOCAL, None),
        ("", None),
    ],
)
def test_a_network_address_may_lack_its_port_and_end_in_a_slash(text: str, address: tuple[str, int] | None) -> None:
    assert network_address(text) == address


def test_161_the_name_of_a_service_may_begin_with_an_address() -> None:
    assert transport_address("TCP://host:5/parts/Orders") == ("host", 5)
    assert transport_address("tcp://host/Orders") == ("host", 4022)
    assert transport_address("//host:5/Orders") is None
