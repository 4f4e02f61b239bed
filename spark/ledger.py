"""What a log holds of each conversation, as a table: one row per conversation and side."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql

from konverse.schemas.errors import InvalidSettings
from konverse.schemas.records import Kind

from .acceptance import SEQUENCED
from .case_rule import spelled
from .ingest import Verdict

NEEDED: Final = ("conversation", "role", "sequence", "body", "timestamp", "kind")
"""Columns without which there is no ledger."""


def conversations(messages: DataFrame) -> DataFrame:
    """The ledger of messages that were read with `format("konverse")`.

    One row for each conversation and role of the sender: `messages`, `bytes` of their bodies, `first_timestamp`,
    `last_timestamp`, `first_sequence`, `last_sequence`, `ended` (an END or ERROR was accepted), and `gaps`, the
    sequence numbers that are missing between the first and the last: 0 unless the frame was cut. Read with `include` =
    `all`, the frame has verdicts: only accepted records count, and `duplicates` says how many were not needed.
    InvalidSettings names a column that is missing.
    """
    messages = spelled(messages, (*NEEDED, "verdict"))
    missing = [name for name in NEEDED if name not in messages.columns]
    if missing:
        raise InvalidSettings(f"the frame lacks the column {missing[0]!r}; read it with format('konverse')")
    judged = "verdict" in messages.columns
    accepted = sql.col("verdict") == Verdict.accepted.name if judged else sql.expr("true")
    duplicate = sql.col("verdict") == Verdict.duplicate.name if judged else sql.expr("false")
    sequenced = messages.where(sql.col("kind").isin([kind.name for kind in SEQUENCED])).where(accepted | duplicate)

    def of_accepted(value: Column) -> Column:
        return sql.when(accepted, value)

    sequence = of_accepted(sql.col("sequence"))
    is_end = sql.col("kind").isin([Kind.END.name, Kind.ERROR.name])
    columns = [
        sql.count(of_accepted(sql.when(sql.col("kind") == Kind.MESSAGE.name, 1))).alias("messages"),
        sql.coalesce(sql.sum(of_accepted(sql.octet_length("body"))), sql.lit(0)).alias("bytes"),
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
