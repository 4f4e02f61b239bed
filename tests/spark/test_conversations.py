"""Each side of each conversation as a row: the owner's decisions, and counts from the log."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import pytest
from confluent_kafka import Producer
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StructField, StructType

from konverse.bridge.broker import Broker
from konverse.dialog.transaction.transaction import Transaction
from konverse.schemas.errors import InvalidSettings
from konverse.schemas.groups import own_group
from konverse.schemas.identifiers import Role, data_topic
from konverse.spark.connection.settings import parse
from konverse.spark.log.columns import ACCEPTED_COLUMNS, GROUP
from konverse.spark.read.conversations import COLUMNS, ConversationsReader
from tests.kit.oracle import read_raw
from tests.kit.servers import Servers
from tests.kit.shop import (
    DEADLINE_S,
    ORDER,
    ORDER_SERVICE,
    ORDERING,
    RECEIPT,
    SHOP_SERVICE,
    begin,
    receive,
    sent,
)

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.xdist_group("spark"), pytest.mark.timeout(300)]

PLACE: Final = {"bootstrap": "localhost:9092", "queue": "Orders", "mode": "conversations"}

LIFETIME: Final = timedelta(hours=1)


def sides(spark: SparkSession, servers: Servers, database: str, queue: str) -> dict[bytes, dict[str, Any]]:
    """Conversation → its row, for a queue."""
    frame = (
        spark.read.format("konverse")
        .options(bootstrap=servers.bootstrap, database=database, queue=queue, mode="conversations")
        .load()
    )
    assert frame.columns == list(COLUMNS)
    found = {bytes(row["conversation"]): row.asDict() for row in frame.collect()}
    assert len(found) == frame.count()
    return found


def test_a_row_shows_the_state_of_a_side(spark: SparkSession, servers: Servers, shop: Broker, database: str) -> None:
    waiting, timed, ended, gone = (sent(shop, body) for body in (b"one", b"two", b"end", b"forget"))
    unheard = begin(shop)
    handled = set()
    with shop.reader("Orders", timeout=20) as reader:
        for transaction in reader:
            with transaction:
                for message in transaction:
                    if message.body == b"two":
                        transaction.set_timer(message.dialog, 3_600)
                    if message.body in (b"end", b"forget"):
                        transaction.end(message.dialog, cleanup=message.body == b"forget")
                    handled.add(message.body)
            if len(handled) == 4:
                break
        reader.settle()
    waiting.send(ORDER, b"three")
    waiting.send(ORDER, b"four")
    shop.flush()
    found = sides(spark, servers, database, "Orders")
    assert set(found) == {dialog.id.bytes for dialog in (waiting, timed, ended, gone)}
    assert unheard.id.bytes not in found
    row = found[waiting.id.bytes]
    assert (row["role"], row["state"], row["service"]) == ("TARGET", "CONVERSING", ORDER_SERVICE)
    assert row["handle"] == waiting.id.bytes + b"\1"
    assert (row["far_service"], row["contract"], row["suspended"]) == (SHOP_SERVICE, ORDERING, False)
    assert (row["messages"], row["bytes"], row["duplicates"]) == (3, 12, 0)
    assert (row["receive_sequence"], row["unread"], row["unread_bytes"]) == (3, 2, 9)
    assert row["first_timestamp"] < row["last_timestamp"]
    assert (row["priority"], row["attempts"], row["dialog_timer"]) == (5, 0, None)
    row = found[timed.id.bytes]
    assert (row["unread"], row["dialog_timer"] > row["last_timestamp"]) == (0, True)
    assert found[ended.id.bytes]["state"] == "DISCONNECTED_OUTBOUND"
    row = found[gone.id.bytes]
    assert (row["state"], row["messages"], row["unread"]) == (None, 1, None)
    row = sides(spark, servers, database, "Shop")[waiting.id.bytes]
    assert (row["role"], row["handle"]) == ("INITIATOR", waiting.id.bytes + b"\0")


def test_a_row_shows_suspension_and_lifetime(
    spark: SparkSession, servers: Servers, shop: Broker, database: str
) -> None:
    guilty, mortal = sent(shop, b"poison", b"behind"), begin(shop, lifetime=LIFETIME.total_seconds())
    mortal.send(ORDER, b"good")
    shop.flush()

    def refuse(transaction: Transaction) -> None:
        if any(message.body == b"poison" for message in transaction):
            raise RuntimeError("not this one")

    with shop.reader("Orders", timeout=2.0) as reader:
        reader.run(refuse)
        assert [endpoint.id for endpoint in reader.operations.suspended] == [guilty.id]
    found = sides(spark, servers, database, "Orders")
    row = found[guilty.id.bytes]
    assert (row["suspended"], row["attempts"], row["unread"], row["lifetime"]) == (True, 5, 2, None)
    row = found[mortal.id.bytes]
    assert (row["suspended"], row["attempts"], row["unread"]) == (False, 0, 0)
    assert abs(row["lifetime"] - row["first_timestamp"] - LIFETIME) < timedelta(minutes=5)


def test_records_that_came_once_more_are_counted_apart(
    spark: SparkSession, servers: Servers, shop: Broker, database: str
) -> None:
    dialog, other = sent(shop, b"one", b"two"), sent(shop, b"other")
    topic, number = data_topic("konverse", database, "Orders"), dialog.begin.target.partition
    before = sides(spark, servers, database, "Orders")
    again = [record for record in read_raw(servers.bootstrap, topic, number) if record.value in (b"one", b"two")]
    producer = Producer({"bootstrap.servers": servers.bootstrap})
    for record in (*again, again[0]):
        producer.produce(topic, record.value, record.key, number, headers=[*record.headers])
    assert producer.flush(DEADLINE_S) == 0
    after = sides(spark, servers, database, "Orders")
    assert (before[dialog.id.bytes]["duplicates"], after[dialog.id.bytes]["duplicates"]) == (0, 3)
    assert {one: row | {"duplicates": 0} for one, row in after.items()} == before
    assert (after[dialog.id.bytes]["messages"], after[dialog.id.bytes]["unread"]) == (2, 2)
    assert after[other.id.bytes]["duplicates"] == 0
    assert [message.body for message in receive(shop, "Orders", 3) if message.dialog.id == dialog.id] == [
        b"one",
        b"two",
    ]


def test_messages_name_the_group_of_the_side_that_receives_them(
    spark: SparkSession, servers: Servers, shop: Broker, database: str, tmp_path: Path
) -> None:
    alone, moved = sent(shop, b"alone"), begin(shop)
    while moved.begin.target.partition != alone.begin.target.partition:  # else its messages would stay there
        moved = begin(shop)
    moved.send(ORDER, b"moved")
    related = begin(shop, related_to=alone)
    group = own_group(Role.TARGET, alone.id.bytes)

    def answer(transaction: Transaction) -> None:
        for message in transaction:
            transaction.send(message.dialog, RECEIPT)
            if message.body == b"moved":
                transaction.move(message.dialog, UUID(bytes=group))

    related.send(ORDER, b"related")
    shop.flush()
    with shop.reader("Orders", timeout=2.0) as reader:
        reader.run(answer)
    groups = {queue: sides(spark, servers, database, queue) for queue in ("Orders", "Shop")}
    for queue, found in groups.items():
        place = {"bootstrap": servers.bootstrap, "database": database, "queue": queue, "include": "groups"}
        frame = spark.read.format("konverse").options(**place).load()
        assert frame.columns == [*ACCEPTED_COLUMNS[:2], GROUP, *ACCEPTED_COLUMNS[2:]]
        rows = frame.collect()
        assert len(rows) == 3
        assert all(row[GROUP] == found[bytes(row["conversation"])][GROUP] for row in rows)
        stream = spark.readStream.format("konverse").options(**place).load().select("handle", GROUP)
        name = f"groups_of_{queue}"
        query = stream.writeStream.format("memory").queryName(name).trigger(availableNow=True)
        query.option("checkpointLocation", str(tmp_path / queue)).start().awaitTermination()
        assert {(row["handle"], row[GROUP]) for row in rows} == {tuple(row) for row in spark.table(name).collect()}
    assert bytes(groups["Orders"][moved.id.bytes][GROUP]) == group
    assert bytes(groups["Shop"][related.id.bytes][GROUP]) == alone.id.bytes
    assert bytes(groups["Orders"][related.id.bytes][GROUP]) == own_group(Role.TARGET, related.id.bytes)


def test_a_bare_topic_has_no_groups(spark: SparkSession, servers: Servers, shop: Broker, database: str) -> None:
    sent(shop, b"one")
    topic = data_topic("konverse", database, "Orders")
    frame = spark.read.format("konverse").options(bootstrap=servers.bootstrap, topic=topic, include="groups").load()
    with pytest.raises(PySparkException, match="'conversation_group' needs a queue; give 'queue'"):
        frame.collect()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"mode": "ledger"}, "option 'mode' is 'ledger'"),
        ({"maxRows": "3"}, "option 'maxRows' chooses among messages"),
        ({"include": "all"}, "option 'include' chooses among messages"),
        ({"queue": "", "topic": "t"}, "mode 'conversations' needs a queue"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, str], words: str) -> None:
    given = {name: value for name, value in {**PLACE, **options}.items() if value}
    with pytest.raises(InvalidSettings, match=words):
        ConversationsReader(parse(given), StructType())


def test_a_column_that_is_none_is_refused() -> None:
    schema = StructType([StructField("unread", LongType()), StructField("body", LongType())])
    with pytest.raises(InvalidSettings, match="no column 'body'; it has conversation, handle, role, state"):
        ConversationsReader(parse(PLACE), schema)


def test_a_queue_that_is_none_is_an_error_that_can_be_read(
    spark: SparkSession, servers: Servers, database: str
) -> None:
    with pytest.raises(PySparkException, match="has no queue 'Orders'; check options"):
        sides(spark, servers, database, "Orders")


def test_streams_give_messages(spark: SparkSession) -> None:
    frame = spark.readStream.format("konverse").options(**PLACE).load()
    with pytest.raises(PySparkException, match="a stream gives messages"):
        frame.writeStream.format("noop").start().processAllAvailable()
