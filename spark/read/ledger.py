"""Counts the records of a log by conversation and side, column by column.

`RecordCounter` counts a partition in a task, for mode `conversations`. `conversations` makes a ledger of a frame of
messages in Spark, one row for each conversation and role of the sender.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql

from konverse.schemas.errors import InvalidSettings
from konverse.schemas.identifiers import Role
from konverse.schemas.wire.records import Kind
from konverse.spark.connection.case_rule import spelled
from konverse.spark.log.acceptance import IS_SEQUENCED, SEQUENCED
from konverse.spark.log.columns import identifiers
from konverse.spark.log.ingest import IngestedRows, RecordVerdict

PARTS_MAX: Final = 64
"""Chunks whose counts are kept apart before they are added up."""
_SUMMED: Final = [
    ("messages", "sum"),
    ("bytes", "sum"),
    ("duplicates", "sum"),
    ("first_ms", "min"),
    ("last_ms", "max"),
]
_KEY: Final = ["conversation", "role"]
NEEDED: Final = ("conversation", "role", "sequence", "body", "timestamp", "kind")
"""Columns that a ledger needs."""


class SideCounts(NamedTuple):
    """Counts of the records for one side."""

    messages: int
    bytes: int
    duplicates: int
    first_ms: int | None
    last_ms: int | None


NOTHING: Final = SideCounts(0, 0, 0, None, None)


class RecordCounter:
    """Counts the records of one partition, chunk by chunk."""

    def __init__(self) -> None:
        self._parts: list[pa.Table] = []

    def add(self, rows: IngestedRows) -> None:
        """Count the records of a chunk that an application receives, contested ones too, and their duplicates."""
        sequenced = IS_SEQUENCED[rows.frame.kind]
        accepted = (rows.sequence >= 0) | ((rows.verdict == RecordVerdict.contested) & sequenced)
        duplicate = (rows.verdict == RecordVerdict.duplicate) & sequenced
        keep = accepted | duplicate
        if not keep.any():
            return
        is_message = accepted & (rows.frame.kind == Kind.MESSAGE)
        sizes = np.fromiter((len(message.value() or b"") for message in rows.messages), np.int64, len(keep))
        times = pa.array(np.array([message.timestamp()[1] for message in rows.messages], np.int64), mask=~accepted)
        table = pa.table(
            {
                "conversation": identifiers(rows.frame.conversation, rows.decoded),
                "role": rows.frame.role,
                "messages": is_message.astype(np.int64),
                "bytes": np.where(is_message, sizes, 0),
                "duplicates": duplicate.astype(np.int64),
                "first_ms": times,
                "last_ms": times,
            }
        )
        self._parts.append(_summed(table.filter(pa.array(keep))))
        if len(self._parts) > PARTS_MAX:
            self._parts = [_summed(pa.concat_tables(self._parts))]

    def result(self) -> dict[tuple[bytes, Role], SideCounts]:
        """Counts by conversation and receiving side."""
        if not self._parts:
            return {}
        table = _summed(pa.concat_tables(self._parts))
        conversations, senders = (table.column(name).to_pylist() for name in _KEY)
        rows = zip(*(table.column(name).to_pylist() for name, _ in _SUMMED), strict=True)
        return {
            (conversation, Role(1 - sender)): SideCounts(*counts)
            for conversation, sender, counts in zip(conversations, senders, rows, strict=True)
        }


def _summed(table: pa.Table) -> pa.Table:
    grouped = table.group_by(_KEY).aggregate(_SUMMED)
    return grouped.rename_columns({f"{name}_{function}": name for name, function in _SUMMED})


def conversations(messages: DataFrame) -> DataFrame:
    """The ledger of messages that were read with `format("konverse")`.

    One row for each conversation and role of the sender: `messages`, `bytes` of their bodies, `first_timestamp`,
    `last_timestamp`, `first_sequence`, `last_sequence`, `ended` (an END or ERROR was accepted), and `gaps`, the count
    of sequence numbers missing between the first and the last: 0 unless the frame was cut. A frame that was read with
    `include` = `all` has verdicts: then only accepted records count, and a column `duplicates` counts the duplicates.
    InvalidSettings names a column that is missing.
    """
    messages = spelled(messages, (*NEEDED, "verdict"))
    missing = [name for name in NEEDED if name not in messages.columns]
    if missing:
        raise InvalidSettings(f"the frame lacks the column {missing[0]!r}; read it with format('konverse')")
    judged = "verdict" in messages.columns
    accepted = sql.col("verdict") == RecordVerdict.accepted.name if judged else sql.expr("true")
    duplicate = sql.col("verdict") == RecordVerdict.duplicate.name if judged else sql.expr("false")
    sequenced = messages.where(sql.col("kind").isin([kind.name for kind in SEQUENCED])).where(accepted | duplicate)

    def of_accepted(value: Column) -> Column:
        return sql.when(accepted, value)

    sequence, is_message = of_accepted(sql.col("sequence")), sql.col("kind") == Kind.MESSAGE.name
    is_end = sql.col("kind").isin([Kind.END.name, Kind.ERROR.name])
    columns = [
        sql.count(of_accepted(sql.when(is_message, 1))).alias("messages"),
        sql.coalesce(sql.sum(of_accepted(sql.when(is_message, sql.octet_length("body")))), sql.lit(0)).alias("bytes"),
        sql.min(of_accepted(sql.col("timestamp"))).alias("first_timestamp"),
        sql.max(of_accepted(sql.col("timestamp"))).alias("last_timestamp"),
        sql.min(sequence).alias("first_sequence"),
        sql.max(sequence).alias("last_sequence"),
        sql.coalesce(sql.bool_or(of_accepted(is_end)), sql.expr("false")).alias("ended"),
        sql.coalesce(
            sql.greatest(sql.max(sequence) - sql.min(sequence) + 1 - sql.count(sequence), sql.lit(0)), sql.lit(0)
        ).alias("gaps"),
    ]
    if judged:
        columns.append(sql.count(sql.when(duplicate, 1)).alias("duplicates"))
    return sequenced.groupBy("conversation", "role").agg(*columns)
