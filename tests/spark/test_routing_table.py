"""A routing table is read again when it is due, and a bad one does not replace a good one."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from konverse.schemas.errors import InvalidSettings
from konverse.spark.routing.frame_table import RoutingTable

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark"), pytest.mark.timeout(300)]

SCHEMA = "key string, to_service string"


class Source:
    """The source of the table, and a clock."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self.rows: Any = [("north", "//a"), ("south", "//b")]
        self.schema = SCHEMA
        self.loaded = 0
        self.now_s = 0.0

    def load(self) -> DataFrame:
        """The current table."""
        self.loaded += 1
        if self.rows is None:
            raise ConnectionError("the warehouse is closed")
        return self.spark.createDataFrame(self.rows, self.schema)

    def table(self, key: str = "CAST(body AS STRING)", every_s: float = 0.0) -> RoutingTable:
        """A classifier with the table."""
        return RoutingTable(self.load, key, every_s, lambda: self.now_s)


@pytest.fixture
def source(spark: SparkSession) -> Source:
    return Source(spark)


def services(table: RoutingTable, source: Source, *bodies: str | None) -> list[str | None]:
    """The services of messages with these bodies."""
    rows = [(number, None if body is None else bytearray(body, "utf-8")) for number, body in enumerate(bodies)]
    frame = table(source.spark.createDataFrame(rows, "receipt bigint, body binary"))
    return [row.to_service for row in frame.orderBy("receipt").collect()]


def test_messages_have_the_service_of_their_key(source: Source) -> None:
    assert services(source.table(), source, "south", "north", "west", None, "south") == [
        "//b",
        "//a",
        None,
        None,
        "//b",
    ]


def test_a_table_is_read_again_after_its_time(source: Source) -> None:
    table = source.table(every_s=60)
    assert services(table, source, "north") == ["//a"]
    source.rows = [("north", "//c")]
    source.now_s = 59.0
    assert services(table, source, "north") == ["//a"]
    assert (source.loaded, table.version) == (1, 1)
    source.now_s = 60.0
    assert services(table, source, "north") == ["//c"]
    assert (source.loaded, table.version) == (2, 2)
    source.now_s = 120.0
    assert services(table, source, "north") == ["//c"]
    assert (source.loaded, table.version) == (3, 2), "nothing has changed"


@pytest.mark.parametrize(
    ("rows", "schema", "says"),
    [
        (None, SCHEMA, "the warehouse is closed"),
        ([("north", "//a"), ("north", "//b")], SCHEMA, "key 'north' more than once"),
        ([("north",)], "key string", "no column 'to_service', only key"),
        ([("//a",)], "to_service string", "no column 'key'"),
        ([(7, "//a")], "key int, to_service string", "column 'key' is int"),
        ([("north", 7)], "key string, to_service int", "column 'to_service' is int"),
    ],
)
def test_a_bad_table_is_refused_and_leaves_a_good_one_in_place(
    source: Source, caplog: pytest.LogCaptureFixture, rows: Any, schema: str, says: str
) -> None:
    table = source.table()
    assert services(table, source, "north") == ["//a"]
    source.rows, source.schema = rows, schema
    assert services(table, source, "north") == ["//a"]
    assert says in caplog.text
    assert "version 1 stays" in caplog.text
    with pytest.raises(InvalidSettings, match="cannot be read") as refused:
        services(source.table(), source, "north")
    assert says in str(refused.value)


def test_more_rows_than_go_to_every_worker_are_refused(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("konverse.spark.routing.frame_table.ROUTING_TABLE_ENTRIES_MAX", 1)
    with pytest.raises(InvalidSettings, match="more than 1 rows"):
        services(source.table(), source, "north")


def test_keys_that_are_null_fit_no_message_and_are_no_fault(source: Source) -> None:
    source.rows = [("north", "//a"), (None, "//b"), (None, "//c")]
    assert services(source.table(), source, "north") == ["//a"]


def test_a_table_may_name_broker_instances_and_an_unknown_key_says_which(source: Source) -> None:
    source.rows, source.schema = [("north", "//a", "an instance")], f"{SCHEMA}, broker_instance string"
    frame = source.spark.createDataFrame([(0, "north"), (1, "we%st"), (2, None)], "receipt bigint, body string")
    known, unknown, null = source.table("body")(frame).orderBy("receipt").collect()
    assert (known.to_service, known.broker_instance) == ("//a", "an instance")
    assert unknown.reason == "The routing table (version 1) has no service for key 'we%st'."
    assert null.reason == "The routing table (version 1) has no service for key 'null'."
