"""A streaming write: each micro-batch is received once, wherever the query was stopped and whatever ran again."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark import InheritableThread
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from konverse.bridge.broker import Broker
from tests.kit.servers import Servers
from tests.kit.shop import ORDER, ORDER_SERVICE, ORDERING, SHOP_SERVICE, drain, end_at_target, receive
from tests.spark.test_write import by_conversation, frame, line, write

pytestmark = [
    pytest.mark.spark,
    pytest.mark.kafka,
    pytest.mark.xdist_group("spark writes"),
    pytest.mark.timeout(300),
    pytest.mark.usefixtures("transmitting"),
]


Work = Callable[[], None]

EPOCH_S: Final = 1_700_000_000
"""Time of the first file."""


class Source:
    """A folder of text files that a stream reads, one for each micro-batch; each line is a message."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self._spark = spark
        self._files = 0

    def add(self, *bodies: str) -> None:
        """Add one file."""
        staged = self.folder.parent / f"staged {self._files}"
        staged.write_text("\n".join(bodies), "utf-8")
        written_s = EPOCH_S + self._files
        os.utime(staged, (written_s, written_s))  # Spark reads the oldest first, and these are made at once
        staged.rename(self.folder / f"{self._files:03}.txt")
        self._files += 1

    @property
    def frame(self) -> DataFrame:
        """Rows for the order service. The first letter is the key."""
        lines = self._spark.readStream.option("maxFilesPerTrigger", "1").text(str(self.folder))
        return lines.selectExpr(
            f"'{ORDER_SERVICE}' AS to_service", f"'{ORDER}' AS message_type", "value AS body", "left(value, 1) AS key"
        )


def writer(made: DataFrame, servers: Servers, database: str, checkpoint: Path, **options: Any) -> DataStreamWriter:
    given = {"from_service": SHOP_SERVICE, "contract": ORDERING, "checkpointLocation": str(checkpoint), **options}
    given |= {"bootstrap": servers.bootstrap, "database": database}
    return made.writeStream.format("konverse").options(**given)


def start(made: DataFrame, servers: Servers, database: str, checkpoint: Path, **options: Any) -> StreamingQuery:
    return writer(made, servers, database, checkpoint, **options).trigger(availableNow=True).start()


def run(made: DataFrame, servers: Servers, database: str, checkpoint: Path, **options: Any) -> None:
    """Write everything available."""
    query = start(made, servers, database, checkpoint, **options)
    try:
        assert query.awaitTermination(120)
    finally:
        query.stop()


def undo(checkpoint: Path, batches: int = 1) -> None:
    """Undo batches, as if the driver had died before it noted them as done."""
    noted = sorted((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    for path in noted[-batches:]:
        path.unlink()
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)


def test_a_query_continues_from_its_checkpoint_and_does_not_rewrite_a_decided_batch(
    spark: SparkSession, servers: Servers, shop: Broker, database: str, tmp_path: Path
) -> None:
    source, checkpoint = Source(spark, tmp_path / "in"), tmp_path / "checkpoint"
    source.add("a1", "b1", "a2")
    source.add("b2", "a3")
    run(source.frame, servers, database, checkpoint)
    assert sorted(by_conversation(receive(shop, "Orders", 5)).values()) == [[b"a1", b"a2", b"a3"], [b"b1", b"b2"]]
    undo(checkpoint)
    source.add("a4", "c1")
    run(source.frame, servers, database, checkpoint)
    run(source.frame, servers, database, checkpoint)
    again = by_conversation(receive(shop, "Orders", 2))
    assert sorted(again.values()) == [[b"a4"], [b"c1"]]
    assert drain(shop, "Orders") == []


def test_a_running_query_continues_in_a_new_conversation_after_the_target_has_ended_the_old_one(
    spark: SparkSession, servers: Servers, shop: Broker, database: str, tmp_path: Path
) -> None:
    source = Source(spark, tmp_path / "in")
    query = writer(source.frame, servers, database, tmp_path / "checkpoint").start()

    def write(body: str) -> None:
        source.add(body)
        query.processAllAvailable()

    try:
        write("a1")
        end_at_target(shop)
        write("a2")
        assert drain(shop, "Orders") == [], "it has come back"
        for body in ("a3", "a4", "a5"):  # behind the first that is seen
            write(body)
    finally:
        query.stop()
    assert [*by_conversation(receive(shop, "Orders", 2)).values()] == [[b"a4", b"a5"]]


def test_a_copied_checkpoint_and_a_new_one_are_other_writers(
    spark: SparkSession, servers: Servers, shop: Broker, database: str, tmp_path: Path
) -> None:
    source = Source(spark, tmp_path / "in")
    source.add("a1")
    run(source.frame, servers, database, tmp_path / "first")
    shutil.copytree(tmp_path / "first", tmp_path / "copy")
    source.add("a2")
    for checkpoint in ("first", "copy", "new"):
        run(source.frame, servers, database, tmp_path / checkpoint, pool="letters")
    got = sorted(message.body for message in receive(shop, "Orders", 5))
    assert got == [b"a1", b"a1", b"a2", b"a2", b"a2"]
    assert drain(shop, "Orders") == []


def test_a_micro_batch_whose_rows_are_all_filtered_out_is_decided_and_the_next_one_is_written(
    spark: SparkSession, servers: Servers, shop: Broker, database: str, tmp_path: Path
) -> None:
    source = Source(spark, tmp_path / "in")
    for bodies in (["not 1", "not 2"], ["a 1", "not 3"], ["not 4"], ["a 2"]):
        source.add(*bodies)
    run(source.frame.where("body NOT LIKE 'not%'"), servers, database, tmp_path / "checkpoint")
    assert list(by_conversation(receive(shop, "Orders", 2)).values()) == [[b"a 1", b"a 2"]]
    assert drain(shop, "Orders") == []


def test_a_batch_that_is_executed_again_in_another_number_of_tasks_is_received_once(
    spark: SparkSession, servers: Servers, shop: Broker, database: str, tmp_path: Path
) -> None:
    source, checkpoint = Source(spark, tmp_path / "in"), tmp_path / "checkpoint"
    source.add("a 1", "b 1", "a 2")
    run(source.frame.repartition(2), servers, database, checkpoint)
    undo(checkpoint)
    source.add("a 3")
    run(source.frame.repartition(5), servers, database, checkpoint)
    assert sorted(message.body for message in receive(shop, "Orders", 4)) == [b"a 1", b"a 2", b"a 3", b"b 1"]
    assert drain(shop, "Orders") == []


def in_its_own_thread(write: Work) -> None:
    write()


def in_a_pool(write: Work) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(write).result()


def in_an_inheritable_thread(write: Work) -> None:
    done: Future[None] = Future()

    def work() -> None:
        try:
            write()
        except Exception as error:  # noqa: BLE001  # `result` raises it
            done.set_exception(error)
        else:
            done.set_result(None)

    thread = InheritableThread(target=work, session=SparkSession.active())
    thread.start()
    done.result()
    thread.join()


def activate(spark: SparkSession) -> None:
    """Make the session active in this thread: only then does Spark find formats that are written in Python."""
    spark.createDataFrame([], "a int")


class Function:
    """A stream whose function in `foreachBatch` writes each micro-batch, under its number."""

    def __init__(self, spark: SparkSession, source: Source, place: dict[str, str], folder: Path, shop: Broker) -> None:
        self.source = source
        self._spark = spark
        self._place = place
        self._folder = folder
        self._shop = shop

    def run(self, checkpoint: str, query: str, within: Callable[[Work], None] = in_its_own_thread) -> list[bytes]:
        """Run the stream to its end. Returns the bodies that were received."""

        def write(frame: DataFrame, number: int) -> None:
            writer = frame.write.format("konverse").options(**self._place, query=query, batch=str(number))

            def save() -> None:
                activate(self._spark)
                writer.mode("append").save()

            within(save)

        writer = self.source.frame.writeStream.foreachBatch(write)
        query_of = writer.option("checkpointLocation", str(self._folder / checkpoint)).trigger(availableNow=True)
        started = query_of.start()
        try:
            assert started.awaitTermination(120)
        finally:
            started.stop()
        return sorted(message.body for message in drain(self._shop, "Orders"))


@pytest.fixture
def function(spark: SparkSession, servers: Servers, shop: Broker, database: str, tmp_path: Path) -> Function:
    """A stream that has one micro-batch to write."""
    source = Source(spark, tmp_path / "in")
    source.add("a1", "b1")
    place = {"bootstrap": servers.bootstrap, "database": database, "from_service": SHOP_SERVICE, "contract": ORDERING}
    return Function(spark, source, place, tmp_path, shop)


@pytest.mark.parametrize("within", [in_its_own_thread, in_an_inheritable_thread])
def test_a_function_in_foreach_batch_writes_once_for_each_checkpoint_though_its_query_has_one_name(
    function: Function, tmp_path: Path, within: Callable[[Work], None]
) -> None:
    """A new checkpoint numbers its micro-batches from 0 again; rows written under these numbers were different ones."""
    assert function.run("one", "mine", within) == [b"a1", b"b1"]
    undo(tmp_path / "one")
    function.source.add("a2")
    assert function.run("one", "mine", within) == [b"a2"], "the batch that ran again was not written again"
    assert function.run("another", "mine", within) == [b"a1", b"a2", b"b1"]
    assert function.run("another", "mine", within) == []


def test_a_named_query_is_refused_in_a_thread_of_the_application_and_an_id_of_its_own_is_taken(
    function: Function, tmp_path: Path
) -> None:
    refused = r"InvalidSettings: option 'query' is the name 'mine', .* Give 'query' = 'id:' and a UUID of your own"
    with pytest.raises(StreamingQueryException, match=refused):
        function.run("one", "mine", in_a_pool)
    assert drain(function._shop, "Orders") == []
    mine = f"id:{uuid.uuid4()}"
    assert function.run("one", mine, in_a_pool) == [b"a1", b"b1"]
    undo(tmp_path / "one")
    function.source.add("a2")
    assert function.run("one", mine, in_a_pool) == [b"a2"], "the batch that ran again was not written again"
    assert function.run("another", f"id:{uuid.uuid4()}", in_a_pool) == [b"a1", b"a2", b"b1"]


def test_an_id_of_the_application_is_the_same_query_for_all_checkpoints_and_threads(function: Function) -> None:
    """With the id the application says which batches belong together."""
    mine = f"id:{uuid.uuid4()}"
    assert function.run("one", mine) == [b"a1", b"b1"]
    for checkpoint, within in (("two", in_its_own_thread), ("three", in_a_pool), ("four", in_an_inheritable_thread)):
        assert function.run(checkpoint, mine, within) == []


def test_a_write_outside_of_streams_may_name_its_query_in_any_thread(
    spark: SparkSession, servers: Servers, shop: Broker, database: str
) -> None:
    for within in (in_its_own_thread, in_a_pool):
        within(lambda: write(frame(spark, [line("a", b"a1")]), servers, database, query="mine", batch="0"))
    assert [message.body for message in drain(shop, "Orders")] == [b"a1"]


def test_a_bad_row_stops_the_query_and_nothing_of_its_batch_is_received(
    spark: SparkSession, servers: Servers, shop: Broker, database: str, tmp_path: Path
) -> None:
    source = Source(spark, tmp_path / "in")
    source.add("a1", "b1")
    source.add("a2", "bad")
    made = source.frame.selectExpr("to_service", "message_type", "body", "nullif(key, 'z') AS key")
    spoiled = made.selectExpr("to_service", f"if(body = 'bad', '//none', '{ORDER}') AS message_type", "body", "key")
    query = start(spoiled, servers, database, tmp_path / "checkpoint")
    with pytest.raises(PySparkException, match="NotInContract: row 1 of task 0, column 'message_type'"):
        query.awaitTermination(120)
    run(made, servers, database, tmp_path / "checkpoint")
    got = by_conversation(receive(shop, "Orders", 4))
    assert sorted(got.values()) == [[b"a1", b"a2"], [b"b1", b"bad"]]
    assert drain(shop, "Orders") == []


def test_options_of_batch_writes_are_refused(
    spark: SparkSession, servers: Servers, shop: Broker, database: str, tmp_path: Path
) -> None:
    source = Source(spark, tmp_path / "in")
    source.add("a1")
    for option in ({"query": "mine"}, {"batch": "0"}, {"query": "mine", "batch": "1"}):
        query = start(source.frame, servers, database, tmp_path / "checkpoint", **option)
        with pytest.raises(PySparkException, match=f"option '{next(iter(option))}' is for batch writes; remove it"):
            query.awaitTermination(120)


def test_a_stream_that_does_not_say_where_its_checkpoint_is_is_refused(
    spark: SparkSession, servers: Servers, shop: Broker, database: str, tmp_path: Path
) -> None:
    source = Source(spark, tmp_path / "in")
    source.add("a1")
    options = {"bootstrap": servers.bootstrap, "database": database, "from_service": SHOP_SERVICE, "contract": ORDERING}
    spark.conf.set("spark.sql.streaming.checkpointLocation", str(tmp_path / "checkpoints"))
    try:
        query = source.frame.writeStream.format("konverse").options(**options).trigger(availableNow=True).start()
        with pytest.raises(PySparkException, match="option 'checkpointLocation' is missing; give it to the stream"):
            query.awaitTermination(120)
    finally:
        spark.conf.unset("spark.sql.streaming.checkpointLocation")
