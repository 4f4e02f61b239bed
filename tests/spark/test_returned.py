"""Rows for targets that have ended come back, are reported, and can be read and written again."""

from __future__ import annotations

from typing import Any, Final

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

from konverse.bridge.broker import Broker
from konverse.dialog.transaction.transaction import Transaction
from konverse.schemas.errors import InvalidSettings
from konverse.schemas.system_messages import END_DIALOG, ERROR
from konverse.spark.connection.settings import parse
from konverse.spark.read.returned import COLUMNS, ReturnedReader
from konverse.spark.source import KonverseDataSource
from konverse.spark.write import returned_rows as returning
from tests.kit.servers import Servers
from tests.kit.shop import ORDER, ORDER_SERVICE, ORDERING, SHOP_SERVICE, drain, handle, receive
from tests.spark.executions import batch_writer, run

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.xdist_group("spark writes"),
    pytest.mark.timeout(120),
    pytest.mark.usefixtures("transmitting"),
]

TYPES: Final[dict[str, Any]] = {
    "string": StringType(),
    "binary": BinaryType(),
    "bigint": LongType(),
    "int": IntegerType(),
}
POOL: Final = {"pool": "carts"}
A = [("one", b"%d" % number) for number in range(5)]
B = [("one", b"late 0"), ("two", b"other"), ("one", b"late 1")]


def refuse(transaction: Transaction) -> None:
    """Take everything, and end the conversation with an Error."""
    taken = list(transaction)
    transaction.end(taken[0].dialog, error=7, description="no more")


def finish(transaction: Transaction) -> None:
    """End the dialogs that the peer has ended."""
    for message in transaction:
        assert message.type in (END_DIALOG, ERROR)
        transaction.end(message.dialog)


def rows_that_came_back(servers: Servers, database: str) -> list[dict[str, Any]]:
    """The rows of the mode in order, as Spark's tasks make them."""
    given = {"bootstrap": servers.bootstrap, "database": database, "queue": "Shop", "mode": "returned"}
    source = KonverseDataSource(given)
    assert source.schema() == ", ".join(f"`{name}` {column.sql}" for name, column in COLUMNS.items())
    reader = source.reader(StructType([StructField(name, TYPES[column.sql]) for name, column in COLUMNS.items()]))
    batches: Any = [batch for part in reader.partitions() for batch in reader.read(part)]
    return [row for batch in batches for row in batch.to_pylist()]


def test_rows_for_an_ended_target_come_back_are_reported_and_can_be_written_again(
    servers: Servers, shop: Broker, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    run(batch_writer(servers.bootstrap, database, **POOL), A)
    handle(shop, "Orders", refuse)
    assert "were returned" not in caplog.text
    run(batch_writer(servers.bootstrap, database, **POOL), B)
    assert [message.body for message in drain(shop, "Orders")] == [b"other"]
    back = rows_that_came_back(servers, database)
    assert [(row["key"], row["body"], row["reason"]) for row in back] == [
        (b"one", b"late 0", "PEER_ENDED"),
        (b"one", b"late 1", "PEER_ENDED"),
    ]
    (named,) = {(row["from_service"], row["to_service"], row["contract"], row["message_type"]) for row in back}
    assert named == (SHOP_SERVICE, ORDER_SERVICE, ORDERING, ORDER)
    run(batch_writer(servers.bootstrap, database, **POOL), [("three", b"more")])
    assert "2 rows of this write, or of one shortly before it, were returned" in caplog.text
    assert "'mode' = 'returned'" in caplog.text
    handle(shop, "Shop", finish)
    again = [(row["key"].decode(), bytes(row["body"])) for row in rows_that_came_back(servers, database)]
    assert {row["state"] for row in rows_that_came_back(servers, database)} == {None}
    run(batch_writer(servers.bootstrap, database, **POOL), again)
    assert sorted(message.body for message in receive(shop, "Orders", 3)) == [b"late 0", b"late 1", b"more"]


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_a_spark_session_reads_returned_rows_and_writes_them_again(
    spark: SparkSession, servers: Servers, shop: Broker, database: str
) -> None:
    place = {"bootstrap": servers.bootstrap, "database": database}
    run(batch_writer(**place, **POOL), A)
    handle(shop, "Orders", refuse)
    run(batch_writer(**place, **POOL), B)
    assert [message.body for message in drain(shop, "Orders")] == [b"other"]
    back = spark.read.format("konverse").options(**place, queue="Shop", mode="returned").load()
    assert back.columns == list(COLUMNS)
    shown = back.where("from_service IS NOT NULL").orderBy("partition", "position").collect()
    assert [(row["key"], row["body"], row["message_type"], row["reason"]) for row in shown] == [
        (b"one", b"late 0", ORDER, "PEER_ENDED"),
        (b"one", b"late 1", ORDER, "PEER_ENDED"),
    ]
    handle(shop, "Shop", finish)
    again = back.repartition("key").sortWithinPartitions("partition", "position")
    again = again.select("to_service", "message_type", "body", "key")
    again.write.format("konverse").options(**place, from_service=SHOP_SERVICE, contract=ORDERING, **POOL).mode(
        "append"
    ).save()
    assert [message.body for message in receive(shop, "Orders", 2)] == [b"late 0", b"late 1"]


def test_a_key_whose_target_has_ended_continues_in_one_new_conversation(
    servers: Servers, shop: Broker, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    def write(*rows: tuple[str, bytes]) -> None:
        run(batch_writer(servers.bootstrap, database, **POOL), rows)

    write(*A)
    handle(shop, "Orders", refuse)
    write(*B)
    (other,) = drain(shop, "Orders")
    write(("three", b"more"))
    assert "From the next write on, rows with these keys go to new conversations" in caplog.text
    for number in range(2):
        write(("one", b"anew %d" % number), ("two", b"on"))
    got = {message.body: message for message in receive(shop, "Orders", 5)}
    first, second = got[b"anew 0"], got[b"anew 1"]
    assert (first.sequence, second.sequence) == (0, 1)
    assert first.dialog.id == second.dialog.id
    assert got[b"on"].dialog.id == other.dialog.id, "nothing has ended that"
    assert {row["body"] for row in rows_that_came_back(servers, database)} == {b"late 0", b"late 1"}
    handle(shop, "Shop", finish)
    write(("one", b"anew 2"))
    (third,) = receive(shop, "Orders", 1)
    assert (third.dialog.id, third.sequence) == (first.dialog.id, 2), "also when the one before it is gone"


def test_a_stream_reports_rows_returned_since_its_last_check_at_any_trigger_interval(
    servers: Servers, shop: Broker, database: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(returning, "LOOK_BACK_MS", 0)  # as if its trigger was longer
    run(batch_writer(servers.bootstrap, database, **POOL), A)
    handle(shop, "Orders", refuse)
    run(batch_writer(servers.bootstrap, database, **POOL), B)
    assert [message.body for message in drain(shop, "Orders")] == [b"other"]
    assert len(rows_that_came_back(servers, database)) == 2
    told = "2 rows of this write, or of one shortly before it, were returned"
    assert told not in caplog.text
    run(batch_writer(servers.bootstrap, database, **POOL), [("three", b"more")])
    assert told in caplog.text


def test_a_process_remembers_few_queues(
    servers: Servers, shop: Broker, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = {("elsewhere:9092", f"topic-{number}"): number for number in range(returning.HOMES_MAX)}
    monkeypatch.setattr(returning, "_LOOKED_MS", others)
    run(batch_writer(servers.bootstrap, database, **POOL), A)
    assert len(others) == returning.HOMES_MAX
    assert ("elsewhere:9092", "topic-0") not in others
    assert any(topic.endswith("Shop") for _, topic in others)
    assert len(receive(shop, "Orders", len(A))) == len(A)


def test_writes_in_conversations_of_their_own_do_not_look(
    servers: Servers, shop: Broker, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> int:
        raise AssertionError

    monkeypatch.setattr(returning, "_came_back", never)
    run(batch_writer(servers.bootstrap, database), A)
    assert len(receive(shop, "Orders", len(A))) == len(A)


def test_mode_returned_needs_a_queue_and_refuses_options_that_select_messages() -> None:
    place = {"bootstrap": "localhost:9092", "mode": "returned"}
    with pytest.raises(InvalidSettings, match="mode 'returned' needs a queue"):
        ReturnedReader(parse({**place, "topic": "t"}), StructType())
    with pytest.raises(InvalidSettings, match="'maxRows' chooses among messages; remove it for mode 'returned'"):
        parse({**place, "queue": "Shop", "maxRows": "3"})
