"""Queues as tables and streams of Spark. Importing it needs no Spark; the formats and functions do."""

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
    """What `format("konverse")` gives, for a frame of Spark's own Kafka source with `includeHeaders`, without a fold.

    One row for each record, with the columns of `format("konverse")` and `topic`. Duplicates are rows like others, and
    `sequence` is what the sender said, or null where it said nothing. Where a record carries no envelope, or one that
    cannot be read, what comes from it is null, `kind` among it. Raises InvalidSettings for a frame that lacks a column,
    and NotInstalled when the extra `spark` is missing.
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
    that one stays longer, until Kafka has given the dead one's partitions to another member of the group. So does a job
    that finds other members in the group when it begins: a driver that was killed is one for a while. Raises what
    `konverse.connect` raises, QueueNotFound, NotInstalled; InvalidSettings for rows of a wrong shape.
    """
    require()
    from konverse.bridge.runtime.settings import Settings  # noqa: PLC0415  # the Spark side costs nothing until it is used

    from .receive import mapping  # noqa: PLC0415  # after `require`

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
    from konverse.bridge.runtime.settings import Settings  # noqa: PLC0415  # as above

    from .receive import mapping  # noqa: PLC0415  # after `require`

    return mapping.process(spark, mapping.Source(Settings.load(**settings), queue, rows, timeout), transform)


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
    """Receive a queue, and pass its conversations on to the services that the content of their first messages asks for.

    `classifier` is a SQL expression over the columns of a message (`answers.MESSAGES`) that gives the name of a
    service, or a function from DataFrame to DataFrame that keeps `receipt` and adds `to_service` (as `routing_table`
    makes one), with `broker_instance` and `reason` if it likes. Or it is a ready one of `konverse.routing.classifiers`,
    which decides as it does in a router service. Null, or no row, is unclassifiable: the conversation
    ends with Error 1 and the `reason`. Only the first message of a conversation is classified, the others follow it.

    With `mode="forward"` the router begins a dialog to that service, under the same contract and from the service that
    received; replies come back on the first dialog, ends and Errors are passed on both ways. With "redirect" the
    initiator gets a message of type `redirect_type` that says where to go, and the dialog ends. All of it is in the
    commits of the queue's owners, so each happens once. Beware: those who end before they were redirected never go.

    What cannot be routed (a service that does not exist, a service of this queue, several answers, a type that the
    contract does not have, a classifier that raises) is rolled back, tried again, and suspended after five attempts;
    the others go on. `progress` shows a line of counts on stderr, or is called with them behind each batch. `rows`,
    `timeout` and `settings` are those of `process`. Raises InvalidSettings for an expression or rows of a wrong shape,
    and what `process` raises; nothing of that batch is done then.
    """
    require()
    from konverse.bridge.runtime.settings import Settings  # noqa: PLC0415  # as above
    from konverse.spark.receive.progress import showing  # noqa: PLC0415  # as above

    from .receive import mapping  # noqa: PLC0415  # after `require`
    from .routing import routing  # noqa: PLC0415  # after `require`

    source = mapping.Source(Settings.load(**settings), queue, rows, timeout)
    with showing(progress=progress) as shown:
        return routing.route(spark, source, classifier, routing.Manner(mode, redirect_type), shown)


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
    """As `route`, in tasks of Spark, one for each partition of the queue, as `map_arrow`: without a way by the driver.

    `function` gets Arrow batches of first messages and returns `receipt` and `to_service`, with `broker_instance` and
    `reason` if it likes; or it is a ready classifier, which then works in the tasks. `progress` has the counts of all
    tasks together, once a second and in a thread of its own, and the result in the end. They come by way of a consumer
    group whose name begins with the queue's own: where that is not allowed, or the targets of a task take more than
    4,000 bytes, they are missing until then.
    """
    require()
    from konverse.bridge.runtime.settings import Settings  # noqa: PLC0415  # as above
    from konverse.spark.receive.progress import showing  # noqa: PLC0415  # as above

    from .receive import mapping  # noqa: PLC0415  # after `require`
    from .routing import routing  # noqa: PLC0415  # after `require`

    source = mapping.Source(Settings.load(**settings), queue, rows, timeout)
    with showing(progress=progress) as shown:
        return routing.route_arrow(
            spark, source, function, routing.Manner(mode, redirect_type), shown if progress else None
        )


def routing_table(
    load: str | Callable[[], DataFrame], key: str, *, every: float = 0.0
) -> Callable[[DataFrame], DataFrame]:
    """A classifier for `route`: the service whose key a message has in a table, which may change meanwhile.

    `load` gives the table: columns `key` and `to_service`, both strings, and `broker_instance` if there are other
    databases. It is called again for each batch, or after `every` seconds, and read as a whole: a batch is classified
    by one version of it, which is broadcast. `key` is a SQL expression over the columns of a message. A message
    without a key in the table is unclassifiable. When a table cannot be read, or has a key twice, the version before
    stays in use and the log says so; without one the work ends with InvalidSettings. At most 1,000,000 rows.

    In place of `load` may stand the name of a routing table of the catalog (`broker.create_routing_table`): a batch has
    its version of when the batch begins, with its default, and `every` means nothing.
    """
    require()
    if isinstance(load, str):
        from konverse.spark.routing.catalog_table import CatalogTable  # noqa: PLC0415  # as below

        return CatalogTable(load, key)
    from konverse.spark.routing.frame_table import RoutingTable  # noqa: PLC0415  # after `require`

    return RoutingTable(load, key, every)


def typed(frame: DataFrame, message_type: str, options: Mapping[str, str], *, root: str | None = None) -> DataFrame:
    """The rows of one message type, with the column `value`: their bodies, by the type's schema in the catalog.

    `options` are those by which the frame was read: they say where the catalog is. The schema is that of now, a JSON
    Schema, an Avro schema or an XML schema collection; `root` names the document's element where a collection has
    several. `fault` is null, or says why a body has no value. The frame has the columns `message_type` and `body`.

    Raises InvalidSettings for a type without a schema, and for a schema that is no type of Spark's, by the part of it;
    InvalidSchema for one that cannot be read here, MessageTypeNotFound, KafkaUnavailable, ValidatorUnavailable when the
    extra `validation` is missing, and NotInstalled when the extra `spark` is.
    """
    require()
    from konverse.spark.bodies.columns import typed_rows  # noqa: PLC0415  # after `require`

    return typed_rows(frame, message_type, options, root)
