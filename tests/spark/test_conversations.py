"""Each side of each conversation as a row: what its owner decided, and what the log counts."""

from __future__ import annotations

from typing import Any, Final

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StructField, StructType

from konverse.bridge.broker import Broker
from konverse.schemas.errors import InvalidSettings
from konverse.spark.conversations import COLUMNS, ConversationsReader
from konverse.spark.settings import parse
from tests.kit.servers import Servers
from tests.kit.shop import ORDER, ORDER_SERVICE, ORDERING, SHOP_SERVICE, begin, sent

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.xdist_group("spark"), pytest.mark.timeout(300)]

PLACE: Final = {"bootstrap": "localhost:9092", "queue": "Orders", "mode": "conversations"}


def sides(spark: SparkSession, servers: Servers, database: str, queue: str) -> dict[bytes, dict[str, Any]]:
    """The rows of a queue, by conversation."""
    frame = (
        spark.read.format("konverse")
        .options(bootstrap=servers.bootstrap, database=database, queue=queue, mode="conversations")
        .load()
    )
    assert frame.columns == list(COLUMNS)
    found = {bytes(row["conversation"]): row.asDict() for row in frame.collect()}
    assert len(found) == frame.count()
    return found


def test_a_row_tells_how_a_side_stands(spark: SparkSession, servers: Servers, shop: Broker, database: str) -> None:
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
