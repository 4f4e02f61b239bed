"""The rights of Spark's jobs, as docs/operating.md lists them, on a broker with SASL and an authorizer."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any, Final, cast

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import BinaryType, StructField, StructType

from konverse.bridge.admin.rights import Right
from konverse.bridge.broker import Broker
from konverse.routing.routed import Routed
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.errors import KonverseError
from konverse.spark import map_arrow, process, route, route_arrow
from konverse.spark.connection import clients
from konverse.spark.read.stream import MessagesStreamReader
from konverse.spark.receive import mapping
from konverse.spark.routing import routing
from konverse.spark.source import KonverseDataSource
from konverse.spark.write.successions import Successions
from tests.kit.guarded import SHORT_S, Guarded, guarded_stack, in_words
from tests.kit.regions import open_regions, service_of
from tests.kit.rights import DESCRIBE, OF_SPARK, OPEN, READ, SHOP, SUCCESSIONS, WRITE
from tests.kit.shop import (
    DEADLINE_S,
    ORDER,
    ORDER_SERVICE,
    ORDERING,
    RECEIPT,
    SHOP_SERVICE,
    begin,
    fill,
    open_shop,
    pumped,
    until,
)
from tests.spark.executions import Context, batch_writer, execute, run, stream_writer

pytestmark = [
    pytest.mark.spark,
    pytest.mark.stack,
    pytest.mark.slow,
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(300),
]

ROWS: Final = [("a key", b"a row")]


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


class JobHere(Job):
    """The same work with Spark's readers, writers and tasks in this process, where their log lines can be read.

    Clients are new, so nothing is known from an earlier job.
    """

    def __init__(
        self, spark: SparkSession, stack: tuple[Guarded, Broker], user: str, folder: Path, patches: pytest.MonkeyPatch
    ) -> None:
        guarded, self._administrator = stack
        super().__init__(spark, guarded, user, folder)
        patches.setattr(clients, "_KAFKAS", {})
        for module in (mapping, routing):
            patches.setattr(module, "in_tasks", lambda _spark, source, work: [work(source.begun())])

    def spark_conversations(self) -> None:
        source = KonverseDataSource({**self._options, "queue": "Orders", "mode": "conversations"})
        reader = source.reader(StructType([StructField("conversation", BinaryType())]))
        assert [batch for part in reader.partitions() for batch in reader.read(part)]

    def spark_stream(self) -> None:
        source = KonverseDataSource({**self._options, "queue": "Orders", "stateFolder": str(self._folder)})
        stream = cast("MessagesStreamReader", source.streamReader(StructType([StructField("body", BinaryType())])))
        start = stream.initialOffset()
        end = stream.latestOffset(start, ReadAllAvailable())
        assert [batch for part in stream.partitions(start, end) for batch in stream.read(part)]
        stream.commit(end)
        stream.stop()

    def spark_write_pool(self) -> None:
        self._write_twice(lambda: run(batch_writer(**self._place(pool="rights")), ROWS))

    def spark_write_stream(self) -> None:
        batches = count()

        def write() -> None:
            batch = next(batches)
            writer = stream_writer(checkpoint=str(self._folder), **self._place())
            writer.commit([execute(writer, ROWS, Context(0, "query", batch))], batch)

        self._write_twice(write)

    def _write_twice(self, write: Callable[[], None]) -> None:
        """Rows of the second write come back, because the target has ended their conversation."""
        write()
        with self._administrator.reader("Orders", timeout=2) as reader:
            for transaction in reader:
                with transaction:
                    list(transaction)
                    transaction.end(transaction.dialog)
            with pumped(reader):
                write()

    def _place(self, **options: str) -> dict[str, str]:
        return {**self._options, "deliveryTimeout": "6", **options}


def _needless(user: str, right: Right) -> bool:
    """Whether these jobs do without the right.

    No log is truncated, and so none is read from a snapshot; owners write snapshots after more work; a router answers
    only messages that it cannot forward; and tasks that may not commit their counts leave them to the result.
    """
    of_snapshot = right.name.endswith(".queue.snapshot") and right.operation in (READ, WRITE)
    of_counts = right.name.endswith("-progress-*") and right.operation is READ
    return of_snapshot or of_counts or (user in {"spark_route", "spark_route_arrow"} and right.name == SHOP)


SEEN_HERE: Final = {
    ("spark_conversations", OPEN),
    ("spark_write_pool", OPEN),
    ("spark_write_pool", SHOP),
    ("spark_write_pool", SUCCESSIONS),
    ("spark_write_stream", SHOP),
    ("spark_write_stream", SUCCESSIONS),
}
"""Rights that a worker of Spark misses silently: only its log names them, or it has Kafka's time of an earlier job."""


def _is_seen_here(user: str, right: Right) -> bool:
    receives = user in {"spark_process", "spark_map_arrow", "spark_route", "spark_route_arrow"}
    return receives or (user, right.name) in SEEN_HERE or right.name.endswith(".queue.spark-*")


def _each(*, here: bool) -> list[Any]:
    return [
        pytest.param(user, right, id=f"{user}: {in_words(right)}")
        for user, rights in OF_SPARK.items()
        for right in rights
        if not _needless(user, right) and _is_seen_here(user, right) is here
    ]


@pytest.fixture(scope="module")
def stack() -> Iterator[tuple[Guarded, Broker]]:
    with guarded_stack(OF_SPARK) as (guarded, administrator):
        open_shop(administrator)
        open_regions(administrator, ("north",))
        shop = administrator.catalog.get(Queue, "Shop").address(0)
        Successions(administrator._kafka, administrator.settings.instance, shop).end([])  # creates the topic
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


@pytest.fixture
def here(
    stack: tuple[Guarded, Broker], spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], JobHere]:
    """A user's work in this process."""
    return lambda user: JobHere(spark, stack, user, tmp_path, monkeypatch)


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
@pytest.mark.parametrize(("user", "right"), _each(here=False))
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
    assert _names(str(refused.value), user, right), str(refused.value)


@pytest.mark.nightly
@pytest.mark.parametrize("user", sorted({case.values[0] for case in _each(here=True)}))
def test_each_job_in_this_process_works_with_the_rights_that_the_operating_page_names(
    guarded: Guarded, here: Callable[[str], JobHere], user: str, caplog: pytest.LogCaptureFixture
) -> None:
    guarded.grant(user, OF_SPARK[user])
    with caplog.at_level(logging.WARNING, "konverse"):
        getattr(here(user), user)()
    assert "Kafka refuses" not in caplog.text


@pytest.mark.nightly
@pytest.mark.parametrize(("user", "right"), _each(here=True))
def test_for_each_right_missing_in_a_worker_an_error_or_its_log_names_the_right_to_grant(
    guarded: Guarded, here: Callable[[str], JobHere], user: str, right: Right, caplog: pytest.LogCaptureFixture
) -> None:
    guarded.grant(user, OF_SPARK[user])
    guarded.revoke(user, right)
    said: list[str] = []

    def work() -> None:
        try:
            getattr(here(user), user)()
        except Exception as error:  # noqa: BLE001  # any error is checked below
            said.append(f"{type(error).__name__}: {error}")

    working = threading.Thread(target=work)
    with caplog.at_level(logging.WARNING, "konverse"):
        working.start()
        try:
            until(lambda: _names(f"{said} {caplog.text}", user, right) or not working.is_alive(), "the error")
        finally:
            guarded.grant(user, OF_SPARK[user])  # a reader that may not read its journal goes on until it may
            working.join(2 * DEADLINE_S)
    assert _names(f"{said} {caplog.text}", user, right), (said, caplog.text)


def _names(text: str, user: str, right: Right) -> bool:
    """Whether the text names the right, or DESCRIBE of the topic: Kafka may refuse that first."""
    named = (in_words(right), in_words(right._replace(operation=DESCRIBE)))
    return re.search(rf"rant ({'|'.join(map(re.escape, named))})\S* to User:{user}", text) is not None
