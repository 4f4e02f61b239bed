"""Behaviours 155, 164, 174, 175 and 192: routes and their clauses."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from konverse.bridge.broker import Broker
from konverse.schemas.catalog.routes import AUTO_CREATED_LOCAL, BROKER_CONFIGURATION, NEVER, Route
from konverse.schemas.errors import (
    AlreadyExists,
    InvalidRoute,
    NothingChanged,
    NotSupportedYet,
    RouteNotFound,
    ServiceNotFound,
)
from tests.kit.servers import Servers
from tests.kit.shop import ORDER_SERVICE, ORDERING, SHOP_SERVICE, connected

pytestmark = pytest.mark.stack

HERE, THERE = "TCP://one.example.com:4022", "TCP://two.example.com:4022"
INSTANCE = uuid.UUID("0f8fad5b-d9cb-469f-a165-70867728950e")


def test_155_a_new_database_has_one_route_to_any_service_here(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database) as broker:
        assert broker.catalog.all(Route) == [Route(AUTO_CREATED_LOCAL, "LOCAL")]
        broker.admin.drop_route(AUTO_CREATED_LOCAL)
    with connected(servers.bootstrap, database) as broker:
        assert broker.catalog.all(Route) == []
        with pytest.raises(RouteNotFound):
            broker.admin.drop_route(AUTO_CREATED_LOCAL)
        broker.admin.create_route(AUTO_CREATED_LOCAL, "LOCAL")
        assert [route.name for route in broker.catalog.all(Route)] == [AUTO_CREATED_LOCAL]


@pytest.mark.parametrize(
    ("clauses", "number"),
    [
        ({"broker_instance": INSTANCE}, 9662),
        ({"mirror_address": THERE, "service_name": ORDER_SERVICE}, 9661),
        ({"mirror_address": "LOCAL", "service_name": ORDER_SERVICE, "broker_instance": INSTANCE}, 9743),
        ({"address": "somewhere"}, 9744),
        ({"address": "TRANSPORT", "service_name": ORDER_SERVICE}, 9745),
        ({"lifetime": timedelta()}, 9746),
        ({"mirror_address": HERE, "service_name": ORDER_SERVICE, "broker_instance": INSTANCE}, 9747),
        ({"service_name": ""}, 9659),
    ],
)
def test_174_clauses_that_cannot_be_together_are_refused_when_a_route_is_created_and_altered(
    broker: Broker, clauses: dict[str, Any], number: int
) -> None:
    with pytest.raises(InvalidRoute) as refused:
        broker.admin.create_route("//sales/Route", **{"address": HERE, **clauses})
    assert refused.value.number == number
    broker.admin.create_route("//sales/Route", HERE)
    with pytest.raises(InvalidRoute) as refused:
        broker.admin.alter_route("//sales/Route", **clauses)
    assert refused.value.number == number
    assert broker.catalog.get(Route, "//sales/Route") == Route("//sales/Route", HERE)


def test_175_alter_route_keeps_clauses_it_does_not_name_and_cannot_remove_any(broker: Broker) -> None:
    before = datetime.now(UTC)
    made = broker.admin.create_route(
        "//sales/Route",
        HERE,
        service_name=ORDER_SERVICE,
        broker_instance=INSTANCE,
        lifetime=timedelta(hours=1),
        mirror_address=THERE,
    )
    assert (made.service_name, made.broker_instance, made.mirror_address) == (ORDER_SERVICE, str(INSTANCE), THERE)
    expires = datetime.fromtimestamp(made.expires_ms / 1000, UTC)
    assert abs(expires - before - timedelta(hours=1)) < timedelta(minutes=1)
    altered = broker.admin.alter_route("//sales/Route", address="tcp://three.example.com:4022")
    assert altered == Route(
        "//sales/Route", "tcp://three.example.com:4022", ORDER_SERVICE, str(INSTANCE), made.expires_ms, THERE
    )
    assert broker.admin.alter_route("//sales/Route", lifetime=timedelta(days=1)).expires_ms > made.expires_ms
    for clause in ("service_name", "broker_instance", "mirror_address"):
        removed: dict[str, Any] = {clause: ""}
        with pytest.raises(InvalidRoute):
            broker.admin.alter_route("//sales/Route", **removed)
    with pytest.raises(NothingChanged):
        broker.admin.alter_route("//sales/Route")
    with pytest.raises(RouteNotFound):
        broker.admin.alter_route("//sales/Other", address=HERE)
    with pytest.raises(AlreadyExists, match="address"):
        broker.admin.create_route("//sales/Route", HERE, if_not_exists=True)
    eternal = broker.admin.create_route("//sales/Eternal", HERE)
    assert eternal.expires_ms == NEVER
    assert broker.admin.create_route("//sales/Eternal", HERE, if_not_exists=True) == eternal


def test_192_a_route_to_the_broker_configuration_service_names_no_instance(broker: Broker) -> None:
    with pytest.raises(InvalidRoute, match=BROKER_CONFIGURATION):
        broker.admin.create_route("//sales/Ask", HERE, service_name=BROKER_CONFIGURATION, broker_instance=INSTANCE)
    broker.admin.create_route("//sales/Ask", "LOCAL", service_name=BROKER_CONFIGURATION)


def test_164_a_dialog_to_a_service_that_cannot_be_reached_is_refused(broker: Broker) -> None:
    """Deviates: such a dialog is not delayed yet. The refusal tells what the routes say."""
    with pytest.raises(ServiceNotFound, match="no database of this instance has a service of that name") as refused:
        broker.begin_dialog(SHOP_SERVICE, "//far/Service", ORDERING)
    assert refused.value.number == 8423
    broker.admin.create_route("//far/Route", HERE, service_name="//far/Service")
    with pytest.raises(NotSupportedYet, match="route '//far/Route' leads to"):
        broker.begin_dialog(SHOP_SERVICE, "//far/Service", ORDERING)
    assert list(broker.views.transmission_queue()) == []
