"""`format("konverse")` in a real Spark: found without registration, read by DataFrame and SQL, with clear errors."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID, uuid4

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import lit

from konverse.schemas.identifiers import Role
from konverse.schemas.wire.records import End, Kind
from konverse.spark.log.columns import ACCEPTED_COLUMNS, VERDICT
from konverse.spark.read.ledger import conversations
from tests.kit import until
from tests.kit.builders import GARBAGE, Scribe, identifier
from tests.kit.servers import Servers
from tests.spark.conftest import NewLog
from tests.spark.logs import ORDERS, Log, rows

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.xdist_group("spark"), pytest.mark.timeout(300)]

CONVERSATION: Final = identifier("a conversation")


def messages(scribe: Scribe, count: int, conversation: bytes = CONVERSATION) -> list[bytes]:
    return [scribe.message(ORDERS, conversation) for _ in range(count)]


def disturbed(new_log: NewLog) -> Log:
    """Two messages, a duplicate, a gap, garbage, a foreign record, a control record and one more message."""
    log, scribe = new_log(), Scribe("writer")
    first, second = messages(scribe, 2)
    log.write(first, second, first, scribe.message(ORDERS, CONVERSATION, counter=9), GARBAGE, None)
    log.write(scribe.close(ORDERS, identifier("another")), *messages(scribe, 1))
    return log


def tasks(frame: DataFrame) -> int:
    return frame.rdd.getNumPartitions()


def test_messages_are_read_without_registering_the_format(spark: SparkSession, new_log: NewLog) -> None:
    log = disturbed(new_log)
    frame = log.read(spark)
    assert tuple(frame.columns) == ACCEPTED_COLUMNS
    expected = [
        (CONVERSATION, CONVERSATION + b"\1", "INITIATOR", number, "order", b"body", "MESSAGE", counter, offset)
        for number, counter, offset in ((0, 0, 0), (1, 1, 1), (2, 3, 7))
    ]
    columns = ("conversation", "handle", "role", "sequence", "message_type", "body", "kind", "counter", "offset")
    assert rows(frame, *columns) == expected


def test_all_records_come_with_a_verdict(spark: SparkSession, new_log: NewLog) -> None:
    frame = disturbed(new_log).read(spark, include="all")
    assert tuple(frame.columns) == (*ACCEPTED_COLUMNS, VERDICT)
    found = rows(frame, "verdict", "handle")
    assert [verdict for verdict, _ in found] == [
        *("accepted", "accepted", "duplicate", "gap", "malformed", "foreign", "control", "accepted")
    ]
    assert [verdict for verdict, handle in found if handle is None] == ["malformed", "foreign", "control"]
    assert frame.where("verdict = 'foreign' and conversation is null and body = 'body'").count() == 1


def test_sql_reads_with_using_konverse(spark: SparkSession, new_log: NewLog) -> None:
    log = disturbed(new_log)
    options = ", ".join(f"{name} '{value}'" for name, value in log.options().items())
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW read_by_sql USING konverse OPTIONS ({options})")
    counted = spark.sql("SELECT message_type, count(*) FROM read_by_sql GROUP BY message_type").collect()
    assert [tuple(row) for row in counted] == [("order", 3)]


def test_another_session_of_the_same_spark_finds_the_format_too(spark: SparkSession, new_log: NewLog) -> None:
    log, session = disturbed(new_log), spark.newSession()
    assert rows(log.read(session).where("offset > 0"), "offset", "sequence") == [(1, 1), (7, 2)]
    options = ", ".join(f"{name} '{value}'" for name, value in log.options().items())
    session.sql(f"CREATE TEMPORARY VIEW of_one_session USING konverse OPTIONS ({options})")
    assert session.table("of_one_session").count() == 3
    assert not spark.catalog.tableExists("of_one_session")


def test_a_schema_chooses_columns(spark: SparkSession, new_log: NewLog) -> None:
    log = disturbed(new_log)
    frame = (
        spark.read.format("konverse")
        .options(**log.options())
        .schema("offset bigint, role string, verdict string")
        .load()
    )
    assert frame.columns == ["offset", "role", "verdict"]
    assert rows_of(frame) == [(0, "INITIATOR", "accepted"), (1, "INITIATOR", "accepted"), (7, "INITIATOR", "accepted")]


def rows_of(frame: DataFrame) -> list[tuple[object, ...]]:
    return [tuple(row) for row in frame.orderBy("offset").collect()]


def test_starting_and_ending_offsets_limit_the_records_read(spark: SparkSession, new_log: NewLog) -> None:
    log = disturbed(new_log)
    frame = log.read(spark, startingOffsets='{"0": 1}', endingOffsets='{"0": 7}')
    assert rows(frame, "offset", "sequence") == [(1, 1)]


def test_options_choose_partitions_and_conversations_before_anything_is_read(
    spark: SparkSession, new_log: NewLog
) -> None:
    log, another = new_log(3), identifier("another")
    for partition in range(3):
        scribe = Scribe(f"writer {partition}")
        log.write(*(scribe.message(ORDERS, one) for one in (CONVERSATION, another)), partition=partition)
    chosen = log.read(spark, partitions="2, 0", conversations=f"{UUID(bytes=another)}")
    assert tasks(chosen) == 2
    assert rows(chosen, "partition", "offset") == [(0, 1), (2, 1)]
    assert rows(log.read(spark, conversations=str(uuid4())), "offset") == []


def test_a_filtered_query_changes_nothing_for_later_ones_on_the_frame(spark: SparkSession, new_log: NewLog) -> None:
    log = new_log()
    log.fill(messages(Scribe("writer"), 10))
    frame = log.read(spark)
    one, other = frame.where("offset = 3"), frame.where("offset = 5")
    counts = [made.count() for made in (frame, one, frame, other, one.union(other), frame)]
    assert counts == [10, 1, 10, 1, 2, 10]


def test_empty_partitions_and_holes_of_transactions_are_read(spark: SparkSession, new_log: NewLog) -> None:
    log, scribe = new_log(3), Scribe("writer")
    log.transaction(*messages(scribe, 2), partition=1)
    log.transaction(*messages(Scribe("another"), 2), partition=1, commit=False)
    assert rows(log.read(spark), "partition", "offset") == [(1, 0), (1, 1)]
    assert log.read(spark).where("offset = 5").count() == 0
    assert rows(new_log().read(spark), "offset") == []


def test_two_reads_of_a_frame_are_the_same(spark: SparkSession, new_log: NewLog) -> None:
    log = disturbed(new_log)
    frame = log.read(spark, include="all")
    joined = frame.alias("a").join(frame.alias("b"), "offset").where("a.verdict <=> b.verdict")
    assert joined.count() == 8


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"queue": "q"}, "InvalidSettings: option 'bootstrap' is missing"),
        ({"bootstrap": "{bootstrap}", "quueue": "q"}, "InvalidSettings: option 'quueue' is unknown"),
        ({"bootstrap": "{bootstrap}", "topic": "none"}, "UnknownObject: topic 'none' does not exist"),
        ({"bootstrap": "{bootstrap}", "database": "d", "queue": "none"}, "QueueNotFound: queue 'none'"),
        ({"bootstrap": "127.0.0.1:1", "topic": "none"}, "KafkaUnavailable: no broker at 127.0.0.1:1 answered"),
    ],
)
def test_an_error_of_ours_can_be_read_in_spark(
    spark: SparkSession, servers: Servers, options: dict[str, str], words: str
) -> None:
    given = {name: value.format(bootstrap=servers.bootstrap) for name, value in options.items()}
    with pytest.raises(PySparkException) as caught:
        spark.read.format("konverse").options(**given).load().count()
    assert words in str(caught.value)


def test_the_ledger_has_a_row_for_each_side_of_a_conversation(spark: SparkSession, new_log: NewLog) -> None:
    log, scribe, ended = new_log(2), Scribe("writer"), identifier("an ended conversation")
    first, second = messages(scribe, 2)
    log.write(first, second, first, timestamp=1_000_000)
    log.write(scribe.message(ORDERS, CONVERSATION, role=Role.TARGET), body=None, timestamp=2_000_000)
    other = Scribe("another writer")
    log.write(*messages(other, 1, ended), partition=1)
    log.write(other.end(ORDERS, ended, End(identifier("opener"), ORDERS)), partition=1, body=None)
    log.write(None, GARBAGE, other.close(ORDERS, identifier("a closed writer")), partition=1)
    failed, failing = identifier("a failed conversation"), Scribe("a failing writer")
    log.write(*messages(failing, 1, failed), partition=1)
    error = failing.end(ORDERS, failed, End(identifier("opener"), ORDERS), kind=Kind.ERROR)
    log.write(error, partition=1, body=b"a description")

    columns = ("conversation", "role", "messages", "bytes", "first_sequence", "last_sequence", "ended", "gaps")
    expected = {
        (CONVERSATION, "INITIATOR", 2, 8, 0, 1, False, 0),
        (CONVERSATION, "TARGET", 1, 0, 0, 0, False, 0),
        (ended, "INITIATOR", 1, 4, 0, 1, True, 0),
        (failed, "INITIATOR", 1, 4, 0, 1, True, 0),
    }
    assert ledger(log.read(spark), *columns) == expected
    judged = log.read(spark, include="all")
    assert ledger(judged, *columns) == expected
    assert ledger(judged, "role", "duplicates") == {("INITIATOR", 1), ("TARGET", 0), ("INITIATOR", 0)}
    times = conversations(judged).where("role = 'TARGET'").selectExpr("first_timestamp = last_timestamp").collect()
    assert [tuple(row) for row in times] == [(True,)]
    assert ledger(log.read(spark).where("sequence <> 0 or partition = 1"), "gaps") == {(0,)}


def ledger(frame: DataFrame, *columns: str) -> set[tuple[object, ...]]:
    found = conversations(frame).select(*columns).collect()
    return {tuple(bytes(value) if isinstance(value, bytearray) else value for value in row) for row in found}


def test_timestamps_and_conversations_filter_the_records_read(spark: SparkSession, new_log: NewLog) -> None:
    log, scribe = new_log(message_timestamp_type="LogAppendTime"), Scribe("writer")
    another = identifier("another")
    log.write(*(scribe.message(ORDERS, one) for one in (CONVERSATION, another, CONVERSATION)))
    between = rows(log.read(spark), "timestamp")[-1][0].replace(tzinfo=UTC) + timedelta(milliseconds=1)
    until(lambda: datetime.now(UTC) > between)
    log.write(*(scribe.message(ORDERS, one) for one in (another, CONVERSATION)))
    frame = log.read(spark)
    moment, ours = lit(between), lit(CONVERSATION)

    def counters(chosen: DataFrame) -> list[Any]:
        return [counter for (counter,) in rows(chosen, "counter")]

    assert counters(frame.where(frame.conversation == ours)) == [0, 2, 4]
    assert counters(frame.where(frame.conversation == lit(identifier("none")))) == []
    assert counters(frame.where(frame.timestamp >= moment)) == [3, 4]
    assert counters(frame.where((frame.timestamp < moment) & (frame.conversation == ours))) == [0, 2]
    moment_ms = str(round(between.timestamp() * 1000))
    assert counters(log.read(spark, startingTimestamp=moment_ms)) == [3, 4]
    assert counters(log.read(spark, endingTimestamp=between.isoformat())) == [0, 1, 2]
    before_1970, latest = "1969-12-31T23:59:59.999+00:00", str(2**63 - 1)
    assert counters(log.read(spark, startingTimestamp=before_1970, endingTimestamp=latest)) == [0, 1, 2, 3, 4]
    assert counters(log.read(spark, endingTimestamp=before_1970)) == []
    assert counters(log.read(spark, startingTimestamp=latest)) == []
    tomorrow = (between + timedelta(days=1)).isoformat()
    assert counters(log.read(spark, startingTimestamp=tomorrow)) == []
    assert counters(log.read(spark, endingTimestamp=tomorrow)) == [0, 1, 2, 3, 4]
