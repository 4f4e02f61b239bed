"""Decisions of a queue's owners as rows: in a batch, in SQL's terms, and as a stream."""

from __future__ import annotations

import json
from datetime import UTC
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import lit
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import IntegerType, LongType, StructField, StructType

from konverse.bridge.broker import Broker
from konverse.schemas.errors import InvalidSettings, QueueNotFound
from konverse.schemas.identifiers import consumer_group, data_topic, journal_topic
from konverse.schemas.limits import COMMIT_PARTS_MAX
from konverse.spark.connection.settings import parse
from konverse.spark.log.decisions import ACCEPTED_COLUMNS, COLUMNS
from konverse.spark.read.journal import JournalReader
from konverse.spark.read.journal_stream import JournalStreamReader
from konverse.spark.read.registration import NOTHING_NEEDED
from tests.kit.servers import Servers
from tests.kit.shop import RECEIPT, sent
from tests.spark.logs import Log

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.xdist_group("spark"), pytest.mark.timeout(300)]

Key = tuple[int, int, int]

OFFSETS: Final = StructType([StructField("partition", IntegerType()), StructField("offset", LongType())])


def options(servers: Servers, database: str, queue: str = "Orders", **more: str) -> dict[str, str]:
    return {"bootstrap": servers.bootstrap, "database": database, "queue": queue, "mode": "journal", **more}


def frame_of(spark: SparkSession, servers: Servers, database: str, **more: str) -> DataFrame:
    return spark.read.format("konverse").options(**options(servers, database, **more)).load()


def keys(frame: DataFrame) -> list[Key]:
    found = frame.orderBy("partition", "offset", "position").select("partition", "offset", "position").collect()
    return [(row[0], row[1], row[2]) for row in found]


def handled(shop: Broker, *bodies: bytes) -> None:
    """Send orders in conversations of their own; one is answered, and one conversation ended with an error."""
    for body in bodies:
        sent(shop, body)
    left = len(bodies)
    with shop.reader("Orders", timeout=20) as reader:
        for transaction in reader:
            with transaction:
                for message in transaction:
                    if message.body == b"refuse":
                        transaction.end(message.dialog, error=100, description="sold out")
                    else:
                        transaction.send(message.dialog, RECEIPT, b"receipt")
                    left -= 1
            if not left:
                break
        reader.settle()


def test_a_row_shows_a_decision_of_an_owner(spark: SparkSession, servers: Servers, shop: Broker, database: str) -> None:
    handled(shop, b"one", b"two", b"refuse")
    frame = frame_of(spark, servers, database).cache()
    assert tuple(frame.columns) == ACCEPTED_COLUMNS
    found = [row.asDict() for row in frame.orderBy("partition", "offset", "position").collect()]
    by_name: dict[str, list[dict[str, Any]]] = {}
    for row in found:
        by_name.setdefault(row["operation"], []).append(row)
    assert (len(by_name["RECEIVE"]), len(by_name["SEND"]), len(by_name["END"])) == (3, 2, 1)
    assert {(row["message_type"], row["messages"], row["bytes"]) for row in by_name["SEND"]} == {(RECEIPT, 1, 7)}
    assert json.loads(by_name["END"][0]["detail"]) == {"code": 100, "description": "sold out"}
    owners = {(row["owner"], row["epoch"]) for row in by_name["CLAIM"]}
    assert {(row["owner"], row["epoch"]) for row in found} == owners
    assert any(json.loads(row["detail"])["release"] for row in by_name["COMMIT"])
    whole = keys(frame)
    moment = by_name["SEND"][0]["timestamp"].replace(tzinfo=UTC)
    late = [key for key, row in zip(whole, found, strict=True) if row["timestamp"].replace(tzinfo=UTC) >= moment]
    again = frame_of(spark, servers, database)
    assert keys(again.where((again.timestamp >= lit(moment)) & (again.partition == late[0][0]))) == [
        key for key in late if key[0] == late[0][0]
    ]
    frame.unpersist()
    given = options(servers, database, startingTimestamp=moment.isoformat())
    assert read(JournalReader(parse(given), OFFSETS)) == {key[:2] for key in late}
    chosen = JournalReader(parse({**given, "partitions": "1"}), OFFSETS)
    assert read(chosen) == {key[:2] for key in late if key[0] == 1}


def read(made: JournalReader) -> set[tuple[int, int]]:
    """Partition and offset of the rows from the tasks."""
    parts = made.partitions()
    return {
        (row["partition"], row["offset"]) for part in parts for batch in made.read(part) for row in batch.to_pylist()
    }


def test_all_records_come_with_a_verdict(spark: SparkSession, servers: Servers, shop: Broker, database: str) -> None:
    topic = journal_topic(data_topic("konverse", database, "Orders"))
    log = Log(servers.bootstrap, topic)
    log.write(None, body=b"garbage")
    handled(shop, b"one")
    frame = frame_of(spark, servers, database, include="all")
    assert tuple(frame.columns) == tuple(COLUMNS)
    refused = [row.asDict() for row in frame.where("verdict <> 'accepted'").collect()]
    assert [(row["offset"], row["operation"], row["verdict"]) for row in refused] == [(0, None, "malformed")]
    assert "is undecodable" in json.loads(refused[0]["detail"])["error"]
    assert (0, 0, 0) not in keys(frame_of(spark, servers, database))


def streamed(spark: SparkSession, given: dict[str, str], checkpoint: Path) -> list[Key]:
    """Run a query until everything is read; returns the rows."""
    got: list[Key] = []

    def gather(frame: DataFrame, _: int) -> None:
        got.extend(keys(frame))

    query = (
        spark.readStream.format("konverse")
        .options(**given)
        .load()
        .writeStream.foreachBatch(gather)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(120)
    finally:
        query.stop()
    return sorted(got)


def test_a_stream_continues_from_its_checkpoint_and_returns_each_decision_once(
    spark: SparkSession, servers: Servers, shop: Broker, database: str, tmp_path: Path
) -> None:
    given = options(servers, database, stateFolder=str(tmp_path / "states"), maxRows="2")
    handled(shop, b"one", b"refuse")
    first = streamed(spark, given, tmp_path / "checkpoint")
    handled(shop, b"two")
    second = streamed(spark, given, tmp_path / "checkpoint")
    assert first
    assert second
    assert sorted(first + second) == keys(frame_of(spark, servers, database))


def test_a_stream_keeps_the_journal_from_truncation_and_none_of_the_data(
    servers: Servers, shop: Broker, database: str, tmp_path: Path
) -> None:
    handled(shop, b"one")
    data = data_topic("konverse", database, "Orders")
    made = JournalStreamReader(parse(options(servers, database, stateFolder=str(tmp_path))), OFFSETS)
    start = made.initialOffset()
    end = made.latestOffset(start, ReadAllAvailable())
    assert made.partitions(start, end)
    made.commit(end)
    group = f"{consumer_group(data)}.spark-{start['reader']}"
    consumer = Consumer({"bootstrap.servers": servers.bootstrap, "group.id": group})
    places = [TopicPartition(topic, 0) for topic in (journal_topic(data), data)]
    found = consumer.committed(places, timeout=10)
    consumer.close()
    made.stop()
    parts_before = max(0, end["partitions"]["0"] - COMMIT_PARTS_MAX)  # it may end between two parts of a COMMIT
    assert [place.offset for place in found] == [parts_before, NOTHING_NEEDED]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"topic": "t"}, "mode 'journal' needs a queue"),
        ({"queue": "q", "incarnation": "0" * 32}, "remove it for mode 'journal'"),
    ],
)
def test_options_that_make_no_sense_are_refused(given: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidSettings, match=words):
        JournalReader(parse({"bootstrap": "localhost:9092", "mode": "journal", **given}), OFFSETS)


def test_a_queue_that_is_none_is_an_error_that_can_be_read(servers: Servers, database: str) -> None:
    with pytest.raises(QueueNotFound, match="has no queue 'Nothing'; check options"):
        JournalReader(parse(options(servers, database, queue="Nothing")), OFFSETS).partitions()
