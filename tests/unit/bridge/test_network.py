"""Where conversations go between the databases of an instance, by the catalog of one process."""

from __future__ import annotations

from collections import Counter
from typing import Any
from uuid import UUID, uuid4

import pytest

from konverse.bridge.catalog.catalog import Catalog
from konverse.bridge.catalog.network import Network
from konverse.schemas.catalog.objects import Change, Service
from konverse.schemas.catalog.routes import AUTO_CREATED_LOCAL, LOCAL, Route
from konverse.schemas.errors import NotSupportedYet, ServiceNotFound

ORDERS = "//orders"


class Instance:
    """An instance without Kafka, seen from database `sales`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        kafka: Any = None
        self.catalog = Catalog(kafka, "default", "sales")
        self.catalog._log.topic_id = bytes(16)
        self.network = Network(kafka, self.catalog)
        self.now_ms = 0
        self.reads = 0
        monkeypatch.setattr(self.catalog, "refresh", self._refresh)
        monkeypatch.setattr(self.catalog, "refresh_every", lambda: None)
        monkeypatch.setattr("konverse.bridge.catalog.network.kafka_time_ms", lambda _: self.now_ms)

    def _refresh(self) -> None:
        self.reads += 1

    def change(self, database: str, kind: str, name: str, value: Any) -> None:
        """CREATE, ALTER or, with None, DROP."""
        offset = self.catalog.version
        self.catalog._fold(offset, Change(offset, database, kind, name, value))
        self.catalog._position = offset + 1

    def service(self, database: str, name: str = ORDERS) -> None:
        self.change(database, "service", name, Service(name, "Orders"))

    def route(self, name: str, address: str = LOCAL, *, database: str = "sales", **clauses: Any) -> None:
        self.change(database, "route", name, Route(name, address, **clauses))

    def place(self, broker_id: UUID | None = None, conversation: bytes = b"c") -> str:
        return self.network.place(ORDERS, broker_id, conversation)

    def spread(self) -> Counter[str]:
        """The databases of a thousand conversations."""
        return Counter(self.place(conversation=uuid4().bytes) for _ in range(1_000))


@pytest.fixture
def instance(monkeypatch: pytest.MonkeyPatch) -> Instance:
    return Instance(monkeypatch)


def test_a_new_copy_of_a_service_takes_its_share_and_moves_no_other_conversation(instance: Instance) -> None:
    """And 168: in even shares."""
    for database in ("east", "west"):
        instance.service(database)
    conversations = [uuid4().bytes for _ in range(3_000)]
    before = {one: instance.place(conversation=one) for one in conversations}
    assert abs(Counter(before.values())["east"] - 1_500) < 200
    instance.service("north")
    after = {one: instance.place(conversation=one) for one in conversations}
    moved = [one for one in conversations if after[one] != before[one]]
    assert {after[one] for one in moved} == {"north"}
    assert abs(len(moved) - 1_000) < 200
    instance.change("north", "service", ORDERS, None)
    assert {one: instance.place(conversation=one) for one in conversations} == before


def test_the_own_database_is_searched_before_the_others(instance: Instance) -> None:
    instance.service("depot")
    assert instance.place() == "depot"
    instance.service("sales")
    assert instance.spread() == Counter(sales=1_000)
    instance.change("sales", "service", ORDERS, None)
    assert instance.place() == "depot"


def test_databases_with_the_service_get_equal_parts_and_each_id_the_same_one(instance: Instance) -> None:
    for database in ("east", "north", "west"):
        instance.service(database)
    found = instance.spread()
    assert set(found) == {"east", "north", "west"}
    assert min(found.values()) > 250
    assert len({instance.place(conversation=b"an order") for _ in range(20)}) == 1


def test_a_broker_id_names_the_database_also_when_no_route_matches(instance: Instance) -> None:
    for database in ("east", "west"):
        instance.service(database)
    west, east, unknown = (instance.catalog.broker_id_of(name) for name in ("west", "east", "unknown"))
    assert (instance.place(west), instance.place(east)) == ("west", "east")
    instance.change("sales", "route", AUTO_CREATED_LOCAL, None)
    assert instance.place(west) == "west"
    with pytest.raises(ServiceNotFound, match="no route of database 'sales' matches") as refused:
        instance.place()
    assert refused.value.number == 8423
    with pytest.raises(ServiceNotFound, match="has that broker id"):
        instance.place(unknown)
    instance.service("south", "//another")
    with pytest.raises(ServiceNotFound, match="has no service of that name") as refused:
        instance.place(instance.catalog.broker_id_of("south"))
    assert refused.value.number == 8490


def test_a_route_is_followed_until_it_expires_by_kafkas_clock(instance: Instance) -> None:
    for database in ("sales", "west"):
        instance.service(database)
    west = str(instance.catalog.broker_id_of("west"))
    instance.route("West", service_name=ORDERS, broker_instance=west, expires_ms=1_000)
    assert instance.spread() == Counter(west=1_000)
    instance.now_ms = 1_000
    assert instance.spread() == Counter(sales=1_000)
    instance.route("West", service_name=ORDERS, broker_instance=west, expires_ms=2_000)
    assert instance.place() == "west"
    assert instance.reads == 0


def test_routes_of_other_databases_do_not_count(instance: Instance) -> None:
    for database in ("sales", "west"):
        instance.service(database)
    west = str(instance.catalog.broker_id_of("west"))
    for database in ("msdb", "west"):
        instance.route("West", service_name=ORDERS, broker_instance=west, database=database)
    assert instance.place() == "sales"


def test_a_service_of_another_instance_is_refused_with_the_name_of_its_route(instance: Instance) -> None:
    instance.service("sales")
    instance.route("Far", "TCP://far.example.com:4022", service_name=ORDERS)
    with pytest.raises(NotSupportedYet, match="route 'Far' leads to"):
        instance.place()
    assert not instance.network.reaches(ORDERS)
    with pytest.raises(ServiceNotFound, match="names are compared byte by byte"):
        instance.network.place("//ORDERS", None, b"c")


def test_the_service_of_another_database_is_shown_with_its_database(instance: Instance) -> None:
    instance.service("west")
    found = instance.network.service(ORDERS)
    assert (found.service, found.database) == (Service(ORDERS, "Orders"), "west")
