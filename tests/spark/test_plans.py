"""A frame gives the same result as a frame in memory, whatever is done with it and however often."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from konverse.schemas.errors import InvalidSettings
from konverse.spark.source import KonverseDataSource
from tests.kit.builders import Scribe, identifier
from tests.spark.conftest import NewLog
from tests.spark.logs import ORDERS, rows

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.xdist_group("spark"), pytest.mark.timeout(600)]

COLUMNS: Final = ("partition", "offset", "counter")
PARTITIONS: Final = 3
RECORDS: Final = 4

Plan = Callable[[DataFrame], DataFrame]

PREDICATES: Final = st.one_of(
    st.integers(0, PARTITIONS).map("partition = {}".format),
    st.integers(0, RECORDS).map("offset >= {}".format),
    st.integers(0, RECORDS).map("offset < {}".format),
    st.sampled_from(["partition in (0, 2)", "offset = 1 and partition = 1", "partition is not null", "counter = 2"]),
)


def filtered(plan: Plan, predicate: str) -> Plan:
    return lambda frame: plan(frame).where(predicate)


def united(one: Plan, other: Plan) -> Plan:
    return lambda frame: one(frame).union(other(frame))


def joined(one: Plan, other: Plan) -> Plan:
    return lambda frame: one(frame).join(other(frame).select("offset").distinct(), "offset").select(*COLUMNS)


PLANS: Final[st.SearchStrategy[Plan]] = st.recursive(
    st.just(lambda frame: frame),
    lambda plans: st.one_of(
        st.builds(filtered, plans, PREDICATES), st.builds(united, plans, plans), st.builds(joined, plans, plans)
    ),
    max_leaves=4,
)

WAYS: Final = st.sampled_from(["collect", "explain before", "view", "cache"])


def base(frame: DataFrame) -> DataFrame:
    return frame


TWO_PARTITIONS: Final = united(filtered(base, "partition = 0"), filtered(base, "partition = 1"))
SELF_JOIN: Final = joined(filtered(base, "partition = 0"), filtered(base, "partition = 1 and offset > 2"))


@pytest.fixture
def frames(spark: SparkSession, new_log: NewLog) -> tuple[DataFrame, DataFrame]:
    """The log, and the same rows in memory."""
    log = new_log(PARTITIONS)
    for partition in range(PARTITIONS):
        scribe = Scribe(f"writer {partition}")
        log.fill([scribe.message(ORDERS, identifier("one")) for _ in range(RECORDS)], partition=partition)
    everything = [(partition, number, number) for partition in range(PARTITIONS) for number in range(RECORDS)]
    memory = spark.createDataFrame(everything, "partition int, offset bigint, counter bigint")
    return log.read(spark).select(*COLUMNS), memory


def found(frame: DataFrame) -> Counter[tuple[object, ...]]:
    return Counter(tuple(row) for row in frame.collect())


@example([(filtered(base, "partition = 1"), "explain before"), (base, "collect")])
@example([(filtered(base, "offset = 1"), "view"), (base, "view"), (TWO_PARTITIONS, "collect"), (SELF_JOIN, "collect")])
@given(st.lists(st.tuples(PLANS, WAYS), min_size=1, max_size=3))
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_uses_of_one_frame_know_nothing_of_each_other(
    spark: SparkSession, frames: tuple[DataFrame, DataFrame], uses: list[tuple[Plan, str]]
) -> None:
    """Filters, unions, joins, temporary views, `explain` and `cache`, in turn on the same frame."""
    log, memory = frames
    log.createOrReplaceTempView("everything_there_is")
    for plan, way in uses:
        made = plan(spark.table("everything_there_is") if way == "view" else log)
        if way == "explain before":
            made.explain()
        if way == "cache":
            made.cache()
        assert found(made) == found(plan(memory))
        made.unpersist()
        assert log.count() == PARTITIONS * RECORDS


def test_options_of_a_write_are_refused_in_words_where_something_is_read(spark: SparkSession, new_log: NewLog) -> None:
    log = new_log()
    given = {**log.options(), "from_service": "//sales/ShopService"}
    with pytest.raises(InvalidSettings, match="'from_service' belongs to a write"):
        KonverseDataSource(given).schema()
    with pytest.raises(PySparkException, match="'from_service' belongs to a write"):
        spark.read.format("konverse").options(**given).load().count()
    written = ", ".join(f"{name} '{value}'" for name, value in given.items())
    with pytest.raises(PySparkException, match="'from_service' belongs to a write"):
        spark.sql(f"CREATE TEMPORARY VIEW to_be_written USING konverse OPTIONS ({written})")


def test_inserting_into_a_view_is_refused_with_the_remedy_and_writes_nothing(
    spark: SparkSession, new_log: NewLog
) -> None:
    log = new_log()
    options = ", ".join(f"{name} '{value}'" for name, value in log.options().items())
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW only_read USING konverse OPTIONS ({options})")
    with pytest.raises(PySparkException) as refused:
        spark.sql("INSERT INTO only_read SELECT * FROM only_read")
    told = str(refused.value)
    assert "InvalidSettings" in told
    assert f"option 'topic' (here '{log.options()['topic']}') belongs to a read" in told
    assert "INSERT INTO" in told
    assert "write with df.write.format('konverse') and the option 'from_service'" in told
    assert rows(log.read(spark), "offset") == []


def test_a_table_is_refused_with_the_remedy_as_spark_does_not_keep_its_options(
    spark: SparkSession, new_log: NewLog
) -> None:
    options = ", ".join(f"{name} '{value}'" for name, value in new_log().options().items())
    with pytest.raises(PySparkException, match="CREATE TEMPORARY VIEW"):
        spark.sql(f"CREATE TABLE a_table_of_konverse USING konverse OPTIONS ({options})")
    assert not spark.catalog.tableExists("a_table_of_konverse")
