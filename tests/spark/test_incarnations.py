"""Reads of a queue leave out records for another incarnation, as the queue's owners do."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from konverse.bridge.broker import Broker
from konverse.schemas.wire.envelope import HEADER, decode, encode_envelope
from konverse.spark.read import returned
from konverse.spark.source import KonverseDataSource
from tests.kit.builders import Scribe, begin_block, identifier
from tests.kit.oracle import RawRecord, read_raw
from tests.kit.servers import Servers
from tests.kit.shop import ORDER, queue_of, receive, sent
from tests.spark.logs import ORDERS, Log

pytestmark = [pytest.mark.kafka, pytest.mark.xdist_group("spark"), pytest.mark.timeout(120)]

BODIES: Final = StructType([StructField("verdict", StringType()), StructField("body", BinaryType())])
COUNTS: Final = StructType([StructField(name, LongType()) for name in ("messages", "duplicates")])
FORMER: Final = b"old!"
FORMER_ID: Final = UUID(bytes=FORMER + bytes(12))

Row = dict[str, Any]


@dataclass
class MixedQueue:
    """A queue whose log has records for two incarnations."""

    options: dict[str, str]
    topic: str
    own: list[bytes]
    """Bodies of the messages that its owner accepts, in order."""


@pytest.fixture
def mixed(servers: Servers, shop: Broker, database: str) -> MixedQueue:
    """A message for this incarnation, then copies for another one of it and of the next, and then the next."""
    dialog = sent(shop, b"first")
    queue, partition = queue_of(shop, "Orders"), dialog.begin.target.partition
    log = Log(servers.bootstrap, queue.topic)
    (raw,) = (one for one in read_raw(servers.bootstrap, queue.topic, partition) if one.value == b"first")
    envelope = decode(header_of(raw))._replace(tag=FORMER)
    log.write(encode_envelope(envelope), partition=partition, body=b"former 0")
    log.write(encode_envelope(envelope._replace(counter=envelope.counter + 1)), partition=partition, body=b"former 1")
    dialog.send(ORDER, b"second")
    dialog.flush()
    own = [message.body for message in receive(shop, "Orders", 2)]
    options = {"bootstrap": servers.bootstrap, "database": database, "queue": "Orders"}
    return MixedQueue(options, queue.topic, own)


def header_of(record: RawRecord) -> bytes:
    (header,) = (value for name, value in record.headers if name == HEADER)
    assert header is not None
    return header


def batch_rows(options: dict[str, str], schema: StructType = BODIES) -> list[Row]:
    made = KonverseDataSource(options).reader(schema)
    return rows_of(made.read, made.partitions())


def streamed_rows(options: dict[str, str]) -> list[Row]:
    """The rows of the first micro-batch of a stream, which another process reads."""
    made = KonverseDataSource(options).streamReader(BODIES)
    start = made.initialOffset()
    end = made.latestOffset(start, ReadAllAvailable())
    made.stop()
    again = KonverseDataSource(options).streamReader(BODIES)  # a restart plans the micro-batch from the checkpoint
    parts = again.partitions(start, end)
    again.stop()
    return rows_of(pickle.loads(pickle.dumps(again)).read, parts)


def rows_of(read: Callable[[InputPartition], Any], parts: Iterable[InputPartition]) -> list[Row]:
    return [row for part in parts for batch in read(part) for row in batch.to_pylist()]


def bodies(rows: list[Row]) -> list[bytes]:
    return [row["body"] for row in rows if row["verdict"] == "accepted"]


def test_a_frame_and_a_stream_of_a_queue_have_the_messages_that_its_owner_accepts(
    mixed: MixedQueue, tmp_path: Path
) -> None:
    assert mixed.own == [b"first", b"second"]
    stream = {**mixed.options, "stateFolder": str(tmp_path)}
    for read, options in ((batch_rows, mixed.options), (streamed_rows, stream)):
        rows = read({**options, "include": "all"})
        assert [(row["verdict"], row["body"]) for row in rows] == [
            ("accepted", b"first"),
            ("foreign", b"former 0"),
            ("foreign", b"former 1"),
            ("accepted", b"second"),
        ]
        assert bodies(read(options)) == mixed.own
        assert bodies(read({**options, "incarnation": str(FORMER_ID)})) == [b"former 0", b"former 1"]
    (counts,) = batch_rows({**mixed.options, "mode": "conversations"}, COUNTS)
    assert counts == {"messages": 2, "duplicates": 0}


def test_a_bare_topic_has_the_records_of_all_incarnations(mixed: MixedQueue) -> None:
    found = bodies(batch_rows({"bootstrap": mixed.options["bootstrap"], "topic": mixed.topic}))
    assert found == [b"first", b"former 0", b"former 1", b"second"]


def test_a_returned_message_has_the_begin_of_this_incarnation() -> None:
    conversation, block = identifier("a conversation"), begin_block(group=identifier("a group"), key=b"a key")
    header = Scribe("writer").first(ORDERS, conversation, block)
    assert returned._begin(header, ORDERS.tag) == block
    assert returned._begin(header, FORMER) is None
