"""Queues as tables and streams of Spark. Importing it needs no Spark; the formats and functions do."""

from __future__ import annotations

from collections.abc import Mapping
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


def typed(frame: DataFrame, message_type: str, options: Mapping[str, str], *, root: str | None = None) -> DataFrame:
    """The rows of one message type, with the column `value`: their bodies, by the type's schema in the catalog.

    `options` are those by which the frame was read: they say where the catalog is. The schema is that of now, a JSON
    Schema, an Avro schema or an XML schema collection; `root` names the document's element where a collection has
    several. `fault` is null, or says why a body has no value. The frame has the columns `message_type` and `body`.

    Raises InvalidSettings for a type without a schema, and for a schema that is no type of Spark's, by the part of it;
    MessageTypeNotFound, KafkaUnavailable, ValidatorUnavailable when the extra `validation` is missing, and NotInstalled
    when the extra `spark` is.
    """
    require()
    from .bodies import typed_rows  # noqa: PLC0415  # after `require`

    return typed_rows(frame, message_type, options, root)
