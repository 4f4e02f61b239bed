"""Records of Spark's own Kafka source, in the columns of ours."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from konverse.schemas.errors import InvalidSettings
from konverse.schemas.wire.envelope import HEADER
from konverse.spark import decode
from konverse.spark.log.columns import TIMESTAMP
from konverse.spark.read import kafka_frames
from tests.kit.builders import GARBAGE, Scribe, identifier
from tests.spark.conftest import NewLog
from tests.spark.logs import ORDERS, rows

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.xdist_group("spark"), pytest.mark.timeout(300)]

CONVERSATION: Final = identifier("a conversation")
KAFKA: Final = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int, "
    "headers array<struct<key:string,value:binary>>"
)


def kafka_frame(spark: SparkSession, *headers: list[tuple[str, bytes | None]] | None) -> DataFrame:
    """A frame like that of Spark's Kafka source, with a record for each list of headers."""
    records = [(b"k", b"body", "t", 3, place, None, 0, found) for place, found in enumerate(headers)]
    return spark.createDataFrame(records, KAFKA)


def test_a_record_has_the_columns_that_our_source_gives_it(spark: SparkSession, new_log: NewLog) -> None:
    log = new_log(partitions=4)
    header = Scribe("writer").message(ORDERS, CONVERSATION, sequence=0)
    log.write(header, headers=[("trace", b"1")], key=b"k", partition=3)
    ours = log.read(spark).drop("timestamp", "accepted_time")
    found = decode(kafka_frame(spark, [("trace", b"1"), (HEADER, header)]))
    assert rows(found, *ours.columns) == rows(ours, *ours.columns)
    assert rows(found, "topic") == [("t",)]


def test_a_record_without_a_valid_envelope_is_a_row_with_null_envelope_columns(spark: SparkSession) -> None:
    first, second = (Scribe(name).message(ORDERS, CONVERSATION) for name in ("one", "another"))
    user = ("trace", b"1")
    frame = decode(
        kafka_frame(
            spark,
            [(HEADER, first)],
            [user, (HEADER, first), ("more", None), (HEADER, second)],
            [(HEADER, GARBAGE)],
            [user],
            [],
            None,
            [(HEADER, None)],
        )
    )
    found: list[Any] = rows(frame, "kind", "conversation", "writer", "counter", "message_type", "headers", "offset")
    assert [row[0] for row in found] == ["MESSAGE", "MESSAGE", None, None, None, None, None]
    assert {row[1] for row in found[:2]} == {CONVERSATION}
    assert {row[2] for row in found[:2]} == {identifier("one")}, "of several envelopes the first counts"
    assert [row[3:5] for row in found] == [(0, "order")] * 2 + [(None, None)] * 5
    others = [[(pair["key"], pair["value"]) for pair in row[5]] for row in found]
    assert others == [[], [("trace", bytearray(b"1")), ("more", None)], [], [("trace", bytearray(b"1"))], [], [], []]


def test_headers_are_decoded_also_where_spark_gives_large_strings() -> None:
    """As with `spark.sql.execution.arrow.useLargeVarTypes`."""
    text, data = pa.large_string(), pa.large_binary()
    header = Scribe("one").message(ORDERS, CONVERSATION)
    pairs = [("trace", b"1"), (HEADER, header)]
    records = pa.RecordBatch.from_pydict({
        "topic": pa.array(["t"], text),
        "partition": pa.array([3], pa.int32()),
        "offset": pa.array([0], pa.int64()),
        "timestamp": pa.array([0], TIMESTAMP),
        "key": pa.array([b"k"], data),
        "value": pa.array([b"body"], data),
        "headers": pa.array([pairs], pa.list_(pa.struct([("key", text), ("value", data)]))),
    })  # fmt: skip
    (row,) = (row for batch in kafka_frames._batches(iter([records])) for row in batch.to_pylist())
    assert (row["writer"], row["body"], row["headers"]) == (
        identifier("one"),
        b"body",
        [{"key": "trace", "value": b"1"}],
    )


def test_the_error_for_a_frame_without_headers_names_the_missing_option(spark: SparkSession) -> None:
    frame = kafka_frame(spark)
    with pytest.raises(InvalidSettings, match=r"lacks the column 'headers'.*includeHeaders=true"):
        decode(frame.drop("headers"))
    with pytest.raises(InvalidSettings, match="lacks the column 'topic'"):
        decode(frame.drop("topic"))
