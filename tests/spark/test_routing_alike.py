"""Ready-made classifiers and tables of the catalog decide in Spark as they do message by message."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from konverse.bridge.broker import Broker
from konverse.routing.classifiers import Classifier, json_path, key_hash, regular_expression, to_service_name
from konverse.routing.decisions import Decision, Unclassifiable
from konverse.routing.routed import Routed
from konverse.schemas.catalog.table_entries import Target
from konverse.schemas.errors import InvalidSettings
from konverse.spark import route, route_arrow, routing_table
from tests.kit.regions import REGIONS, open_regions, service_of
from tests.kit.servers import Servers
from tests.kit.shop import ORDER, begin, receive

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.xdist_group("spark"), pytest.mark.timeout(300)]

IDLE_S = 2.0

NORTH, SOUTH, WEST = map(service_of, REGIONS)
BODIES = [
    b'{"region": "north"}',
    b'{"region": "south"}',
    b'{"region": "100 %s"}',
    b"{}",
    b"\xff",
    f"<message><toServiceName>{WEST}</toServiceName></message>".encode(),
    b"<message><toServiceName>//nowhere</toServiceName></message>",
]


@pytest.fixture
def regions(shop: Broker) -> Broker:
    """The shop, services of three regions, and a table of them."""
    open_regions(shop)
    shop.admin.create_routing_table("Regions", {"north": NORTH, "south": SOUTH})
    return shop


@pytest.fixture
def place(servers: Servers, database: str) -> dict[str, Any]:
    """Arguments of `konverse.connect`."""
    return {"kafka": f"kafka://{servers.bootstrap}", "database": database, "timeout": IDLE_S}


class Asked:
    """A sent message, as a classifier sees it."""

    def __init__(self, dialog: Any, body: bytes) -> None:
        self.dialog, self.body, self.type = dialog, body, ORDER


class Named:
    """The message's dialog."""

    def __init__(self, conversation: bytes, key: bytes) -> None:
        self.conversation, self.key = conversation, key


def order(broker: Broker) -> list[Asked]:
    """Send each of the bodies in a conversation of its own, with a key."""
    asked = []
    for number, body in enumerate(BODIES):
        key = b"customer %d" % number
        dialog = begin(broker, key=key)
        dialog.send(ORDER, body)
        asked.append(Asked(Named(dialog.id.bytes, key), body))
    broker.flush()
    return asked


def counted(decisions: list[Decision]) -> Routed:
    """The result of a router with these decisions."""
    targets: dict[str, int] = {}
    for decision in decisions:
        if isinstance(decision, Target):
            targets[decision.service] = targets.get(decision.service, 0) + 1
    rejected = sum(isinstance(decision, Unclassifiable) for decision in decisions)
    return Routed(forwarded=len(decisions) - rejected, rejected=rejected, targets=targets)


CLASSIFIERS = [
    to_service_name(),
    json_path("$.region", table="Regions"),
    regular_expression('"region": "(n.*|s.*)"', table="Regions"),
    key_hash([NORTH, SOUTH, WEST]),
]


@pytest.mark.parametrize("classifier", CLASSIFIERS, ids=lambda each: each.described()["kind"])
def test_a_ready_classifier_decides_in_the_driver_and_in_tasks_as_one_by_one(
    regions: Broker, spark: SparkSession, place: dict[str, Any], classifier: Classifier
) -> None:
    ready = regions.classifier(classifier)
    alone = counted([ready(message) for message in order(regions)])
    assert route(spark, "Orders", classifier, **place) == alone
    alone = counted([ready(message) for message in order(regions)])
    assert route_arrow(spark, "Orders", classifier, **place) == alone


def test_a_table_of_the_catalog_is_joined_by_its_name(
    regions: Broker, spark: SparkSession, place: dict[str, Any]
) -> None:
    ready = regions.classifier(json_path("$.region", table="Regions"))
    joined = routing_table("Regions", "get_json_object(CAST(body AS STRING), '$.region')")
    reasons = []
    for default in (None, WEST):
        if default is not None:
            regions.admin.alter_routing_table("Regions", default=default, remove=["south"])
        asked = order(regions)
        alone = [ready(message) for message in asked]
        assert route(spark, "Orders", joined, **place) == counted(alone)
        unclassified = [decision for decision in alone if isinstance(decision, Unclassifiable)]
        errors = [message.body.decode() for message in receive(regions, "Shop", len(unclassified))]
        reasons.append(sum("has no service for key '100 %s'." in error for error in errors))
    assert reasons == [1, 0]
    with pytest.raises(InvalidSettings, match="give this classifier to `route`"):
        joined(spark.createDataFrame([(0, b"{}")], "receipt bigint, body binary"))
