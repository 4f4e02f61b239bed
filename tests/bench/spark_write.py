"""Spark copies a topic into a queue, each row once, and into another topic with Spark's own Kafka sink."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from konverse.bridge.client.transmission import ensure_queue, transmitter
from konverse.bridge.kafka.clients import Kafka
from konverse.bridge.runtime.settings import Settings
from tests.bench import conversations, fill
from tests.bench.clients import create_topic
from tests.bench.measure import Meter
from tests.bench.model import Case, Figures, Load, Place, Row, Run
from tests.bench.spark_read import spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WARM_UP_ROWS: Final = 1_000


def raw(place: Place, load: Load) -> Figures:
    """Spark's plain copy of key and value, which writes a row twice whenever a task runs again."""
    session = spark(connector=True)
    into = create_topic(place.bootstrap, f"{place.name}-copy")
    options = {"kafka.bootstrap.servers": place.bootstrap, "topic": into}
    return timed(session, source(session, place).select("key", "value"), load, "kafka", options)


def product(place: Place, load: Load) -> Figures:
    """The same into a queue, a conversation for each key, until the batch is decided and all partitions know it."""
    session = spark(connector=True)
    with conversations.connect(place) as broker:
        conversations.create(broker)
    rows = source(session, place).selectExpr("value AS body", "key")
    options = {"bootstrap": place.bootstrap, "database": conversations.database(place)}
    options |= {"from_service": "//order/shop", "contract": "//order"}
    options |= {"to_service": "//order/service", "message_type": conversations.MESSAGE}
    with transmitting(place):
        return timed(session, rows, load, "konverse", options)


def source(session: SparkSession, place: Place) -> DataFrame:
    """The rows of the topic."""
    return (
        session.read.format("kafka")
        .option("kafka.bootstrap.servers", place.bootstrap)
        .option("subscribe", place.name)
        .option("startingOffsets", "earliest")
        .option("endingOffsets", "latest")
        .load()
    )


def timed(session: SparkSession, frame: DataFrame, load: Load, into: str, options: dict[str, Any]) -> Figures:
    """Rows per second, after a small write for warm-up."""
    try:
        frame.limit(WARM_UP_ROWS).write.format(into).options(**options).mode("append").save()
        with Meter() as meter:
            frame.write.format(into).options(**options).mode("append").save()
        return meter.figures(load.with_warm_up)
    finally:
        session.stop()


@contextmanager
def transmitting(place: Place) -> Iterator[None]:
    """Run an owner of the transmission queue, as `konverse transmit` does."""
    kafka = Kafka(Settings.load(kafka=f"kafka://{place.bootstrap}", redis=None))
    reader = transmitter(kafka, ensure_queue(kafka, "konverse"))

    def work() -> None:
        with reader:
            for _ in reader:
                pass

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        reader.stop()
        thread.join()


_SMALL: Final = Load(messages=200_000)
_LARGE: Final = Load(messages=1_000_000)
CASES: Final = tuple(
    Case((Row(name, "rate", "rows/s"),), Run(product, load, prepare=fill.topic), Run(raw, load, prepare=fill.topic))
    for name, load in (("spark-write", _SMALL), ("spark-write-large", _LARGE))
)
