"""The columns of a message, and how each is made from records. Only the columns that were asked for are made."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message
from numpy.typing import NDArray

from konverse.schemas.records import Kind, Role

from .frame import TAG_BYTES
from .headers import HEADERS_TYPE
from .ingest import Rows, Verdict


class Column(NamedTuple):
    """A column of a message."""

    sql: str
    """Its type in Spark."""
    arrow: Any
    """The same in Arrow."""
    make: Callable[[Rows], Any]


def batch(rows: Rows, schema: pa.Schema, keep: NDArray[np.bool_]) -> pa.RecordBatch | None:
    """The rows that are kept, as the columns of `schema`; None when there are none."""
    if not keep.any():
        return None
    made = pa.RecordBatch.from_arrays([COLUMNS[name].make(rows) for name in schema.names], schema=schema)
    return made if keep.all() else made.filter(pa.array(keep))


def _identifiers(rows: Rows, values: NDArray[np.void]) -> pa.BinaryArray:
    """16 bytes per row; null where no envelope is."""
    count = len(values)
    borders = np.arange(0, 16 * count + 1, 16).astype(np.int32)
    valid = None if rows.decoded.all() else pa.py_buffer(np.packbits(rows.decoded, bitorder="little"))
    buffers = [valid, pa.py_buffer(borders), pa.py_buffer(values.view(np.uint8))]
    return pa.Array.from_buffers(pa.binary(), count, buffers)


def _writers(rows: Rows) -> pa.BinaryArray:
    both = rows.frame.tagged_writer
    writers = both.view(np.uint8).reshape(len(both), -1)[:, TAG_BYTES:]
    return _identifiers(rows, np.ascontiguousarray(writers).view("V16").reshape(-1))


def _masked(rows: Rows, values: NDArray[Any]) -> pa.Array:
    """The values; null where no envelope is."""
    return pa.array(values) if rows.decoded.all() else pa.array(values, mask=~rows.decoded)


def _names(kind: type[IntEnum]) -> pa.StringArray:
    return pa.array([member.name for member in kind], pa.string())


_ROLES: Final = _names(Role)
_KINDS: Final = _names(Kind)
_VERDICTS: Final = _names(Verdict)


def _message_types(rows: Rows) -> pa.StringArray:
    types = rows.frame.message_type
    if rows.decoded.all():
        return types
    return pa.array(np.where(rows.decoded, types.to_numpy(zero_copy_only=False), None), pa.string())


def _sequences(rows: Rows) -> pa.Int64Array:
    missing = rows.sequence < 0
    return pa.array(rows.sequence, mask=missing) if missing.any() else pa.array(rows.sequence)


def _partitions(rows: Rows) -> pa.Int32Array:
    return pa.array(np.full(len(rows.messages), rows.messages[0].partition(), np.int32))


def _timestamps(rows: Rows) -> pa.TimestampArray:
    milliseconds = np.array([message.timestamp()[1] for message in rows.messages], np.int64)
    mask = None
    if (milliseconds <= 0).any():
        mask = np.array([message.timestamp()[0] == TIMESTAMP_NOT_AVAILABLE for message in rows.messages])
    return pa.array(milliseconds * 1000, mask=mask).cast(TIMESTAMP)


TIMESTAMP: Final = pa.timestamp("us", tz="UTC")

COLUMNS: Final[dict[str, Column]] = {
    "conversation": Column("binary", pa.binary(), lambda rows: _identifiers(rows, rows.frame.conversation)),
    "role": Column("string", pa.string(), lambda rows: _ROLES.take(_masked(rows, rows.frame.role))),
    "sequence": Column("bigint", pa.int64(), _sequences),
    "message_type": Column("string", pa.string(), _message_types),
    "body": Column("binary", pa.binary(), lambda rows: pa.array(list(map(Message.value, rows.messages)), pa.binary())),
    "key": Column("binary", pa.binary(), lambda rows: pa.array(list(map(Message.key, rows.messages)), pa.binary())),
    "headers": Column("array<struct<key:string,value:binary>>", HEADERS_TYPE, lambda rows: rows.headers.others()),
    "partition": Column("int", pa.int32(), _partitions),
    "offset": Column("bigint", pa.int64(), lambda rows: pa.array(rows.offsets)),
    "timestamp": Column("timestamp", TIMESTAMP, _timestamps),
    "writer": Column("binary", pa.binary(), _writers),
    "counter": Column("bigint", pa.int64(), lambda rows: _masked(rows, rows.frame.counter)),
    "kind": Column("string", pa.string(), lambda rows: _KINDS.take(_masked(rows, rows.frame.kind))),
    "verdict": Column("string", pa.string(), lambda rows: _VERDICTS.take(pa.array(rows.verdict))),
}
"""Every column, in the order in which a reader gives them."""

ACCEPTED_COLUMNS: Final = tuple(name for name in COLUMNS if name != "verdict")
ALL_COLUMNS: Final = tuple(COLUMNS)
