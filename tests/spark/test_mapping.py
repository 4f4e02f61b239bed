"""Spark receives a queue: functions over Arrow batches and over frames answer each message once."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import MagicMock

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from konverse.bridge.broker import Broker
from konverse.bridge.runtime.settings import Settings
from konverse.schemas.errors import InvalidSettings, SteppedDown
from konverse.schemas.limits import BODY_BYTES_MAX, TRANSACTION_BYTES_MAX
from konverse.schemas.system_messages import read_error
from konverse.spark import map_arrow, process, route, route_arrow
from konverse.spark.read.ledger import conversations
from konverse.spark.receive.answers import Done, apply, column_of, read
from konverse.spark.receive.mapping import Answerer, Batches, QueueSource
from tests.kit.servers import Servers
from tests.kit.shop import ORDER, RECEIPT, drain, sent

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.xdist_group("spark writes"), pytest.mark.timeout(300)]

IDLE_S = 2.0


@pytest.fixture
def place(servers: Servers, database: str) -> dict[str, Any]:
    """Arguments of `konverse.connect`."""
    return {"kafka": f"kafka://{servers.bootstrap}", "database": database}


def receipts(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A receipt for each order, with its body in capitals, where the sender can still receive."""
    hears = [state == "CONVERSING" for state in batch.column("state").to_pylist()]
    orders = batch.filter(pa.array(hears, pa.bool_()))
    bodies = [body.upper() for body in orders.column("body").to_pylist()]
    types = [RECEIPT] * len(bodies)
    return pa.RecordBatch.from_pydict({"receipt": orders.column("receipt"), "message_type": types, "body": bodies})


def answered(shop: Broker) -> Counter[bytes]:
    """The bodies of all receipts."""
    return Counter(message.body for message in drain(shop, "Shop") if message.type == RECEIPT)


def test_a_function_over_arrow_answers_each_message_once(
    spark: SparkSession, shop: Broker, place: dict[str, Any]
) -> None:
    bodies = [b"order %d" % number for number in range(40)]
    dialogs = [sent(shop, *bodies[at : at + 4]) for at in range(0, 40, 4)]
    assert map_arrow(spark, "Orders", receipts, rows=7, timeout=IDLE_S, **place) == Done(40, 40, 0, 0)
    assert answered(shop) == Counter(body.upper() for body in bodies)
    for dialog in dialogs:
        dialog.end()
    shop.flush()
    assert map_arrow(spark, "Shop", receipts, timeout=IDLE_S, **place) == Done()  # it passes the ends on
    assert map_arrow(spark, "Orders", receipts, timeout=IDLE_S, **place) == Done(10, 0, 10, 0)


def test_messages_of_a_killed_worker_are_answered_once_by_the_next_worker(
    spark: SparkSession, shop: Broker, place: dict[str, Any], tmp_path: Path
) -> None:
    bodies = [b"order %d" % number for number in range(30)]
    for body in bodies:
        sent(shop, body)
    killed = tmp_path / "killed"

    def deadly(batch: pa.RecordBatch) -> pa.RecordBatch:
        if b"order 20" in batch.column("body").to_pylist() and not killed.exists():
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return receipts(batch)

    map_arrow(spark, "Orders", deadly, rows=5, timeout=IDLE_S, **place)
    assert killed.exists()
    assert answered(shop) == Counter(body.upper() for body in bodies)


def test_a_conversation_that_fails_alone_is_suspended_and_the_others_are_answered(
    spark: SparkSession, shop: Broker, place: dict[str, Any]
) -> None:
    dialogs = {body: sent(shop, body) for body in (b"one", b"poison", b"two", b"three")}

    def picky(frame: DataFrame) -> DataFrame:
        refused = f.when(f.col("body") == f.lit(b"poison"), f.raise_error(f.lit("not this one")))
        reply = f.when(refused.isNull(), f.upper(f.col("body").cast("string")).cast("binary"))
        return frame.select("receipt", f.lit(RECEIPT).alias("message_type"), reply.alias("body"))

    done = process(spark, "Orders", picky, timeout=IDLE_S, **place)
    assert done == Done(3, 3, 0, 5)
    assert answered(shop) == Counter([b"ONE", b"TWO", b"THREE"])
    (left,) = [one for partition in shop.operations.suspended("Orders") for one in partition]
    assert left.conversation == dialogs[b"poison"].id


def test_an_answer_that_cannot_be_sent_is_named_and_the_others_are_sent(
    spark: SparkSession, shop: Broker, place: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    answers: dict[bytes, tuple[str, bytes, int | None]] = {
        b"unknown": ("//sales/Nothing", b"", None),
        b"of no contract": ("//sales/Other", b"", None),
        b"other side": (ORDER, b"", None),
        b"large": (RECEIPT, bytes(BODY_BYTES_MAX + 1), None),
        b"code": (RECEIPT, b"", -1),
    }
    shop.admin.create_message_type("//sales/Other")
    dialogs = {body: sent(shop, b"first", body) for body in answers}
    sent(shop, b"good", b"null body")

    def answer(frame: DataFrame) -> DataFrame:
        rows = [
            (receipt, *answers.get(bytes(body), (RECEIPT, None if body == b"null body" else bytes(body), None)))
            for receipt, body in frame.select("receipt", "body").collect()
        ]
        return spark.createDataFrame(rows, "receipt long, message_type string, body binary, error int")

    assert process(spark, "Orders", answer, timeout=IDLE_S, **place) == Done(2, 2, 0, 25)
    assert answered(shop) == Counter([b"good", b""]), "nothing of the others was sent, not even their first answers"
    left = {one.conversation for partition in shop.operations.suspended("Orders") for one in partition}
    assert left == {dialog.id for dialog in dialogs.values()}
    second = 1  # the first answer of each was fine
    for said in (
        "MessageTypeNotFound: column 'message_type' of the answer to message",
        "NotInContract: column 'message_type' of the answer to message",
        "WrongDirection: column 'message_type' of the answer to message",
        "BodyTooLarge: column 'body' of the answer to message",
        "BadInput: column 'error' of the answer to message",
    ):
        (line, *_) = [line for line in caplog.text.splitlines() if said in line]
        assert f"(#{second}): " in line.partition(said)[2], line


def test_a_frame_is_joined_and_answered(spark: SparkSession, shop: Broker, place: dict[str, Any]) -> None:
    dialogs = [sent(shop, body) for body in (b"apple", b"pear", b"stone")]
    prices = spark.createDataFrame([(bytearray(b"apple"), 3), (bytearray(b"pear"), 5)], "body binary, price int")

    def priced(frame: DataFrame) -> DataFrame:
        joined = frame.join(f.broadcast(prices), "body", "left")
        return joined.select(
            "receipt",
            f.when(f.col("price").isNotNull(), RECEIPT).alias("message_type"),
            f.col("price").cast("string").cast("binary").alias("body"),
            f.col("price").isNotNull().alias("end"),
            f.when(f.col("price").isNull(), 404).alias("error"),
            f.lit("no such thing").alias("description"),
        )

    assert process(spark, "Orders", priced, timeout=IDLE_S, **place) == Done(3, 2, 3, 0)
    heard = {(message.dialog.id, message.type.rpartition("/")[2]) for message in drain(shop, "Shop")}
    ends = {(dialog.id, "EndDialog") for dialog in dialogs[:2]} | {(dialogs[2].id, "Error")}
    assert heard == ends | {(dialog.id, "Receipt") for dialog in dialogs[:2]}


def test_columns_of_an_answer_have_names_by_sparks_case_rule(
    spark: SparkSession, shop: Broker, place: dict[str, Any]
) -> None:
    sent(shop, b"order")

    def capitals(frame: DataFrame) -> DataFrame:
        return frame.select(f.col("receipt").alias("RECEIPT"), f.lit(RECEIPT).alias("Message_Type"), "body")

    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        with pytest.raises(InvalidSettings, match="no column 'receipt', they have RECEIPT, Message_Type, body"):
            process(spark, "Orders", capitals, timeout=IDLE_S, **place)
    finally:
        spark.conf.unset("spark.sql.caseSensitive")
    assert process(spark, "Orders", capitals, timeout=IDLE_S, **place) == Done(1, 1, 0, 0)
    assert answered(shop) == Counter([b"order"])
    frame = spark.createDataFrame([], "Conversation binary, ROLE string, Sequence int, body binary, kind string")
    ledger = conversations(frame.withColumn("Timestamp", f.current_timestamp()))
    assert ledger.count() == 0


def test_texts_that_are_not_utf_8_reach_the_answer_with_a_replacement() -> None:
    """Spark keeps any bytes in a string."""
    texts = pa.array([b"\xffNORTH", b"south", None]).view(pa.string())
    field = pa.field("reason", pa.string())
    assert column_of(pa.table({"reason": texts}), field) == ["\ufffdNORTH", "south", None]


def test_a_conversation_is_ended_once_however_many_of_its_messages_say_so() -> None:
    transaction = MagicMock()
    messages: list[Any] = [SimpleNamespace(dialog="a", type=ORDER), SimpleNamespace(dialog="a", type=ORDER)]
    rows = [(number, None, None, True, None, None) for number in range(2)]
    assert apply(transaction, cast("Any", (messages, 0, rows))) == Done(2, 0, 1, 0)
    transaction.end.assert_called_once_with("a")


@pytest.mark.parametrize(
    ("transform", "says"),
    [
        (lambda frame: None, "must return a DataFrame, not NoneType"),
        (lambda frame: frame.select("receipt", "nosuch"), "function returned cannot be run: .*nosuch"),
    ],
)
def test_an_invalid_function_result_ends_the_job_and_suspends_no_conversation(
    spark: SparkSession, shop: Broker, place: dict[str, Any], transform: Any, says: str
) -> None:
    sent(shop, b"order")
    with pytest.raises(InvalidSettings, match=says):
        process(spark, "Orders", transform, timeout=IDLE_S, **place)
    assert not any(shop.operations.suspended("Orders"))
    with pytest.raises(InvalidSettings, match="must return an Arrow batch or table, not NoneType"):
        map_arrow(spark, "Orders", lambda batch: None, timeout=IDLE_S, **place)


def test_an_error_has_a_description_also_when_none_or_a_long_one_was_given(
    spark: SparkSession, shop: Broker, place: dict[str, Any]
) -> None:
    for body in (b"none", b"long"):
        sent(shop, body)

    def refuse(batch: pa.RecordBatch) -> pa.RecordBatch:
        texts = [None if body == b"none" else "x" * 9_999 for body in batch.column("body").to_pylist()]
        columns = {"receipt": batch.column("receipt"), "error": [7] * batch.num_rows, "description": texts}
        return pa.RecordBatch.from_pydict(columns, schema=_REFUSALS)

    assert map_arrow(spark, "Orders", refuse, timeout=IDLE_S, **place) == Done(2, 0, 2, 0)
    described = sorted((read_error(message.body)[1] for message in drain(shop, "Shop")), key=len)
    assert described == ["Error 7.", "x" * 2_999 + "\u2026"]


_REFUSALS: Any = pa.schema([("receipt", pa.int64()), ("error", pa.int32()), ("description", pa.string())])


def test_an_answer_without_receipts_does_nothing(spark: SparkSession, shop: Broker, place: dict[str, Any]) -> None:
    sent(shop, b"order")
    with pytest.raises(InvalidSettings, match="no column 'receipt'"):
        process(spark, "Orders", lambda frame: frame.select("body"), timeout=IDLE_S, **place)
    assert map_arrow(spark, "Orders", receipts, timeout=IDLE_S, **place) == Done(1, 1, 0, 0)


def test_answers_are_grouped_by_receipt_and_missing_columns_are_none() -> None:
    rows = pa.table({"receipt": [8, 7, 8], "body": [b"x", None, b"y"], "message_type": [RECEIPT, None, RECEIPT]})
    nothing = (None, None, None)
    said = [(7, None, None, *nothing), (8, RECEIPT, b"x", *nothing), (8, RECEIPT, b"y", *nothing)]
    assert read(rows, first=7, count=2) == read(rows.to_batches()[0], first=7, count=2) == said


def test_answers_that_fit_into_no_commit_are_given_in_several(
    spark: SparkSession, shop: Broker, place: dict[str, Any]
) -> None:
    large = TRANSACTION_BYTES_MAX // 5
    sent(shop, *(b"%d" % number for number in range(10)))

    def doubled(batch: pa.RecordBatch) -> pa.RecordBatch:
        bodies = [body.rjust(large, b"0") for body in batch.column("body").to_pylist()]
        return pa.RecordBatch.from_pydict(
            {"receipt": batch.column("receipt"), "message_type": [RECEIPT] * batch.num_rows, "body": bodies}
        )

    assert map_arrow(spark, "Orders", doubled, timeout=IDLE_S, **place) == Done(10, 10, 0, 0)
    assert answered(shop) == Counter(b"%d".rjust(large + 1, b"0") % number for number in range(10))


def test_processing_ends_without_suspending_conversations_when_spark_has_stopped(
    spark: SparkSession, shop: Broker, place: dict[str, Any]
) -> None:
    for number in range(3):
        sent(shop, b"order %d" % number)

    def gone() -> None:
        raise ConnectionError("Spark was stopped")

    def fail(_batch: pa.RecordBatch) -> pa.RecordBatch:
        raise LookupError("nobody works here")

    source = QueueSource(Settings.load(**place), "Orders", 100, IDLE_S)
    with pytest.raises(ConnectionError, match="Spark was stopped"), source.opened() as (_, reader):
        Batches(reader, Answerer(fail, gone)).work(source.rows)
    assert map_arrow(spark, "Orders", receipts, timeout=IDLE_S, **place) == Done(3, 3, 0, 0)


class Late:
    """A reader whose partition is lost during the second of its two transactions."""

    queue = SimpleNamespace(name="Orders")
    lost = 0

    def batches(self, _rows: int, *, size_bytes: int) -> Iterator[list[Any]]:
        yield [MagicMock(), MagicMock(__exit__=self._lose)]

    def _lose(self, *_: object) -> None:
        self.lost += 1

    def keep_up(self) -> None:
        """Nothing to do."""

    def settle(self) -> None:
        raise SteppedDown("a partition was given back")


def test_transactions_finished_after_the_partition_was_lost_are_not_counted() -> None:
    task = MagicMock(nothing=Done(), failure=Done(failed=1))
    task.ask.side_effect = dict.fromkeys
    task.apply.return_value = Done(messages=3, replies=3)
    reader: Any = Late()
    assert Batches(reader, task).work(100) == Done(messages=3, replies=3)
    assert task.apply.call_count == 2


def test_where_nothing_is_left_of_a_batch_the_function_is_not_asked() -> None:
    def function(_batch: pa.RecordBatch) -> pa.RecordBatch:
        raise AssertionError("there are no messages")

    answering, emptied = Answerer(function), [MagicMock(), MagicMock()]
    found = answering.ask(emptied)
    assert [answering.apply(transaction, found[transaction]) for transaction in emptied] == [Done(), Done()]


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ({"receipt": [99]}, "receipt 99, which no message"),
        ({"receipt": [None]}, "receipt None"),
        ({"receipt": [7], "error": ["x"]}, "column 'error' came back as string"),
        ({"receipt": ["seven"]}, "column 'receipt' came back as string"),
        ({"receipt": [7], "body": [b"x"], "two": [b"y"]}, "column .body. came back more than once"),
    ],
)
def test_answers_that_say_nothing_of_these_messages_are_refused(answer: dict[str, list[Any]], says: str) -> None:
    table = pa.table(answer)
    with pytest.raises(InvalidSettings, match=says):
        read(table.rename_columns(["body" if name == "two" else name for name in answer]), first=7, count=2)
    with pytest.raises(InvalidSettings, match="must return an Arrow batch or table, not list"):
        read([answer], first=7, count=2)


@pytest.mark.parametrize("given", ["orders", None, 5], ids=repr)
def test_what_cannot_be_called_is_refused_before_anything_is_received(given: Any, place: dict[str, Any]) -> None:
    """In a task it would fail for each conversation, which would then be suspended."""
    spark: Any = None
    for call in (map_arrow, process, route_arrow):
        with pytest.raises(InvalidSettings, match=f"takes a function, not {given!r}"):
            call(spark, "Orders", given, **place)
    with pytest.raises(InvalidSettings, match=r"takes a function, not 5"):
        route(spark, "Orders", 5, **place)  # type: ignore[arg-type]
