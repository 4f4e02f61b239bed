"""Spark reads the queues of konverse, writes to them, and receives from them.

    reading     `spark.read` and `spark.readStream` with `format("konverse")`: a row for each message
    writing     `df.write` and `df.writeStream` with `format("konverse")`: a message for each row
    receiving   `map_arrow`, `process`, `route`, `route_arrow`: RECEIVE in bulk, answered or routed by a function

Spark drives reading and writing. It finds `source.KonverseDataSource` through the module `pyspark_konverse`, plans the
query in the driver, and calls `read` or `write` in tasks. The functions below drive receiving.

Four laws hold:

1. Spark may execute a task twice, at once or after a failure, and each execution may produce other rows. The logs
   alone decide which rows are valid: a row that a task wrote is void until its batch is decided (protocol.md 9b).
2. Reading receives nothing. The queue's own handlers get every message, whatever Spark has read. A stream only
   registers as a reader, so that truncation spares the records that it has not read.
3. A frame shows a record as accepted if the owner's fold accepts it, as far as writers' counters decide. The result
   does not depend on how a log is cut into tasks and micro-batches.
4. Received messages and the answers to them are in one commit of the partition's owner. A task that dies has answered
   a conversation group completely or not at all.

What must never happen: a write that reports success although its rows are not received, or a row received twice.
A read whose records were deleted fails, or warns where an option allows the loss.

Importing this module needs no Spark. Every function calls `require` before it imports a module that needs pyspark, so
that a missing package is reported as NotInstalled. No other package of konverse but `deploy` may import this one.

    source        the format `konverse`: options to readers and writers
    session       a local Spark session, and how Spark finds the format
    daemon        the process from which Spark forks Python workers
    verifier_job  `konverse verify --spark`
    connection    options, Kafka clients, and required packages
    log           the data log and the journal of a partition, column by column
    read          batch reads and streams
    write         writes and streaming writes
    receive       receiving in bulk
    routing       data-dependent routing in bulk
    bodies        bodies as columns, by their schema
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from konverse.spark.connection.requirements import require

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from konverse.routing.classifiers import Classifier
    from konverse.routing.routed import Routed
    from konverse.spark.receive.answers import Done


def decode(records: DataFrame) -> DataFrame:
    """Decode the records of a frame that Spark's own Kafka source has read with `includeHeaders`.

    Returns one row for each record, with `topic` and the columns of `format("konverse")` except `accepted_time`.
    Nothing is judged: duplicates are rows like others, and `sequence` is the sender's own number, or null where it
    gave none. If a record has no envelope, or one that cannot be read, all columns taken from the envelope are null,
    including `kind`. Raises InvalidSettings for a frame that lacks a column, and NotInstalled when the extra `spark`
    is missing.
    """
    require()
    from konverse.spark.read.kafka_frames import decoded  # noqa: PLC0415  # after `require`

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
    """Receive a queue in tasks of Spark, and answer with a function over Arrow batches.

    `function` gets up to about `rows` messages (columns: `answers.MESSAGES`) and returns rows of answers (columns:
    `answers.ANSWERS`). A row names a `receipt` and holds a reply of `message_type` with `body`, an `end`, or an `error`
    with a `description`. For each conversation group, the received messages and all answers are one commit, or none.

    If the function raises, it is called on halves of the batch until the group on which it fails is known. That group
    is rolled back and, after five attempts, suspended; the others are answered. If the answers to one group are too
    large for a commit, the first ones are committed and the messages after them are received again. A conversation on
    which EndDialog or an Error was received is ended, unless the function has ended it.

    The job has one task for each partition of the queue, but no more than Spark has cores when it begins.

    Returns the counts of the work when no message has come for `timeout` seconds; with None the job runs until it is
    cancelled. `settings` are those of `konverse.connect`. A task that dies is executed again, as often as Spark's
    settings allow. The new attempt waits longer by one session timeout, until Kafka has moved the partitions of the
    dead one. A job that finds members in the consumer group when it begins also waits longer, since a driver that was
    killed remains a member for a while. Raises the errors of `konverse.connect`, QueueNotFound, NotInstalled;
    InvalidSettings for rows of a wrong shape.
    """
    require()
    from konverse.bridge.runtime.settings import Settings  # noqa: PLC0415  # the Spark side costs nothing until it is used

    from .receive import mapping  # noqa: PLC0415  # after `require`

    return mapping.map_arrow(spark, mapping.QueueSource(Settings.load(**settings), queue, rows, timeout), function)


def process(
    spark: SparkSession,
    queue: str,
    transform: Callable[[DataFrame], DataFrame],
    *,
    rows: int = 100_000,
    timeout: float | None = 10.0,
    **settings: Any,
) -> Done:
    """Receive a queue in the driver, and answer with a function from DataFrame to DataFrame.

    `rows`, columns, `timeout`, failures and errors are those of `map_arrow`. This process, the driver, receives the
    messages, Spark runs `transform` on them, and the answers come back to the driver. `transform` must keep the column
    `receipt`. It may be called again with the same messages; only its last result counts.
    """
    require()
    from konverse.bridge.runtime.settings import Settings  # noqa: PLC0415  # as above

    from .receive import mapping  # noqa: PLC0415  # after `require`

    return mapping.process(spark, mapping.QueueSource(Settings.load(**settings), queue, rows, timeout), transform)


def route(  # noqa: PLR0913  # the ways to route
    spark: SparkSession,
    queue: str,
    classifier: str | Classifier | Callable[[DataFrame], DataFrame],
    *,
    mode: str = "forward",
    redirect_type: str = "RedirectTo",
    progress: bool | Callable[[Routed], object] = False,
    rows: int = 100_000,
    timeout: float | None = 10.0,
    **settings: Any,
) -> Routed:
    """Receive a queue, and pass each conversation on to the service that its first message asks for.

    `classifier` is one of three things: a SQL expression over the columns of a message (`answers.MESSAGES`) that gives
    the name of a service; a function from DataFrame to DataFrame, such as `routing_table` makes, that keeps `receipt`
    and adds `to_service`, optionally `broker_instance` and `reason`; or a ready classifier of
    `konverse.routing.classifiers`, which decides as in a router service. Only the first message of a conversation is
    classified; the others follow it. A null, or no row, means unclassifiable: the conversation ends with Error 1 and
    the `reason`.

    With `mode="forward"` the router begins a dialog to that service, under the same contract and from the service that
    received. Replies come back on the first dialog; ends and Errors are passed on both ways. With `mode="redirect"` the
    initiator gets a message of type `redirect_type` that names the service, and the dialog ends. All of this is in the
    commits of the queue's owners, so it happens once. Beware: an initiator that ends its dialog before it was
    redirected cannot be redirected, and its messages are dropped.

    A conversation that cannot be routed is rolled back, tried again and, after five attempts, suspended; the others go
    on. Reasons are a service that does not exist, a service of this queue, several answers, a type that the contract
    does not have, and a classifier that raises. `progress` shows a line of counts on stderr, or is called with the
    counts after each batch. `rows`, `timeout` and `settings` are those of `process`. Raises InvalidSettings for an
    expression or rows of a wrong shape, and the errors of `process`; nothing of that batch is done then.
    """
    require()
    from konverse.bridge.runtime.settings import Settings  # noqa: PLC0415  # as above
    from konverse.spark.receive.progress import showing  # noqa: PLC0415  # as above

    from .receive import mapping  # noqa: PLC0415  # after `require`
    from .routing import routing  # noqa: PLC0415  # after `require`

    source = mapping.QueueSource(Settings.load(**settings), queue, rows, timeout)
    with showing(progress=progress) as shown:
        return routing.route(spark, source, classifier, routing.RoutingMode(mode, redirect_type), shown)


def route_arrow(  # noqa: PLR0913  # as above
    spark: SparkSession,
    queue: str,
    function: Classifier | Callable[[pa.RecordBatch], pa.RecordBatch | pa.Table],
    *,
    mode: str = "forward",
    redirect_type: str = "RedirectTo",
    progress: bool | Callable[[Routed], object] = False,
    rows: int = 10_000,
    timeout: float | None = 10.0,
    **settings: Any,
) -> Routed:
    """Route as `route` does, in tasks of Spark like `map_arrow`: no message passes through the driver.

    `function` gets Arrow batches of first messages and returns `receipt` and `to_service`, optionally `broker_instance`
    and `reason`; or it is a ready classifier, which then works in the tasks. `progress` gets the counts of all tasks
    together, once a second and in a thread of its own, and the result at the end. Tasks report their counts through a
    consumer group whose name begins with that of the queue's own group. Where Kafka denies this, only the result has
    counts; counts of a task that take more than 4,000 bytes are reported without `targets`.
    """
    require()
    from konverse.bridge.runtime.settings import Settings  # noqa: PLC0415  # as above
    from konverse.spark.receive.progress import showing  # noqa: PLC0415  # as above

    from .receive import mapping  # noqa: PLC0415  # after `require`
    from .routing import routing  # noqa: PLC0415  # after `require`

    source = mapping.QueueSource(Settings.load(**settings), queue, rows, timeout)
    with showing(progress=progress) as shown:
        return routing.route_arrow(
            spark, source, function, routing.RoutingMode(mode, redirect_type), shown if progress else None
        )


def routing_table(name: str, key: str) -> Callable[[DataFrame], DataFrame]:
    """A classifier for `route` that looks up the message's key in a routing table of the catalog.

    `name` is the name of the table (`broker.admin.create_routing_table`), `key` a SQL expression over the columns of a
    message. Spark joins the table to the messages. The table may change while the job runs: a batch uses the version,
    and the default, that the catalog has when the batch begins. A message whose key is not in the table is
    unclassifiable. `route` raises RoutingTableNotFound. To join a table that is not in the catalog, give `route` a
    function from DataFrame to DataFrame.
    """
    require()
    from konverse.spark.routing.catalog_table import CatalogTable  # noqa: PLC0415  # after `require`

    return CatalogTable(name, key)


def typed(frame: DataFrame, message_type: str, options: Mapping[str, str], *, root: str | None = None) -> DataFrame:
    """The rows of one message type, with their bodies parsed into the column `value` by the type's schema.

    `frame` must have the columns `message_type` and `body`. `options` are the options with which it was read; they name
    the catalog. The schema is the one that the catalog has now: a JSON Schema, an Avro schema or an XML schema
    collection. `root` names the document's root element where a collection has several. The column `fault` is null, or
    says why a body has no value.

    Raises InvalidSettings for a type without a schema, and for a schema that Spark has no type for, naming the part of
    it; InvalidSchema for a schema that cannot be read here; MessageTypeNotFound, KafkaUnavailable; ValidatorUnavailable
    when the extra `validation` is missing, and NotInstalled when the extra `spark` is.
    """
    require()
    from konverse.spark.bodies.columns import typed_rows  # noqa: PLC0415  # after `require`

    return typed_rows(frame, message_type, options, root)
