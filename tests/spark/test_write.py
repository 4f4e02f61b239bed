"""A batch write: all rows are received, each once and in the order of its key, or none."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from konverse.bridge.broker import Broker
from konverse.dialog.transaction.received import Message
from konverse.dialog.transaction.transaction import Transaction
from konverse.routing.partitioning import choose_partition
from konverse.schemas.limits import BODY_BYTES_MAX, KEY_BYTES_MAX
from konverse.schemas.system_messages import END_DIALOG
from tests.kit.servers import Servers
from tests.kit.shop import (
    ORDER,
    ORDER_SERVICE,
    ORDERING,
    RECEIPT,
    SHOP_SERVICE,
    answer_once,
    drain,
    receive,
)

pytestmark = [
    pytest.mark.spark,
    pytest.mark.kafka,
    pytest.mark.xdist_group("spark writes"),
    pytest.mark.timeout(300),
    pytest.mark.usefixtures("transmitting"),
]

SCHEMA = "to_service string, message_type string, body binary, key string"
Line = tuple[str | None, str | None, bytes | None, str | None]


def line(key: str | None, body: bytes | None, kind: str | None = ORDER, to: str | None = ORDER_SERVICE) -> Line:
    return to, kind, body, key


def lines(keys: int, each: int) -> list[Line]:
    """`each` rows for each key, keys in turn."""
    return [line(f"key {number % keys}", b"%d" % number) for number in range(keys * each)]


def frame(spark: SparkSession, rows: Iterable[Line], tasks: int = 1) -> DataFrame:
    """The rows in order, cut into that many tasks."""
    return spark.createDataFrame(spark.sparkContext.parallelize([*rows], tasks), SCHEMA)


def write(made: DataFrame, servers: Servers, database: str, **options: Any) -> None:
    write_as(made, "append", servers, database, **options)


def write_as(made: DataFrame, mode: str, servers: Servers, database: str, **options: Any) -> None:
    given = {"from_service": SHOP_SERVICE, "contract": ORDERING, **options}
    given |= {"bootstrap": servers.bootstrap, "database": database}
    made.write.format("konverse").options(**given).mode(mode).save()


def read(spark: SparkSession, servers: Servers, database: str, **options: str) -> DataFrame:
    """The queue of the orders."""
    given = {"bootstrap": servers.bootstrap, "database": database, "queue": "Orders", **options}
    return spark.read.format("konverse").options(**given).load()


def by_conversation(messages: Iterable[Message]) -> dict[bytes, list[bytes]]:
    """Conversation → bodies in order of arrival."""
    found: dict[bytes, list[bytes]] = defaultdict(list)
    for message in messages:
        found[message.dialog.id.bytes].append(message.body)
    return found


def test_rows_are_received_once_and_in_order_in_a_conversation_for_each_key(
    spark: SparkSession, servers: Servers, shop: Broker, database: str
) -> None:
    rows = lines(keys=5, each=40)
    write(frame(spark, rows, tasks=4), servers, database)
    got = by_conversation(receive(shop, "Orders", len(rows)))
    expected = [[row[2] for row in rows if row[3] == f"key {number}"] for number in range(5)]
    assert sorted(got.values()) == sorted(expected)
    assert drain(shop, "Orders") == []


def test_separate_writes_continue_the_conversation_of_a_key_only_under_the_same_pool_name(
    spark: SparkSession, servers: Servers, shop: Broker, database: str
) -> None:
    for number, options in enumerate(({"pool": "carts"}, {"pool": "carts"}, {"pool": "other"}, {}, {})):
        write(frame(spark, [line("one", b"%d" % number)]), servers, database, **options)
    got = by_conversation(receive(shop, "Orders", 5))
    assert sorted(got.values()) == [[b"0", b"1"], [b"2"], [b"3"], [b"4"]]


def test_a_batch_that_was_written_is_not_written_again(
    spark: SparkSession, servers: Servers, shop: Broker, database: str
) -> None:
    for body, batch in ((b"first", 0), (b"again", 0), (b"second", 1), (b"again", 1)):
        write(frame(spark, [line("one", body)]), servers, database, query="nightly", batch=batch)
    got = by_conversation(receive(shop, "Orders", 2))
    assert [*got.values()] == [[b"first", b"second"]]
    assert drain(shop, "Orders") == []


def test_both_sides_of_the_dialog_live_and_answers_come_to_the_service_that_wrote(
    spark: SparkSession, servers: Servers, shop: Broker, database: str
) -> None:
    write(frame(spark, lines(keys=3, each=1)), servers, database)
    with shop.reader("Orders", timeout=5) as orders:
        assert answer_once(orders) == 3
        orders.settle()
    answers = receive(shop, "Shop", 3)
    assert {message.type for message in answers} == {RECEIPT}
    assert len({message.dialog.id for message in answers}) == 3


def test_a_service_and_a_type_for_all_rows_are_options(
    spark: SparkSession, servers: Servers, shop: Broker, database: str
) -> None:
    rows = lines(keys=3, each=4)
    made = frame(spark, rows, tasks=2).select("key", "body")
    write(made, servers, database, to_service=ORDER_SERVICE, message_type=ORDER)
    got = by_conversation(receive(shop, "Orders", len(rows)))
    assert sorted(got.values()) == sorted([row[2] for row in rows if row[3] == f"key {key}"] for key in range(3))
    for wrong, words in (
        ({"to_service": "//x", "message_type": ORDER}, "ServiceNotFound: there is no service '//x'"),
        ({"to_service": ORDER_SERVICE, "message_type": RECEIPT}, "WrongDirection: contract"),
        ({"to_service": ORDER_SERVICE, "message_type": ""}, "InvalidSettings: option 'message_type' is empty"),
        ({"to_service": ORDER_SERVICE}, "the DataFrame has no column 'message_type'"),
    ):
        with pytest.raises(PySparkException, match=words):
            write(made, servers, database, **wrong)


def test_headers_and_string_columns_and_keys_choose_partitions_as_kafka_does(
    spark: SparkSession, servers: Servers, shop: Broker, database: str
) -> None:
    made = spark.sql(
        f"SELECT '{ORDER_SERVICE}' AS to_service, '{ORDER}' AS message_type, concat('k', id) AS body, "
        "concat('k', id) AS key, array(struct('trace' AS key, cast('t' AS binary) AS value)) AS headers FROM range(8)"
    )
    write(made, servers, database)
    rows = read(spark, servers, database).collect()
    assert len(rows) == 8
    for row in rows:
        assert [(header["key"], bytes(header["value"])) for header in row["headers"]] == [("trace", b"t")]
        assert row["partition"] == choose_partition(bytes(row["body"]), 2)
    receive(shop, "Orders", 8)


def test_spark_reads_written_rows_once_their_batch_is_decided(
    spark: SparkSession, servers: Servers, shop: Broker, database: str, tmp_path: Path
) -> None:
    rows = lines(keys=3, each=4)
    write(frame(spark, rows, tasks=2), servers, database)
    with pytest.raises(PySparkException, match="BadInput"):
        write(frame(spark, [line("key 0", b"never"), line(None, b"")], tasks=1), servers, database)
    write(frame(spark, [line("key 0", b"other")]), servers, database)
    sent = by_conversation(receive(shop, "Orders", 13))
    found = read(spark, servers, database)
    got: dict[bytes, list[bytes]] = defaultdict(list)
    for row in found.orderBy("sequence").collect():
        assert (row["kind"], row["role"], row["message_type"]) == ("MESSAGE", "INITIATOR", ORDER)
        assert row["sequence"] == len(got[bytes(row["conversation"])])
        got[bytes(row["conversation"])].append(bytes(row["body"]))
    assert got == sent
    whole = read(spark, servers, database, include="all").groupBy("kind", "verdict").count().collect()
    counts = {(row["kind"], row["verdict"]): row["count"] for row in whole}
    assert (counts["MESSAGE", "accepted"], counts["PENDING", "pending"] >= 13) == (13, True)
    sides = read(spark, servers, database, mode="conversations").collect()
    assert {bytes(row["conversation"]): row["messages"] for row in sides} == {
        key: len(all_) for key, all_ in sent.items()
    }
    latest = max(row["offset"] for row in read(spark, servers, database).where("partition = 0").collect())
    one = read(spark, servers, database).where(f"partition = 0 AND offset = {latest}")
    assert one.count() == 1, "it was decided behind that offset"
    stream = spark.readStream.format("konverse").options(
        bootstrap=servers.bootstrap,
        database=database,
        queue="Orders",
        maxRows="5",
        stateFolder=str(tmp_path / "states"),
    )
    query = stream.load().writeStream.format("memory").queryName("decided").trigger(availableNow=True)
    assert query.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination(120)
    streamed = spark.table("decided").orderBy("conversation", "sequence").collect()
    again = read(spark, servers, database).orderBy("conversation", "sequence").collect()
    assert (len(again), streamed) == (13, again)


def test_a_row_ends_its_conversation_behind_its_batch_and_the_next_one_begins_it_anew(
    spark: SparkSession, servers: Servers, shop: Broker, database: str
) -> None:
    rows = [line("one", b"0"), line("two", b"0"), line("one", b"1"), line("one", b"2")]
    last = "CASE WHEN body = X'31' THEN true WHEN body = X'30' THEN false END AS end"
    made = frame(spark, rows).selectExpr("*", last)
    write(made, servers, database, pool="carts")
    sent = receive(shop, "Orders", 4)
    ended = next(message.dialog.id for message in sent if message.body == b"1")
    assert drain(shop, "Shop") == []  # the ended side lives there, and tells the other one
    with shop.reader("Orders", timeout=5) as orders:
        (end,) = [message for transaction in orders for message in _ended(transaction)]
        orders.settle()
    assert (end.type, end.dialog.id, end.sequence) == (END_DIALOG, ended, 3)
    drain(shop, "Shop")
    write(frame(spark, [line("one", b"anew"), line("two", b"1")]), servers, database, pool="carts")
    got = {message.body: (message.dialog.id, message.sequence) for message in receive(shop, "Orders", 2)}
    assert got[b"anew"] == (ended, 0)
    assert got[b"1"][1] == 1


def _ended(transaction: Transaction) -> list[Message]:
    """Receive messages, and end their dialogs on this side too."""
    with transaction:
        messages = [*transaction]
        for message in messages:
            transaction.end(message.dialog)
    return messages


def test_an_empty_frame_and_empty_partitions_are_written(
    spark: SparkSession, servers: Servers, shop: Broker, database: str
) -> None:
    write(frame(spark, [], tasks=3), servers, database)
    write(spark.createDataFrame([], SCHEMA).limit(0), servers, database)
    write(frame(spark, lines(keys=1, each=2), tasks=6), servers, database)
    assert len(receive(shop, "Orders", 2)) == 2


@pytest.mark.parametrize("adaptive", ["true", "false"])
def test_rows_that_are_shuffled_by_their_key_keep_their_order(
    spark: SparkSession, servers: Servers, shop: Broker, database: str, adaptive: str
) -> None:
    before = spark.conf.get("spark.sql.adaptive.enabled")
    assert before is not None
    spark.conf.set("spark.sql.adaptive.enabled", adaptive)
    try:
        made = frame(spark, [line(f"key {n % 5}", b"%03d" % n) for n in range(200)], tasks=3)
        shuffled = made.repartition("key") if adaptive == "true" else made.repartition(7, "key")
        write(shuffled.sortWithinPartitions("key", "body"), servers, database)
    finally:
        spark.conf.set("spark.sql.adaptive.enabled", before)
    got = by_conversation(receive(shop, "Orders", 200))
    assert sorted(got.values()) == [[b"%03d" % n for n in range(key, 200, 5)] for key in range(5)]


def test_threads_write_and_read_in_one_session_at_once(
    spark: SparkSession, servers: Servers, shop: Broker, database: str
) -> None:
    def written(name: int) -> int:
        rows = [line(f"{name}", b"%d %d" % (name, number)) for number in range(50)]
        write(frame(spark, rows, tasks=2), servers, database)
        return read(spark, servers, database).where("kind = 'MESSAGE'").count()

    with ThreadPoolExecutor(3) as pool:
        seen = [*pool.map(written, range(3))]
    assert min(seen) >= 50
    assert max(seen) == 150
    got = by_conversation(receive(shop, "Orders", 150))
    assert sorted(got.values()) == [[b"%d %d" % (name, number) for number in range(50)] for name in range(3)]
    assert drain(shop, "Orders") == []


BAD: dict[str, tuple[Line, str]] = {
    "unknown service": (line("k", b"", to="//sales/Nobody"), "ServiceNotFound: row 1 of task 1, column 'to_service'"),
    "service of another contract": (line("k", b"", to=SHOP_SERVICE), "ServiceNotFound: row 1 of task 1, column"),
    "unknown type": (line("k", b"", kind="//sales/Nothing"), "NotInContract: row 1 of task 1, column 'message_type'"),
    "type of the other side": (line("k", b"", kind=RECEIPT), "WrongDirection: row 1 of task 1, column 'message_type'"),
    "null key": (line(None, b""), "BadInput: row 1 of task 1, column 'key': it is null"),
    "null service": (line("k", b"", to=None), "BadInput: row 1 of task 1, column 'to_service': it is null"),
    "null type": (line("k", b"", kind=None), "BadInput: row 1 of task 1, column 'message_type': it is null"),
    "body over the limit": (line("k", bytes(BODY_BYTES_MAX + 1)), "BodyTooLarge: row 1 of task 1, column 'body'"),
    "key over the limit": (line("k" * (KEY_BYTES_MAX + 1), b""), "BadInput: row 1 of task 1, column 'key': it has"),
}


def test_a_row_that_cannot_be_sent_is_named_and_nothing_of_its_batch_is_received(
    spark: SparkSession, servers: Servers, shop: Broker, database: str
) -> None:
    for bad, words in BAD.values():
        rows = [line("good", b"0"), line("good", b"1"), line("good", b"2"), bad]
        with pytest.raises(PySparkException) as caught:
            write(frame(spark, rows, tasks=2), servers, database)
        assert words in str(caught.value), str(caught.value)[-2_000:]
    write(frame(spark, [line("good", b"all")]), servers, database)
    assert [message.body for message in receive(shop, "Orders", 1)] == [b"all"]
    assert drain(shop, "Orders") == []


WRONG: list[tuple[dict[str, str], str]] = [
    ({"from_service": "//sales/Nobody"}, "ServiceNotFound: there is no service '//sales/Nobody'"),
    ({"from_service": ""}, "InvalidSettings: option 'from_service' is missing"),
    ({"contract": "//sales/Nothing"}, "ContractNotFound: there is no contract '//sales/Nothing'"),
    ({"to_services": f"{ORDER_SERVICE},//x"}, "ServiceNotFound: there is no service '//x'"),
    ({"contrakt": "c"}, "InvalidSettings: option 'contrakt' is unknown to a writer .*did you mean 'contract'"),
    ({"kafka.acks": "0"}, "InvalidSettings: option 'kafka.acks' cannot be changed"),
    ({"batch": "1"}, "InvalidSettings: option 'batch' numbers the batches of a query; give 'query' too"),
    ({"query": "q"}, "InvalidSettings: option 'query' needs 'batch', a number that rises"),
    ({"query": "q", "batch": "-1"}, "InvalidSettings: option 'batch' is '-1'"),
    ({"deliveryTimeout": "soon"}, "InvalidSettings: option 'deliveryTimeout' is 'soon'"),
    ({"to_services": " ,"}, "InvalidSettings: option 'to_services' is empty"),
    ({"pool": ""}, "InvalidSettings: option 'pool' is empty"),
    ({"to_service": ORDER_SERVICE}, "has column 'to_service', and option 'to_service' gives one value for all rows"),
]


def test_options_are_checked_before_anything_is_written(
    spark: SparkSession, servers: Servers, shop: Broker, database: str
) -> None:
    for options, words in WRONG:
        with pytest.raises(PySparkException, match=words):
            write(frame(spark, []), servers, database, **options)


def test_columns_are_checked_before_anything_is_written(
    spark: SparkSession, servers: Servers, shop: Broker, database: str
) -> None:
    made = frame(spark, [])
    for wrong, words in (
        (made.drop("key"), "has no column 'key'"),
        (made.selectExpr("*", "1 AS end"), "column 'end' is int; cast it to boolean"),
        (made.selectExpr("*", "1 AS kye"), "has column 'kye' which a writer does not know"),
        (made.selectExpr("to_service", "message_type", "body", "1 AS key"), "column 'key' is int; cast it to binary"),
    ):
        with pytest.raises(PySparkException, match=words):
            write(wrong, servers, database)
    with pytest.raises(PySparkException, match="sent messages cannot be overwritten"):
        write_as(made, "overwrite", servers, database)


def test_columns_have_names_by_sparks_case_rule(
    spark: SparkSession, servers: Servers, shop: Broker, database: str
) -> None:
    made = frame(spark, lines(1, 2)).toDF("To_Service", "MESSAGE_TYPE", "Body", "kEY")
    write(made, servers, database)
    assert len(receive(shop, "Orders", 2)) == 2
    with pytest.raises(PySparkException, match="has column 'kEY' twice"):
        write(made.selectExpr("*", "1 AS KEY"), servers, database)
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        with pytest.raises(PySparkException, match="has column 'To_Service', which is not 'to_service'"):
            write(made, servers, database)
    finally:
        spark.conf.unset("spark.sql.caseSensitive")
    assert drain(shop, "Orders") == []


def test_tables_files_and_generated_rows_are_written_alike(
    spark: SparkSession, servers: Servers, shop: Broker, database: str, tmp_path: Path
) -> None:
    frame(spark, [line("one", b"file 0"), line("one", b"file 1")]).write.parquet(str(tmp_path / "rows"))
    write(spark.read.parquet(str(tmp_path / "rows")), servers, database)
    frame(spark, [line("one", b"table")]).createOrReplaceTempView("to_write")
    write(spark.table("to_write"), servers, database)
    spark.catalog.dropTempView("to_write")
    rate = spark.readStream.format("rate-micro-batch").options(rowsPerBatch="4", numPartitions="2").load()
    rows = rate.selectExpr(
        f"'{ORDER_SERVICE}' AS to_service",
        f"'{ORDER}' AS message_type",
        "concat('rate ', value) AS body",
        "'one' AS key",
    )
    options = {"bootstrap": servers.bootstrap, "database": database, "from_service": SHOP_SERVICE, "contract": ORDERING}
    options["checkpointLocation"] = str(tmp_path / "checkpoint")
    query = rows.writeStream.format("konverse").options(**options).trigger(once=True).start()
    assert query.awaitTermination(120)
    got = by_conversation(receive(shop, "Orders", 7)).values()
    assert sorted(map(sorted, got)) == [
        [b"file 0", b"file 1"],
        [b"rate 0", b"rate 1", b"rate 2", b"rate 3"],
        [b"table"],
    ]
