"""Frames of Spark's own Kafka source, with the columns of ours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import DataFrame

from konverse.schemas.envelope import HEADER
from konverse.schemas.errors import InvalidSettings
from konverse.schemas.records import Kind, Role

from .columns import TIMESTAMP
from .frame import TAG_BYTES, Frame, decode
from .headers import HEADERS_TYPE

NEEDED: Final = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
"""Columns of Spark's Kafka source that are read; `headers` are there with its option `includeHeaders`."""

DECODED: Final = (
    "conversation binary, role string, sequence bigint, message_type string, body binary, key binary, "
    "headers array<struct<key:string,value:binary>>, topic string, partition int, offset bigint, timestamp timestamp, "
    "writer binary, counter bigint, kind string"
)


def decoded(records: DataFrame) -> DataFrame:
    """One row for each record. InvalidSettings names a column that is missing."""
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
        "conversation": _bytes(frame.conversation, sound),
        "role": _named([role.name for role in Role], frame.role, sound),
        "sequence": pa.array(numbers, mask=~sound | (numbers < 0)),
        "message_type": pc.if_else(pa.array(sound), frame.message_type, None),
        "body": batch.column("value"),
        "key": batch.column("key"),
        "headers": others,
        "topic": batch.column("topic"),
        "partition": batch.column("partition"),
        "offset": batch.column("offset"),
        "timestamp": batch.column("timestamp").cast(TIMESTAMP),
        "writer": _bytes(_writers(frame), sound),
        "counter": pa.array(frame.counter, mask=~sound),
        "kind": _named([kind.name for kind in Kind], frame.kind, sound),
    }
    return pa.RecordBatch.from_pydict(columns)


def _apart(headers: Any) -> tuple[list[bytes | None], pa.ListArray]:
    """Our header of each row, the first where there are several, and the users' headers."""
    pairs = headers.flatten()
    rows = headers.value_parent_indices().to_numpy()
    is_ours = pc.equal(pairs.field("key"), HEADER).fill_null(False).to_numpy(zero_copy_only=False)  # noqa: FBT003  # Arrow takes it by place
    found: list[bytes | None] = [None] * len(headers)
    places = np.flatnonzero(is_ours)
    for row, value in zip(
        rows[places][::-1].tolist(), pairs.field("value").take(places[::-1]).to_pylist(), strict=True
    ):
        found[row] = value
    left = np.bincount(rows[~is_ours], minlength=len(headers))
    borders = np.concatenate(([0], np.cumsum(left))).astype(np.int32)
    return found, pa.ListArray.from_arrays(pa.array(borders), pairs.filter(pa.array(~is_ours)), type=HEADERS_TYPE)


def _writers(frame: Frame) -> NDArray[np.void]:
    both = frame.tagged_writer.view(np.uint8).reshape(len(frame.tagged_writer), -1)
    return np.ascontiguousarray(both[:, TAG_BYTES:]).view("V16").reshape(-1)


def _bytes(values: NDArray[np.void], sound: NDArray[np.bool_]) -> pa.Array:
    fixed = pa.Array.from_buffers(pa.binary(16), len(values), [None, pa.py_buffer(values.view(np.uint8))])
    return pc.if_else(pa.array(sound), fixed.cast(pa.binary()), None)


def _named(names: list[str], numbers: NDArray[np.uint8], sound: NDArray[np.bool_]) -> pa.Array:
    known = sound & (numbers < len(names))
    return pa.array(names, pa.string()).take(pa.array(np.where(known, numbers, 0), mask=~known))
