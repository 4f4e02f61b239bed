"""Queues as tables and streams of Spark. Importing it needs no Spark; the formats and functions do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from .requirements import require

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from .answers import Done


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


def map_arrow(
    spark: SparkSession,
    queue: str,
    function: Callable[[pa.RecordBatch], pa.RecordBatch | pa.Table],
    *,
    rows: int = 10_000,
    timeout: float | None = 10.0,
    **settings: Any,
) -> Done:
    """Receive a queue in tasks of Spark, up to one for each of its partitions, with a function over Arrow batches.

    `function` gets up to about `rows` messages (columns: `answers.MESSAGES`) and returns what is to be done (columns:
    `answers.ANSWERS`): for a `receipt` a reply of `message_type` with `body`, an `end`, or an `error` with a
    `description`. All of that and what was received are one commit for each conversation group, or nothing of it. Where
    the function raises, halves are tried until it is known on which group; that is rolled back, and is suspended after
    five attempts. Where the answers to one group do not fit into a commit, the first ones are taken and the other
    messages come again. Whoever has heard EndDialog or an Error ends the conversation, too, unless the function did.

    There are as many tasks as partitions, but no more than Spark has cores when it begins.

    Returns what was done when nothing has come for `timeout` seconds; with None it goes on until the job is cancelled.
    `settings` are those of `konverse.connect`. A task that dies is made again by Spark where its settings allow it;
    that one stays longer, until Kafka has given the dead one's partitions to another member of the group. Raises what
    `konverse.connect` raises, QueueNotFound, NotInstalled; InvalidSettings for rows of a wrong shape.
    """
    require()
    from konverse.bridge.settings import Settings  # noqa: PLC0415  # the Spark side costs nothing until it is used

    from . import mapping  # noqa: PLC0415  # after `require`

    return mapping.map_arrow(spark, mapping.Source(Settings.load(**settings), queue, rows, timeout), function)


def process(
    spark: SparkSession,
    queue: str,
    transform: Callable[[DataFrame], DataFrame],
    *,
    rows: int = 100_000,
    timeout: float | None = 10.0,
    **settings: Any,
) -> Done:
    """Receive a queue, and have a function from DataFrame to DataFrame answer: joins, SQL, whatever Spark can do.

    As `map_arrow`, of which rows, columns, `timeout`, failures and errors are the same. The messages are received by
    this process, the driver: Spark does the work on them, and what it answers comes back here. The column `receipt` has
    to stay; `transform` may be called again with the same messages, and only what it says the last time counts.
    """
    require()
    from konverse.bridge.settings import Settings  # noqa: PLC0415  # as above

    from . import mapping  # noqa: PLC0415  # after `require`

    return mapping.process(spark, mapping.Source(Settings.load(**settings), queue, rows, timeout), transform)


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
