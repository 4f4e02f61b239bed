"""Routing tables in the catalog: one client changes them, all learn of it, and no conversation can go in a circle."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from konverse.bridge.admin.routing_tables import RoutingTableChanges
from konverse.bridge.broker import Broker
from konverse.bridge.catalog.catalog import ROUTED_FRESH_EVERY_S
from konverse.routing.classifiers import avro_field, json_path
from konverse.routing.decisions import Unclassifiable
from konverse.schemas.catalog.objects import Service
from konverse.schemas.catalog.table_entries import Target
from konverse.schemas.errors import (
    AlreadyExists,
    BadInput,
    InvalidRoute,
    NothingChanged,
    RoutingTableNotFound,
    ServiceNotFound,
    StillUsed,
)
from tests.kit.classifying import ORDER_SCHEMA, Letter
from tests.kit.regions import open_regions, service_of
from tests.kit.servers import Servers
from tests.kit.shop import ORDER_SERVICE, SHOP_SERVICE, connected, open_shop

pytestmark = pytest.mark.kafka

NORTH, SOUTH, WEST = map(service_of, ("north", "south", "west"))
ELSEWHERE = "0f8fad5b-d9cb-469f-a165-70867728950e"


@pytest.fixture
def broker(servers: Servers, database: str) -> Iterator[Broker]:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        open_regions(broker)
        yield broker


def test_a_table_is_created_altered_and_dropped(broker: Broker) -> None:
    made = broker.admin.create_routing_table("Regions", {"n": NORTH, "s": Target(SOUTH)}, default=WEST)
    assert made.entries == {"n": Target(NORTH), "s": Target(SOUTH)}
    assert (made.default, made.version) == (Target(WEST), 1)
    altered = broker.admin.alter_routing_table("Regions", set={"s": WEST, "e": ("//east", ELSEWHERE)}, remove=["n"])
    assert altered.entries == {"s": Target(WEST), "e": Target("//east", ELSEWHERE)}
    assert (altered.default, altered.version) == (Target(WEST), 2)
    assert broker.admin.alter_routing_table("Regions", without_default=True).default is None
    with connected(broker.settings.bootstrap, broker.database) as other:
        assert other.admin.routing_table("Regions") == broker.admin.routing_table("Regions")
        other.admin.drop_routing_table("Regions")
    with pytest.raises(RoutingTableNotFound, match="create_routing_table"):
        broker.admin.routing_table("Regions")


def test_a_table_is_created_once(broker: Broker) -> None:
    for _ in range(2):
        broker.admin.create_routing_table("WithDefault", {"n": NORTH}, default=SOUTH, if_not_exists=True)
    with pytest.raises(AlreadyExists, match=r"default Target\(service='//sales/South'.*, not Target"):
        broker.admin.create_routing_table("WithDefault", {"n": NORTH}, default=NORTH, if_not_exists=True)
    made = broker.admin.create_routing_table("Regions", {"n": NORTH})
    assert broker.admin.create_routing_table("Regions", {"n": NORTH}, if_not_exists=True) == made
    with pytest.raises(AlreadyExists, match="with entries with 1 key, not with 2 keys"):
        broker.admin.create_routing_table("Regions", {"n": NORTH, "s": SOUTH}, if_not_exists=True)
    with pytest.raises(AlreadyExists):
        broker.admin.create_routing_table("Regions", {"n": NORTH})
    assert broker.admin.routing_table("Regions") == made


def test_an_invalid_alteration_of_a_routing_table_is_refused_and_changes_nothing(broker: Broker) -> None:
    before = broker.admin.create_routing_table("Regions", {"n": NORTH}, routers=[ORDER_SERVICE])
    refused: list[tuple[type[BadInput], str, dict[str, Any]]] = [
        (NothingChanged, "names nothing to alter", {}),
        (ServiceNotFound, "there is no service '//nowhere'", {"set": {"x": "//nowhere"}}),
        (ServiceNotFound, "there is no service '//nowhere'", {"default": "//nowhere"}),
        (ServiceNotFound, "there is no service '//nobody'", {"routers": ["//nobody"]}),
        (ServiceNotFound, "there is no service '//n'", {"set": {"x": Target("//n", str(broker.catalog.broker_id))}}),
        (InvalidRoute, "no key 'x' to remove", {"remove": ["x"]}),
        (InvalidRoute, "loop through '//sales/OrderService' to '//sales/OrderService'", {"set": {"x": ORDER_SERVICE}}),
        (InvalidRoute, "loop through", {"default": ORDER_SERVICE}),
        (BadInput, "argument 'set'", {"set": {"x": 7}}),
        (BadInput, "argument 'remove'", {"remove": "x"}),
    ]
    for error, says, change in refused:
        with pytest.raises(error, match=re.escape(says)):
            broker.admin.alter_routing_table("Regions", **change)
    broker.admin.create_service("//beside", queue="Orders")
    with pytest.raises(InvalidRoute, match="on the queue of router '//sales/OrderService'"):
        broker.admin.alter_routing_table("Regions", set={"x": "//beside"})
    with pytest.raises(RoutingTableNotFound):
        broker.admin.alter_routing_table("Others", set={"n": NORTH})
    assert broker.admin.routing_table("Regions") == before


def test_a_circle_through_several_routers_is_refused_with_the_way(broker: Broker) -> None:
    broker.admin.create_routing_table("First", {"n": NORTH, "x": SHOP_SERVICE}, routers=[ORDER_SERVICE])
    broker.admin.create_routing_table("Second", {"s": SOUTH}, routers=[NORTH])
    broker.admin.create_routing_table("Third", {"w": WEST}, routers=[SOUTH])
    way = " to ".join(map(repr, (NORTH, SOUTH, ORDER_SERVICE, NORTH)))
    turned = [way, " to ".join(map(repr, (SOUTH, ORDER_SERVICE, NORTH, SOUTH)))]
    turned.append(" to ".join(map(repr, (ORDER_SERVICE, NORTH, SOUTH, ORDER_SERVICE))))
    with pytest.raises(InvalidRoute) as refused:
        broker.admin.alter_routing_table("Third", set={"o": ORDER_SERVICE})
    assert any(f"loop through {each}." in str(refused.value) for each in turned), refused.value
    assert broker.admin.routing_table("Third").version == 1
    broker.admin.alter_routing_table("First", remove=["n"])
    assert broker.admin.alter_routing_table("Third", set={"o": ORDER_SERVICE}).version == 2
    here = str(broker.catalog.broker_id)
    with pytest.raises(InvalidRoute, match="loop through"):
        broker.admin.alter_routing_table("First", set={"n": Target(NORTH, here)})
    broker.admin.alter_routing_table("First", set={"n": Target(NORTH, ELSEWHERE)})


def test_a_service_that_a_table_leads_to_is_not_dropped(broker: Broker) -> None:
    broker.admin.create_routing_table("Regions", {"n": NORTH}, default=SOUTH, routers=[ORDER_SERVICE])
    for service in (NORTH, SOUTH, ORDER_SERVICE):
        with pytest.raises(StillUsed, match="used by routing table 'Regions'"):
            broker.admin.drop_service(service)
    broker.admin.drop_service(WEST)
    assert broker.catalog.find(Service, WEST) is None


def test_changes_of_many_at_once_are_all_there(broker: Broker) -> None:
    broker.admin.create_routing_table("Regions", {})
    with ThreadPoolExecutor(4) as pool:

        def add(number: int) -> None:
            with connected(broker.settings.bootstrap, broker.database) as other:
                for count in range(5):
                    other.admin.alter_routing_table("Regions", set={f"{number} {count}": NORTH})

        list(pool.map(add, range(4)))
    table = broker.admin.routing_table("Regions")
    assert (len(table.entries), table.version) == (20, 21)


def test_a_large_table_counts_as_a_whole_and_a_small_change_of_it_is_a_small_record(
    servers: Servers, database: str
) -> None:
    """In an instance of its own, so that no other client writes to the catalog."""
    entries = {f"customer {number:07}": NORTH if number % 2 else SOUTH for number in range(100_000)}
    with (
        connected(servers.bootstrap, database, instance=database) as broker,
        connected(servers.bootstrap, database, instance=database) as other,
    ):
        open_shop(broker)
        open_regions(broker)
        other.catalog.refresh()
        position = other.catalog.version
        made = broker.admin.create_routing_table("Customers", entries)
        assert (len(made.entries), made.version) == (100_000, 1)
        table = other.admin.routing_table("Customers")
        records = other.catalog.version - position
        assert table == made
        assert 2 <= records < 20
        since = time.perf_counter()
        altered = broker.admin.alter_routing_table("Customers", set={"customer 0000001": WEST})
        print(f"{records} records; a change of one of 100,000 keys: {time.perf_counter() - since:.3f} s")
        assert altered.find("customer 0000001") == Target(WEST)
        assert (len(altered.entries), altered.version) == (100_000, 2)


def test_a_large_change_that_others_overtake_begins_anew(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = {f"customer {number:07}": NORTH for number in range(30_000)}
    append, overtaken = RoutingTableChanges._append, list[str]()

    def meanwhile(self: Any, part: Any, written: Any, change: Any) -> None:
        if part.part == 1 and not overtaken:
            overtaken.append(change.name)
            with connected(broker.settings.bootstrap, broker.database) as other:
                other.admin.create_routing_table("Customers", {"one": WEST})
                other.admin.drop_routing_table("Customers")
        append(self, part, written, change)

    monkeypatch.setattr(RoutingTableChanges, "_append", meanwhile)
    made = broker.admin.create_routing_table("Customers", entries)
    assert (len(made.entries), overtaken) == (30_000, ["Customers"])


def test_another_process_goes_by_a_change_within_seconds(broker: Broker) -> None:
    broker.admin.create_routing_table("Regions", {"north": NORTH})
    command = [sys.executable, "-m", "tests.integration.table_follower", f"kafka://{broker.settings.bootstrap}"]
    with subprocess.Popen([*command, broker.database], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            lines = map(json.loads, process.stdout)
            assert next(lines)[1] == NORTH
            delays = []
            for service in (SOUTH, WEST, NORTH):
                since = time.time()
                broker.admin.alter_routing_table("Regions", set={"north": service})
                at, decided = next(lines)
                assert decided == service
                delays.append(at - since)
        finally:
            process.kill()
    assert max(delays) < 10, f"it looks every {ROUTED_FRESH_EVERY_S} s"
    print(f"known to another process after {max(delays):.2f} s at most; it looks every {ROUTED_FRESH_EVERY_S} s")


def test_a_classifier_asks_the_catalog_for_tables_services_and_schemas(broker: Broker) -> None:
    broker.admin.create_message_type("Order", "AVRO", schema=ORDER_SCHEMA)
    broker.admin.create_routing_table("Numbers", {"7": NORTH})
    by_number = broker.classifier(avro_field("number", table="Numbers"))
    body = b"\x0e\x00" + bytes(8)
    assert by_number(Letter(body)) == Target(NORTH)
    broker.admin.alter_routing_table("Numbers", set={"7": SOUTH})
    assert by_number(Letter(body)) == Target(SOUTH), "whoever made a change goes by it at once"
    by_name = broker.classifier("json_path:$")
    assert by_name(Letter(json.dumps(WEST).encode())) == Target(WEST)
    assert by_name(Letter(b'"//nowhere"')) == Unclassifiable("There is no service '//nowhere'.")
    broker.admin.drop_routing_table("Numbers")
    with pytest.raises(RoutingTableNotFound):
        by_number(Letter(body))
    assert broker.classifier(json_path("$")).described() == by_name.described()
