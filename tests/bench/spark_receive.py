"""Spark receives a queue and answers or routes each message, against Spark's own copy between topics."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from konverse.routing.routed import Routed
from konverse.spark import map_arrow, process, route_arrow
from konverse.spark.receive.answers import Done
from tests.bench import conversations, fill
from tests.bench.clients import PARTITIONS, create_topic
from tests.bench.model import Case, Figures, Load, Place, Row, Run
from tests.bench.spark_read import spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROUTED: Final = "//order/routed"

IDLE_S: Final = 1.0
"""Receiving ends after this long without messages. The time is subtracted."""


def raw(place: Place, load: Load) -> Figures:
    """Spark's plain copy of key and value, which writes a row twice whenever a task runs again."""
    session = spark(connector=True)
    servers = {"kafka.bootstrap.servers": place.bootstrap}
    frame = session.read.format("kafka").options(**servers, subscribe=place.name).load().select("key", "value")
    into = create_topic(place.bootstrap, f"{place.name}-copy")
    write = frame.write.format("kafka").options(**servers, topic=into).save
    frame.limit(1).write.format("noop").mode("overwrite").save()
    return timed(session, load, write, 0.0)


def mapped(place: Place, load: Load) -> Figures:
    """A task for each partition, and a function over Arrow batches."""
    return received(place, load, answered_all(load), partial(map_arrow, function=answer))


def processed(place: Place, load: Load) -> Figures:
    """The driver, and a function over frames."""
    return received(place, load, answered_all(load), partial(process, transform=answered))


def routed(place: Place, load: Load) -> Figures:
    """A task for each partition routes each conversation to one service, with all its messages."""
    with conversations.connect(place) as broker:
        broker.admin.create_queue("Routed", partitions=PARTITIONS)
        broker.admin.create_service(ROUTED, queue="Routed", contracts=["//order"])
    count = load.with_warm_up
    expected = Routed(forwarded=load.conversations, followed=count - load.conversations, targets={ROUTED: count})
    return received(place, load, expected, partial(route_arrow, function=classified))


def answer(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Answer each message with its body."""
    types = pa.array([conversations.REPLY]).take(pa.array([0] * batch.num_rows))
    return pa.RecordBatch.from_pydict(
        {"receipt": batch.column("receipt"), "message_type": types, "body": batch.column("body")}
    )


def answered(frame: DataFrame) -> DataFrame:
    """Answer each message with its body."""
    return frame.selectExpr("receipt", f"'{conversations.REPLY}' AS message_type", "body")


def classified(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Route every message to one service."""
    services = pa.array([ROUTED]).take(pa.array([0] * batch.num_rows))
    return pa.RecordBatch.from_pydict({"receipt": batch.column("receipt"), "to_service": services})


def answered_all(load: Load) -> Done:
    """The expected result for the load."""
    return Done(load.with_warm_up, load.with_warm_up, 0, 0)


def received(place: Place, load: Load, expected: Done | Routed, receive: Callable[..., Done | Routed]) -> Figures:
    """Messages per second, with everything that a job needs to begin."""
    session = spark(connector=False)
    session.range(1).mapInArrow(lambda batches: batches, "id bigint").collect()
    where: dict[str, Any] = {"kafka": f"kafka://{place.bootstrap}", "database": conversations.database(place)}

    def work() -> None:
        done = receive(session, conversations.QUEUE, timeout=IDLE_S, **where)
        if done != expected:
            raise RuntimeError(f"{done} instead of {expected}")

    return timed(session, load, work, IDLE_S)


def timed(session: SparkSession, load: Load, work: Callable[[], object], idle_s: float) -> Figures:
    """Messages per second in a warm session."""
    before = time.perf_counter()
    try:
        work()
        return {"rate": load.with_warm_up / (time.perf_counter() - before - idle_s)}
    finally:
        session.stop()


_LOAD: Final = Load(messages=200_000)
CASES: Final = (
    Case(
        (Row("spark-map-arrow", "rate", "messages/s"),),
        Run(mapped, _LOAD, prepare=fill.queue),
        Run(raw, _LOAD, prepare=fill.topic),
    ),
    Case(
        (Row("spark-process", "rate", "messages/s"),),
        Run(processed, _LOAD, prepare=fill.queue),
        Run(raw, _LOAD, prepare=fill.topic),
    ),
    Case(
        (Row("spark-route", "rate", "messages/s"),),
        Run(routed, _LOAD, prepare=fill.queue),
        Run(raw, _LOAD, prepare=fill.topic),
    ),
)
