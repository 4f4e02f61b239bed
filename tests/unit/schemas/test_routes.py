"""Clauses of routes (behaviours 174, 192)."""

from __future__ import annotations

from typing import Any

import pytest

from konverse.schemas.catalog.routes import BROKER_CONFIGURATION, Route, check_lifetime
from konverse.schemas.errors import InvalidName, InvalidRoute

HERE, THERE = "TCP://one.example.com:4022", "TCP://two.example.com:4022"
INSTANCE = "0f8fad5b-d9cb-469f-a165-70867728950e"


@pytest.mark.parametrize(
    ("given", "written"),
    [
        ("LOCAL", "LOCAL"),
        ("local", "LOCAL"),
        ("Transport", "TRANSPORT"),
        ("tcp://host:1", "tcp://host:1"),
        ("TCP://dispatch.Adventure-Works.com", "TCP://dispatch.Adventure-Works.com"),
        ("tcp://host2.Adventure-Works.com:4022/", "tcp://host2.Adventure-Works.com:4022/"),
        ("TCP://10.0.0.7:65535", "TCP://10.0.0.7:65535"),
        ("TCP://[2001:db8::1]:4022", "TCP://[2001:db8::1]:4022"),
    ],
)
def test_an_address_is_this_instance_the_services_name_or_a_host_and_port(given: str, written: str) -> None:
    assert Route.of(Route("r", given)).address == written


@pytest.mark.parametrize(
    "address",
    [
        "somewhere",
        "TCP://host:",
        "TCP://host:0",
        "TCP://host:65536",
        "TCP://:1",
        "TCP://a b:1",
        "TCP://a:1/b",
    ],
)
def test_anything_else_is_no_address(address: str) -> None:
    with pytest.raises(InvalidRoute, match="not a valid address") as refused:
        Route.of(Route("r", address))
    assert refused.value.number == 9744


@pytest.mark.parametrize(
    ("clauses", "number"),
    [
        ({"address": ""}, 9659),
        ({"address": "TCP://" + "h" * 250 + ":1"}, 9660),
        ({"broker_instance": INSTANCE}, 9662),
        ({"mirror_address": THERE}, 9661),
        ({"mirror_address": THERE, "service_name": "s"}, 9661),
        ({"mirror_address": "LOCAL", "service_name": "s", "broker_instance": INSTANCE}, 9743),
        ({"address": "LOCAL", "mirror_address": HERE, "service_name": "s", "broker_instance": INSTANCE}, 9743),
        ({"mirror_address": "nowhere", "service_name": "s", "broker_instance": INSTANCE}, 9744),
        ({"address": "TRANSPORT", "service_name": "s"}, 9745),
        ({"mirror_address": HERE.lower(), "service_name": "s", "broker_instance": INSTANCE}, 9747),
        ({"service_name": BROKER_CONFIGURATION, "broker_instance": INSTANCE}, None),
        ({"service_name": "s", "broker_instance": "no id"}, None),
    ],
)
def test_invalid_clauses_are_refused_with_the_error_number_of_service_broker(
    clauses: dict[str, Any], number: int | None
) -> None:
    with pytest.raises(InvalidRoute) as refused:
        Route.of(Route(**{"name": "r", "address": HERE, **clauses}))
    assert refused.value.number == number


def test_a_route_may_say_all_of_it() -> None:
    whole = Route("r", HERE, "s", INSTANCE.upper(), 17, THERE)
    assert Route.of(whole) == Route("r", HERE, "s", INSTANCE, 17, THERE)


def test_names_of_routes_and_their_services_are_names() -> None:
    for wrong in (Route("", HERE), Route("r", HERE, "\n")):
        with pytest.raises(InvalidName):
            Route.of(wrong)


@pytest.mark.parametrize("seconds", [-1, 0, 0.5, 2**31])
def test_a_lifetime_is_a_number_of_seconds_that_the_original_has(seconds: float) -> None:
    with pytest.raises(InvalidRoute) as refused:
        check_lifetime("r", int(seconds * 1000))
    assert refused.value.number == 9746
    for allowed in (1, 2**31 - 1):
        check_lifetime("r", allowed * 1000)
