"""Queues as tables and streams of Spark. Importing it needs no Spark; the formats and functions do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .requirements import require

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def decode(records: DataFrame) -> DataFrame:
    """What `format("konverse")` gives, for a frame of Spark's own Kafka source with `includeHeaders`, without a fold.

    One row for each record, with the columns of `format("konverse")` and `topic`. Duplicates are rows like others, and
    `sequence` is what the sender said, or null where it said nothing. Where a record carries no envelope, or one that
    cannot be read, what comes from it is null, `kind` among it. Raises InvalidSettings for a frame that lacks a column,
    and NotInstalled when the extra `spark` is missing.
    """
    require()
    from .decoding import decoded  # noqa: PLC0415  # after `require`

    return decoded(records)
