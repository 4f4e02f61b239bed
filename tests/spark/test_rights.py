"""The rights of Spark's jobs, as docs/operating.md lists them, on a broker with SASL and an authorizer."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from konverse.bridge.admin.rights import Right
from konverse.bridge.broker import Broker
from konverse.routing.routed import Routed
from konverse.schemas.errors import KonverseError
from konverse.spark import map_arrow, process, route, route_arrow
from tests.kit.guarded import SHORT_S, Guarded, guarded_stack, in_words
from tests.kit.regions import open_regions, service_of
from tests.kit.rights import DESCRIBE, OF_SPARK, OPEN, SHOP, SUCCESSIONS
from tests.kit.shop import DEADLINE_S, ORDER, ORDER_SERVICE, ORDERING, RECEIPT, SHOP_SERVICE, begin, fill, open_shop

pytestmark = [
    pytest.mark.spark,
    pytest.mark.stack,
    pytest.mark.slow,
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(300),
]


class Job:
    """A principal's work with Spark."""

    def __init__(self, spark: SparkSession, guarded: Guarded, user: str, folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        client = guarded.client(user)
        self._options = {"bootstrap": guarded.bootstrap, "database": "sales"}
        self._options |= {f"kafka.{name}": value for name, value in client.items()}
        self._settings: dict[str, Any] = {"kafka": f"kafka://{guarded.bootstrap}", "database": "sales"}
        self._settings |= {"client": client, "timeout": 2}
        self._settings |= dict.fromkeys(("connect_timeout_s", "send_timeout_s", "append_timeout_s"), SHORT_S)

    def spark_read(self, **options: str) -> None:
        frame = self._spark.read.format("konverse").options(**self._options, queue="Orders", **options).load()
        assert frame.count()

    def spark_read_journal(self) -> None:
        self.spark_read(mode="journal")

    def spark_conversations(self) -> None:
        self.spark_read(mode="conversations")

    def spark_stream(self) -> None:
        frame = self._spark.readStream.format("konverse").options(**self._options, queue="Orders").load()
        self._until_done(frame, "noop", {})

    def spark_write(self, **options: str) -> None:
        rows = [(ORDER_SERVICE, ORDER, b"a row", "a key")]
        frame = self._spark.createDataFrame(rows, "to_service string, message_type string, body binary, key string")
        frame.write.format("konverse").options(**self._as_writer(), **options).mode("append").save()

    def spark_write_pool(self) -> None:
        self.spark_write(pool="rights")

    def spark_write_stream(self) -> None:
        rate = self._spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
        columns = (f"'{ORDER_SERVICE}' to_service", f"'{ORDER}' message_type", "cast('x' as binary) body", "'k' key")
        self._until_done(rate.selectExpr(*columns), "konverse", self._as_writer())

    def spark_process(self) -> None:
        done = process(
            self._spark,
            "Orders",
            lambda frame: frame.selectExpr("receipt", f"'{RECEIPT}' message_type", "body"),
            **self._settings,
        )
        assert done.messages

    def spark_map_arrow(self) -> None:
        def answers(batch: pa.RecordBatch) -> pa.RecordBatch:
            types = [RECEIPT] * batch.num_rows
            columns = {"receipt": batch.column("receipt"), "message_type": types, "body": batch.column("body")}
            return pa.RecordBatch.from_pydict(columns)

        assert map_arrow(self._spark, "Orders", answers, **self._settings).messages

    def spark_route(self) -> None:
        assert route(self._spark, "Orders", f"'{service_of('north')}'", **self._settings).forwarded

    def spark_route_arrow(self) -> None:
        def to_north(batch: pa.RecordBatch) -> pa.RecordBatch:
            services = [service_of("north")] * batch.num_rows
            return pa.RecordBatch.from_pydict({"receipt": batch.column("receipt"), "to_service": services})

        told: list[Routed] = []
        assert route_arrow(self._spark, "Orders", to_north, progress=told.append, **self._settings).forwarded
        assert told

    def _as_writer(self) -> dict[str, str]:
        return {**self._options, "from_service": SHOP_SERVICE, "contract": ORDERING, "deliveryTimeout": "6"}

    def _until_done(self, frame: DataFrame, sink: str, options: dict[str, str]) -> None:
        writer = frame.writeStream.format(sink).options(**options, checkpointLocation=str(self._folder))
        writer.trigger(availableNow=True).start().awaitTermination()


def _quiet(user: str, right: Right) -> bool:
    """Whether a job works without the right: nothing needs a notice, or the notice is in a worker's log.

    A worker keeps Kafka's time for a while, and has asked for it in an earlier job.
    """
    _, name, _ = right
    return (user, name) in {
        ("spark_conversations", OPEN),
        ("spark_write_pool", OPEN),
        ("spark_write_pool", SHOP),
        ("spark_write_pool", SUCCESSIONS),
        ("spark_write_stream", SHOP),
        ("spark_write_stream", SUCCESSIONS),
    } or name.endswith((".queue.spark-*", ".queue.snapshot"))


RECEIVING: Final = {"spark_process", "spark_map_arrow", "spark_route", "spark_route_arrow"}
OF_FORMATS: Final = [user for user in OF_SPARK if user not in RECEIVING]
"""Receiving jobs are readers of their queues; the tests of readers cover their rights."""

EACH: Final = [
    pytest.param(user, right, id=f"{user}: {in_words(right)}")
    for user in OF_FORMATS
    for right in OF_SPARK[user]
    if not _quiet(user, right)
]


@pytest.fixture(scope="module")
def stack() -> Iterator[tuple[Guarded, Broker]]:
    with guarded_stack(OF_SPARK) as (guarded, administrator):
        open_shop(administrator)
        open_regions(administrator, ("north",))
        begin(administrator).send(ORDER, b"the first order")
        administrator.flush()
        with administrator.reader("Orders", timeout=1) as reader:  # the journal has records then
            fill(reader, 1)
            reader.settle()
        transmitter = administrator.transmitter()

        def transmit() -> None:
            with transmitter:
                for _ in transmitter:
                    pass

        thread = threading.Thread(target=transmit)
        thread.start()
        yield guarded, administrator
        transmitter.stop()
        thread.join(DEADLINE_S)


@pytest.fixture
def guarded(stack: tuple[Guarded, Broker]) -> Guarded:
    """The shop, with an order in the queue."""
    guarded, administrator = stack
    begin(administrator).send(ORDER, b"an order")
    administrator.flush()
    return guarded


@pytest.mark.parametrize("user", OF_SPARK)
def test_each_job_works_with_the_rights_that_the_operating_page_names(
    guarded: Guarded, spark: SparkSession, tmp_path: Path, user: str, caplog: pytest.LogCaptureFixture
) -> None:
    guarded.grant(user, OF_SPARK[user])
    work: Callable[[], None] = getattr(Job(spark, guarded, user, tmp_path), user)
    with caplog.at_level(logging.WARNING, "konverse"):
        work()
    assert "Kafka refuses" not in caplog.text
    assert "uthorization" not in caplog.text


@pytest.mark.nightly
@pytest.mark.parametrize(("user", "right"), EACH)
def test_for_each_missing_right_the_error_of_the_job_names_the_right_to_grant(
    guarded: Guarded, spark: SparkSession, tmp_path: Path, user: str, right: Right
) -> None:
    guarded.grant(user, OF_SPARK[user])
    guarded.revoke(user, right)
    try:
        with pytest.raises((PySparkException, Py4JJavaError, KonverseError)) as refused:
            getattr(Job(spark, guarded, user, tmp_path), user)()
    finally:
        guarded.grant(user, OF_SPARK[user])
    # Without the right to read or write a topic, a client may not describe it either, and Kafka may refuse that first.
    named = (in_words(right), in_words(right._replace(operation=DESCRIBE)))
    assert any(f"rant {words} to User:{user}" in str(refused.value) for words in named), str(refused.value)
