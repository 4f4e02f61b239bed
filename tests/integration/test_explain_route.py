"""`konverse route explain` and `broker.admin.explain_route` on the catalog of an instance with two databases."""

from __future__ import annotations

import json
from datetime import timedelta
from uuid import UUID, uuid4

import pytest

from konverse.routing.routes.decision import MatchStep, RouteDecision, RouteOutcome
from konverse.routing.routes.instance import MSDB
from konverse.schemas.errors import InvalidName, InvalidSettings
from tests.kit.commands import run
from tests.kit.servers import Servers
from tests.kit.shop import connected, until

pytestmark = pytest.mark.stack

AWAY = "TCP://away.example.com:4022"


def test_a_service_is_found_in_another_database_and_by_its_broker_id(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database) as shop, connected(servers.bootstrap, f"{database}2") as other:
        service = f"//{database}/Orders"  # other databases of the instance have services of other names
        shop.admin.create_queue("Orders", partitions=1)
        shop.admin.create_service(service, queue="Orders")
        found = until(lambda: _delivered(other.admin.explain_route(service)), "the other database to be known")
        assert found == (MatchStep.WILDCARD, database)
        named = other.admin.explain_route(service, broker_id=shop.catalog.broker_id)
        assert _delivered(named) == (MatchStep.WILDCARD, database)
        other.admin.drop_route("AutoCreatedLocal")
        assert other.admin.explain_route(service).outcome is RouteOutcome.DELAY
        named = other.admin.explain_route(service, broker_id=shop.catalog.broker_id)
        assert _delivered(named) == (MatchStep.AS_LOCAL, database)
        arrived = other.admin.explain_route(service, arrived=True)
        assert (arrived.table, _delivered(arrived)) == (MSDB, (MatchStep.WILDCARD, database))
        reply = other.admin.explain_route(service, broker_id=shop.catalog.broker_id, reply=True)
        assert _delivered(reply) == (MatchStep.REPLY, database)


def test_a_route_counts_until_it_expires(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database) as broker:
        broker.admin.create_route("away", AWAY, service_name="//far", lifetime=timedelta(seconds=1))
        until(lambda: broker.admin.explain_route("//far").step is MatchStep.WILDCARD, "the route to expire")
        broker.admin.alter_route("away", lifetime=timedelta(hours=1))
        found = broker.admin.explain_route("//far")
        assert (found.step, [str(one) for one in found.addresses]) == (MatchStep.SERVICE, [AWAY])


def test_the_command_shows_the_steps_the_candidates_and_the_choice(servers: Servers, database: str) -> None:
    broker_id = uuid4()
    with connected(servers.bootstrap, database) as broker:
        broker.admin.create_route("named", AWAY, service_name="//far", broker_instance=broker_id)
    asked = [
        "route",
        "explain",
        "--service",
        "//far",
        "--kafka",
        f"kafka://{servers.bootstrap}",
        "--database",
        database,
    ]
    code, shown, errors = run(*asked)
    assert (code, errors) == (0, "")
    for text in (
        "step 2    no match",
        "step 3    matched",
        "yes",
        "named",
        AWAY,
        "outcome   send: route 'named' leads to",
    ):
        assert text in shown
    told = json.loads(run(*asked, "--broker-id", str(UUID(int=1)), "--json")[1])
    assert (told["step"], told["outcome"], told["waits_until"]) == (5, "delay", [
        "a database of this instance is enabled, or gets that broker id",
        "a route of that table is created, altered, or expires",
    ])  # fmt: skip
    arrived = run(*asked, "--arrived")[1]
    assert "routes of msdb" in arrived
    assert "outcome   drop: service '//far' is not in this instance" in arrived


def test_wrong_questions_are_refused(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database) as broker:
        with pytest.raises(InvalidSettings, match="give the broker id"):
            broker.admin.explain_route("//far", reply=True)
        with pytest.raises(InvalidName):
            broker.admin.explain_route("")


def _delivered(found: RouteDecision) -> tuple[MatchStep, str] | None:
    return (found.step, found.database.name) if found.database else None
