"""The columns of a message, and how each is made from records. Only the columns of the schema are made."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from functools import cache
from typing import Any, Final, Generic, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message
from numpy.typing import NDArray

from konverse.schemas.identifiers import Role
from konverse.schemas.wire.records import Kind
from konverse.spark.connection.clients import fold, queue_of
from konverse.spark.connection.settings import ConnectionSettings

from .acceptance import IS_SEQUENCED
from .frame import TAG_BYTES, Frame
from .headers import HEADERS_TYPE
from .ingest import UNKNOWN, IngestedRows, RecordVerdict

Of = TypeVar("Of")
HANDLE_BYTES: Final = 17
"""16 bytes of the conversation, and one byte of the role."""
TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
GROUP: Final = "conversation_group"
VERDICT: Final = "verdict"


class Column(NamedTuple, Generic[Of]):
    """A column: its type, and the function that makes it."""

    sql: str
    """Type in Spark."""
    arrow: Any
    """Type in Arrow."""
    make: Callable[[Of], Any]


def batch(rows: IngestedRows, schema: pa.Schema, keep: NDArray[np.bool_]) -> pa.RecordBatch | None:
    """The rows that are kept, as the columns of `schema`; None when there are none."""
    if not keep.any():
        return None
    made = pa.RecordBatch.from_arrays([COLUMNS[name.lower()].make(rows) for name in schema.names], schema=schema)
    return made if keep.all() else made.filter(pa.array(keep))


def handle(conversation: bytes, role: Role) -> bytes:
    """The handle of one side of a conversation."""
    return conversation + bytes((role,))


def handles(frame: Frame, decoded: NDArray[np.bool_]) -> pa.BinaryArray:
    """The handle of the side that receives each record; null for records that no application receives."""
    sides = np.empty((len(frame.role), HANDLE_BYTES), np.uint8)
    sides[:, :-1] = frame.conversation.view(np.uint8).reshape(len(sides), HANDLE_BYTES - 1)
    sides[:, -1] = frame.role ^ 1  # the receiver has the other role
    return identifiers(sides.view(f"V{HANDLE_BYTES}").reshape(-1), decoded & IS_SEQUENCED[frame.kind])


def groups(rows: IngestedRows) -> pa.BinaryArray:
    """The group of the side that receives each record; null without a receiver, or when the side is gone."""
    assert rows.groups is not None, "groups are read when the column is requested"
    return pa.array(map(rows.groups.get, handles(rows.frame, rows.decoded).to_pylist()), pa.binary())


def identifiers(values: NDArray[np.void], decoded: NDArray[np.bool_]) -> pa.BinaryArray:
    """The values as binary; null for rows without an envelope."""
    count, width = len(values), values.itemsize
    borders = np.arange(0, width * count + 1, width).astype(np.int32)
    valid = None if decoded.all() else pa.py_buffer(np.packbits(decoded, bitorder="little"))
    buffers = [valid, pa.py_buffer(borders), pa.py_buffer(values.view(np.uint8))]
    return pa.Array.from_buffers(pa.binary(), count, buffers)


def writers(frame: Frame, decoded: NDArray[np.bool_]) -> pa.BinaryArray:
    """The writers; null for rows without an envelope."""
    both = frame.tagged_writer
    alone = both.view(np.uint8).reshape(len(both), -1)[:, TAG_BYTES:]
    return identifiers(np.ascontiguousarray(alone).view("V16").reshape(-1), decoded)


def masked(values: NDArray[Any], decoded: NDArray[np.bool_]) -> pa.Array:
    """The values; null for rows without an envelope."""
    return pa.array(values) if decoded.all() else pa.array(values, mask=~decoded)


@cache
def names_of(kind: type[IntEnum]) -> pa.StringArray:
    """The names of the members, by number.

    Created with the first rows: pyarrow imports pandas for its first array, which takes half a second, and a process
    that only plans a query needs no array.
    """
    return pa.array([member.name for member in kind], pa.string())


def message_types(types: pa.StringArray, decoded: NDArray[np.bool_]) -> pa.StringArray:
    """The types; null for rows without an envelope."""
    if decoded.all():
        return types
    return pa.array(np.where(decoded, types.to_numpy(zero_copy_only=False), None), pa.string())


def _counters(rows: IngestedRows) -> pa.Int64Array:
    """The counters; null for rows without an envelope, and for accepted rows of batches whose counter is unknown."""
    known = rows.decoded if rows.decided_at is None else rows.frame.counter != UNKNOWN
    return masked(rows.frame.counter, known)


def _partitions(rows: IngestedRows) -> pa.Int32Array:
    return pa.array(np.full(len(rows.messages), rows.messages[0].partition(), np.int32))


def _timestamps(rows: IngestedRows) -> pa.TimestampArray:
    return _times(*_written(rows))


def _accepted_times(rows: IngestedRows) -> pa.TimestampArray:
    """The time at which each row was accepted: Kafka's time of the record, or of the decision about its batch."""
    if rows.decided_at is None:
        milliseconds, unknown = _written(rows)
    else:
        milliseconds = np.full(len(rows.messages), rows.decided_ms)
        unknown = milliseconds < 0
    return _times(milliseconds, unknown | ~np.isin(rows.verdict, (RecordVerdict.accepted, RecordVerdict.control)))


def _written(rows: IngestedRows) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Kafka's time of each record in milliseconds, and a mask of the records without one."""
    milliseconds = np.array([message.timestamp()[1] for message in rows.messages], np.int64)
    unknown = milliseconds <= 0
    for row in np.flatnonzero(unknown).tolist():
        unknown[row] = rows.messages[row].timestamp()[0] == TIMESTAMP_NOT_AVAILABLE
    return milliseconds, unknown


def _times(milliseconds: NDArray[np.int64], unknown: NDArray[np.bool_]) -> pa.TimestampArray:
    return pa.array(milliseconds * 1000, mask=unknown if unknown.any() else None).cast(TIMESTAMP)


COLUMNS: Final[dict[str, Column[IngestedRows]]] = {
    "conversation": Column("binary", pa.binary(), lambda rows: identifiers(rows.frame.conversation, rows.decoded)),
    "handle": Column("binary", pa.binary(), lambda rows: handles(rows.frame, rows.decoded)),
    GROUP: Column("binary", pa.binary(), groups),
    "role": Column("string", pa.string(), lambda rows: names_of(Role).take(masked(rows.frame.role, rows.decoded))),
    "sequence": Column("bigint", pa.int64(), lambda rows: masked(rows.sequence, rows.sequence >= 0)),
    "message_type": Column("string", pa.string(), lambda rows: message_types(rows.frame.message_type, rows.decoded)),
    "body": Column("binary", pa.binary(), lambda rows: pa.array(list(map(Message.value, rows.messages)), pa.binary())),
    "key": Column("binary", pa.binary(), lambda rows: pa.array(list(map(Message.key, rows.messages)), pa.binary())),
    "headers": Column("array<struct<key:string,value:binary>>", HEADERS_TYPE, lambda rows: rows.headers.others()),
    "partition": Column("int", pa.int32(), _partitions),
    "offset": Column("bigint", pa.int64(), lambda rows: pa.array(rows.offsets)),
    "timestamp": Column("timestamp", TIMESTAMP, _timestamps),
    "accepted_time": Column("timestamp", TIMESTAMP, _accepted_times),
    "writer": Column("binary", pa.binary(), lambda rows: writers(rows.frame, rows.decoded)),
    "counter": Column("bigint", pa.int64(), _counters),
    "kind": Column("string", pa.string(), lambda rows: names_of(Kind).take(masked(rows.frame.kind, rows.decoded))),
    VERDICT: Column("string", pa.string(), lambda rows: names_of(RecordVerdict).take(pa.array(rows.verdict))),
}
"""Every column, in the order in which a reader gives them."""
ACCEPTED_COLUMNS: Final = tuple(name for name in COLUMNS if name not in (GROUP, VERDICT))
"""Columns that a read gives without `include`."""


def groups_of(settings: ConnectionSettings, partition: int) -> dict[bytes, bytes]:
    """Handle -> conversation group of each side now in a partition. Raises the errors of `queue_of` and `fold`."""
    sides = fold(settings, queue_of(settings), partition).live()
    return {handle(side.conversation, side.role): side.group_id for side in sides}
