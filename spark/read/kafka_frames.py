"""Decodes frames of Spark's own Kafka source into the columns of the format `konverse`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from konverse.schemas.errors import InvalidSettings
from konverse.schemas.identifiers import Role
from konverse.schemas.wire.envelope import HEADER
from konverse.schemas.wire.records import Kind
from konverse.spark.connection.case_rule import spelled
from konverse.spark.log.columns import TIMESTAMP, handles, identifiers, masked, message_types, names_of, writers
from konverse.spark.log.frame import decode
from konverse.spark.log.headers import HEADERS_TYPE

NEEDED: Final = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
"""Columns of Spark's Kafka source that are read. It gives `headers` only with its option `includeHeaders`."""

DECODED: Final = (
    "conversation binary, handle binary, role string, sequence bigint, message_type string, body binary, key binary, "
    "headers array<struct<key:string,value:binary>>, topic string, partition int, offset bigint, "
    "timestamp timestamp_ltz, writer binary, counter bigint, kind string"
)


def decoded(records: DataFrame) -> DataFrame:
    """One row for each record. InvalidSettings names a column that is missing."""
    records = spelled(records, NEEDED)
    missing = [name for name in NEEDED if name not in records.columns]
    if missing:
        hint = "; give Spark's Kafka source the option includeHeaders=true" if missing == ["headers"] else ""
        raise InvalidSettings(f"the frame lacks the column {missing[0]!r} of Spark's Kafka source{hint}")
    return records.select(*NEEDED).mapInArrow(_batches, DECODED)


def _batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if batch.num_rows:
            yield _batch(batch)


def _batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    ours, others = _apart(batch.column("headers"))
    frame = decode(ours)
    sound = frame.sound
    numbers = frame.sequence
    columns: dict[str, Any] = {
        "conversation": identifiers(frame.conversation, sound),
        "handle": handles(frame, sound),
        "role": names_of(Role).take(masked(frame.role, sound)),
        "sequence": masked(numbers, sound & (numbers >= 0)),
        "message_type": message_types(frame.message_type, sound),
        "body": batch.column("value"),
        "key": batch.column("key"),
        "headers": others,
        "topic": batch.column("topic"),
        "partition": batch.column("partition"),
        "offset": batch.column("offset"),
        "timestamp": batch.column("timestamp").cast(TIMESTAMP),
        "writer": writers(frame, sound),
        "counter": masked(frame.counter, sound),
        "kind": names_of(Kind).take(masked(frame.kind, sound)),
    }
    return pa.RecordBatch.from_pydict(columns)


def _apart(headers: Any) -> tuple[list[bytes | None], pa.ListArray]:
    """Our header of each row, and the users' headers. Of several headers of our name the first is ours (M11)."""
    pairs = headers.flatten().cast(HEADERS_TYPE.value_type)  # Spark may be set to give large strings
    rows = headers.value_parent_indices().to_numpy()
    is_ours = pc.equal(pairs.field("key"), HEADER).fill_null(False).to_numpy(zero_copy_only=False)  # noqa: FBT003  # Arrow takes a positional argument
    found: list[bytes | None] = [None] * len(headers)
    places = np.flatnonzero(is_ours)
    for row, value in zip(
        rows[places][::-1].tolist(), pairs.field("value").take(places[::-1]).to_pylist(), strict=True
    ):
        found[row] = value
    left = np.bincount(rows[~is_ours], minlength=len(headers))
    borders = np.concatenate(([0], np.cumsum(left))).astype(np.int32)
    return found, pa.ListArray.from_arrays(pa.array(borders), pairs.filter(pa.array(~is_ours)), type=HEADERS_TYPE)
