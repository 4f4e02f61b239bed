"""Spark reads all messages and discards the rows, with `format("konverse")` and with Spark's own Kafka source."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from konverse.deploy.java.jars import spark_connector_jars
from konverse.deploy.java.java import find_java, spark_java_home
from konverse.spark.session import local_session
from tests.bench import conversations, fill
from tests.bench.clients import PARTITIONS
from tests.bench.measure import Meter
from tests.bench.model import Case, Figures, Load, Place, Row, Run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession


def raw(place: Place, load: Load) -> Figures:
    """Spark's own source with `includeHeaders`: key, value, headers and offset of each record."""
    session = spark(connector=True)
    frame = (
        session.read.format("kafka")
        .option("kafka.bootstrap.servers", place.bootstrap)
        .option("subscribe", place.name)
        .option("startingOffsets", "earliest")
        .option("endingOffsets", "latest")
        .option("includeHeaders", "true")
        .load()
        .select("key", "value", "headers", "partition", "offset")
    )
    return timed(session, frame, load)


def product(place: Place, load: Load) -> Figures:
    """The same from a queue: `spark.read.format("konverse")`."""
    session = spark(connector=False)
    frame = (
        queue(session, place)
        .load()
        .select("key", "body", "conversation", "sequence", "message_type", "partition", "offset")
    )
    return timed(session, frame, load)


def ledger(place: Place, load: Load) -> Figures:
    """Each side of each conversation of a queue, from its journal and its log: messages in the logs per second."""
    session = spark(connector=False)
    frame = queue(session, place).option("mode", "conversations").load()
    return timed(session, frame, load, lambda frame: int(frame.groupBy().sum("messages").collect()[0][0]))


def queue(session: SparkSession, place: Place) -> DataFrameReader:
    """A reader of the run's queue."""
    return (
        session.read.format("konverse")
        .option("bootstrap", place.bootstrap)
        .option("database", conversations.database(place))
        .option("queue", conversations.QUEUE)
    )


def timed(
    session: SparkSession, frame: DataFrame, load: Load, count: Callable[[DataFrame], int] | None = None
) -> Figures:
    """Messages per second, discarded by the sink `noop`, after a warm-up and a check of their number.

    `count` returns the number of messages in a frame; by default it is the number of rows.
    """
    try:
        frame.write.format("noop").mode("overwrite").save()
        rows = count(frame) if count else frame.count()
        if rows != load.with_warm_up:
            raise RuntimeError(f"{rows} messages were read, not {load.with_warm_up}")
        with Meter() as meter:
            frame.write.format("noop").mode("overwrite").save()
        return meter.figures(rows)
    finally:
        session.stop()


def spark(*, connector: bool) -> SparkSession:
    """A quiet local session with two threads, on loopback only. `connector` adds the jars of Spark's Kafka source."""
    java = find_java()
    jars = sorted(spark_connector_jars(java).glob("*.jar")) if connector else []
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    session = local_session(
        "konverse bench",
        java_home=spark_java_home(java),
        memory="2g",
        config={"spark.sql.shuffle.partitions": str(PARTITIONS), "spark.jars": ",".join(map(str, jars))},
    )
    session.sparkContext.setLogLevel("ERROR")
    return session


_LOAD: Final = Load(messages=1_000_000)
CASES: Final = (
    Case(
        (Row("spark-read", "rate", "rows/s"),),
        Run(product, _LOAD, prepare=fill.queue),
        Run(raw, _LOAD, prepare=fill.topic),
    ),
    Case(
        (Row("spark-ledger", "rate", "messages/s"),),
        Run(ledger, _LOAD, prepare=fill.queue),
    ),
)
