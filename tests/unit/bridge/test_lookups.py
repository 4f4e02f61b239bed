"""Lookups of classifiers in the catalog: unknown names do not cause a request to Kafka for each message."""

from __future__ import annotations

from typing import Any

import pytest

from konverse.bridge.catalog.catalog import ROUTED_FRESH_EVERY_S, Catalog
from konverse.bridge.catalog.lookups import bound, lookup_of
from konverse.bridge.catalog.network import Network
from konverse.routing.classifiers import json_path
from konverse.schemas.catalog.objects import Change, MessageType, Service, Validation
from konverse.schemas.catalog.routing_tables import RoutingTable, TableChange
from konverse.schemas.catalog.table_entries import Target
from konverse.schemas.errors import KafkaUnavailable, RoutingTableNotFound


class Reading:
    """A catalog without Kafka that counts its reads. A read makes `unread` known."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        kafka: Any = None
        self.catalog = Catalog(kafka, "default", "sales")
        self.reads = 0
        self.unread: list[tuple[str, Any]] = []
        self.now_s = 0.0
        self._offset = 0
        self.network = Network(kafka, self.catalog)
        self.catalog._log.topic_id = bytes(16)
        monkeypatch.setattr(self.catalog, "refresh", self._refresh)

    def _refresh(self) -> None:
        self.reads += 1
        for kind, value in self.unread:
            self.catalog._fold(self._offset, Change(self._offset, "sales", kind, value.name, value))
            self._offset += 1
        self.catalog._position = self._offset
        self.unread.clear()


@pytest.fixture
def reading(monkeypatch: pytest.MonkeyPatch) -> Reading:
    return Reading(monkeypatch)


def test_unknown_names_cause_one_catalog_read_per_interval(reading: Reading) -> None:
    lookup = lookup_of(reading.network, lambda: reading.now_s)
    assert [lookup.has_service(f"//{number}") for number in range(100)] == [False] * 100
    assert reading.reads == 1
    reading.unread.append(("service", Service("//s", "S")))
    assert not lookup.has_service("//s")
    reading.now_s += ROUTED_FRESH_EVERY_S
    assert lookup.has_service("//s")
    assert (lookup.has_service("//s"), reading.reads) == (True, 2)


def test_no_service_is_unknown_because_the_catalog_could_not_be_read(
    reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    lookup = lookup_of(reading.network, lambda: reading.now_s)
    reading.unread.append(("service", Service("//s", "S")))

    def refresh() -> None:
        raise KafkaUnavailable("Kafka does not answer")

    with monkeypatch.context() as away:
        away.setattr(reading.catalog, "refresh", refresh)
        for _ in range(2):
            with pytest.raises(KafkaUnavailable):
                lookup.has_service("//s")
    assert lookup.has_service("//s")


def test_a_table_is_the_one_that_changes_have_made_of_it(reading: Reading) -> None:
    lookup = lookup_of(reading.network)
    with pytest.raises(RoutingTableNotFound):
        lookup.routing_table("Regions")
    made = TableChange.of("Regions", {"n": Target("//n")}, creates=True)
    reading.unread += [("routing table", made), ("routing table", TableChange.of("Regions", {"s": Target("//s")}))]
    table = lookup.routing_table("Regions")
    assert table.entries == {"n": Target("//n"), "s": Target("//s")}
    assert table.version == 2
    assert reading.catalog.all(RoutingTable) == [table]


def test_a_message_type_has_the_schema_that_its_validation_is_by(reading: Reading) -> None:
    reading.unread += [
        ("message type", MessageType("Avro", Validation.AVRO, schema='"string"')),
        ("message type", MessageType("JSON", Validation.JSON_SCHEMA, schema="{}")),
    ]
    lookup = lookup_of(reading.network)
    assert [lookup.avro_schema(name) for name in ("Avro", "JSON", "Nothing")] == ['"string"', "", ""]


def test_functions_of_the_user_are_left_as_they_are(reading: Reading, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[float] = []
    monkeypatch.setattr(reading.catalog, "refresh_every", kept.append)

    def classify(_message: object) -> str:
        return "//n"

    assert bound(reading.network, classify) is classify
    assert kept == []
    assert bound(reading.network, json_path("$")).described() == json_path("$").described()
    assert kept == [ROUTED_FRESH_EVERY_S]
