"""Data-dependent routing by Spark: which messages are classified, and how the returned rows become decisions.

Only first messages of conversations that are not mapped yet go through the classifier; all other messages follow their
conversation. A decision then leads to the pure step of `konverse.routing.router`, in a transaction of the partition's
owner.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import reduce
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from konverse.bridge.broker import Broker
from konverse.bridge.catalog.lookups import bound
from konverse.bridge.router.contracts import TargetCheck
from konverse.dialog.transaction.received import Message
from konverse.dialog.transaction.transaction import Transaction
from konverse.routing.classifiers import Classifier
from konverse.routing.decisions import Decision, Unclassifiable
from konverse.routing.routed import Routed
from konverse.routing.router import Router
from konverse.routing.step import FORWARD, REDIRECT_TO
from konverse.schemas.catalog.table_entries import Target
from konverse.schemas.errors import GroupLocked, InvalidRoute, InvalidSettings, KonverseError
from konverse.spark.connection.case_rule import spelled
from konverse.spark.receive.answers import RECEIPT, column_of, receipts_of, rows_of
from konverse.spark.receive.mapping import (
    Batches,
    Function,
    QueueSource,
    by_frame,
    check_callable,
    checking,
    first_line,
    in_tasks,
)
from konverse.spark.receive.report_board import collected_reports, reporting

from .catalog_table import TO_SERVICE, CatalogTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DECISIONS: Final = pa.schema([
    pa.field(TO_SERVICE, pa.string()),
    pa.field("broker_instance", pa.string()),
    pa.field("reason", pa.string()),
])  # fmt: skip
"""Columns that a classifier returns beside `receipt`: `to_service`, and any of the others."""


class RoutingMode(NamedTuple):
    """How to route: `forward` or `redirect`, and the message type of a redirection."""

    mode: str = FORWARD
    redirect_type: str = REDIRECT_TO

    def check(self) -> None:
        """Raise InvalidSettings for a mode that does not exist, before anything is received."""
        Router(self.mode)


def route(
    spark: SparkSession,
    source: QueueSource,
    classifier: str | Classifier | Callable[[DataFrame], DataFrame],
    manner: RoutingMode,
    shown: Callable[[Routed], object],
) -> Routed:
    """Receive in this process. Spark classifies each batch; a ready classifier works in this process."""
    manner.check()
    if not isinstance(classifier, str | Classifier | CatalogTable):
        check_callable("route", classifier)
    transform = by_expression(spark, classifier) if isinstance(classifier, str) else classifier
    with source.begun().opened() as (broker, reader):
        if isinstance(transform, CatalogTable):
            transform = transform.bound(broker.catalog)
        function = transform if isinstance(transform, Classifier) else by_frame(spark, transform, _checked)
        task = Classification(broker, reader.queue.name, function, manner, checking(spark))
        return Batches(reader, task, shown).work(source.rows)


def route_arrow(
    spark: SparkSession,
    source: QueueSource,
    function: Function | Classifier,
    manner: RoutingMode,
    shown: Callable[[Routed], object] | None,
) -> Routed:
    """Receive and classify in tasks. `shown`: callback for the summed counts of all tasks, or None.

    Raises InvalidSettings for a routing table: Spark joins it, and a task has no session for that.
    """
    manner.check()
    if isinstance(function, CatalogTable):
        raise InvalidSettings(
            f"{function.title} is joined by Spark, which tasks cannot do: give it to `route`, or give `route_arrow` a "
            "ready classifier (konverse.routing.classifiers) or a function over Arrow batches"
        )
    if not isinstance(function, Classifier):
        check_callable("route_arrow", function, "; a SQL expression goes to `route`")
    with collected_reports(source, shown) as board:

        def work(mine: QueueSource) -> dict[str, Any]:
            with mine.opened() as (broker, reader), reporting(board) as tell:
                task = Classification(broker, reader.queue.name, function, manner)
                return asdict(Batches(reader, task, tell).work(mine.rows))

        done = reduce(Routed.plus, (Routed(**done) for done in in_tasks(spark, source, work)), Routed())
    if shown is not None:
        shown(done)
    return done


def by_expression(spark: SparkSession, expression: str) -> Callable[[DataFrame], DataFrame]:
    """A classifier from a SQL expression. InvalidSettings when Spark cannot plan it, or when it gives no string."""
    from pyspark.errors import PySparkException  # noqa: PLC0415  # tasks do without
    from pyspark.sql import functions as f  # noqa: PLC0415  # as above

    from konverse.spark.receive.answers import MESSAGES  # noqa: PLC0415  # as above

    def transform(frame: DataFrame) -> DataFrame:
        return frame.select(RECEIPT, f.expr(expression).alias(TO_SERVICE))

    try:
        kind = transform(spark.createDataFrame(MESSAGES.empty_table())).schema[TO_SERVICE].dataType.simpleString()
    except PySparkException as error:
        raise InvalidSettings(
            f"the classifier {expression!r} is not an expression over the columns of a message "
            f"({', '.join(MESSAGES.names)}): {first_line(error)}"
        ) from None
    if kind not in {"string", "void"}:
        raise InvalidSettings(f"the classifier {expression!r} gives {kind}, but the name of a service is a string")
    return transform


def _checked(frame: DataFrame) -> DataFrame:
    """The columns of a classifier's frame that a router reads. InvalidSettings when a required one is missing."""
    frame = spelled(frame, (RECEIPT, *DECISIONS.names))
    names = frame.columns
    for name in (RECEIPT, TO_SERVICE):
        if name not in names:
            raise InvalidSettings(_lacks(name, names))
    return frame.select(*(name for name in (RECEIPT, *DECISIONS.names) if name in names))


def _lacks(name: str, names: Sequence[str]) -> str:
    what = "to which message a row belongs" if name == RECEIPT else "the name of a service, or null"
    return f"the classifier's rows have no column {name!r} ({what}); their columns are {', '.join(names)}"


class Classification:
    """A router's work on the transactions of a batch; see `receive.mapping.MappingTask`."""

    nothing = Routed()
    failure = Routed(failed=1)

    def __init__(
        self,
        broker: Broker,
        queue: str,
        classify: Function | Classifier,
        manner: RoutingMode,
        check: Callable[[], object] = lambda: None,
    ) -> None:
        self._classify = bound(broker.network, classify)
        if isinstance(self._classify, Classifier):
            self._classify.targets()  # RoutingTableNotFound before anything is received
        resolve = TargetCheck(broker.network, queue, forwards=manner.mode == FORWARD)
        self._router = Router(manner.mode, redirect_type=manner.redirect_type, resolve=resolve)
        self._receipt = 0
        self.check = check

    def ask(self, transactions: Sequence[Transaction]) -> dict[Transaction, Decision | Exception | None]:
        """The classifier's decision on each transaction whose dialog is not mapped yet; None for the others."""
        found: dict[Transaction, Decision | Exception | None] = {}
        asked: dict[Transaction, Message] = {}
        for transaction in transactions:
            found[transaction] = None
            try:
                message = self._router.undecided(transaction)
            except KonverseError as error:
                found[transaction] = error
            else:
                if message is not None:
                    asked[transaction] = message
        if asked:
            found.update(zip(asked, self._decisions([*asked.values()]), strict=True))
        return found

    def _decisions(self, messages: Sequence[Message]) -> Sequence[Decision | Exception]:
        if isinstance(self._classify, Classifier):
            return [_asked(self._classify, message) for message in messages]
        first, self._receipt = self._receipt, self._receipt + len(messages)
        return read(self._classify(rows_of(messages, first)), first, messages)

    def apply(self, transaction: Transaction, found: Decision | None) -> Routed:
        """Take the router's step. GroupLocked when a dialog lost its mapping after `ask`; it is received again."""

        def decide(message: Message) -> Decision:
            if found is None:
                raise GroupLocked(f"conversation {message.dialog.id} has just lost its mapping; it is received again")
            return found

        return self._router.step(transaction, decide)


def _asked(classifier: Classifier, message: Message) -> Decision | Exception:
    """The decision of a ready classifier on one message, as in a router service."""
    try:
        return classifier(message)
    except KonverseError as error:
        return error


def read(answered: Any, first: int, messages: Sequence[Message]) -> list[Decision | Exception]:
    """The decision on each message; InvalidRoute for a message with several rows.

    A message without a row is unclassifiable, like a message whose row has a null, since inner joins leave out rows
    without a match. Raises InvalidSettings for rows of a wrong shape.
    """
    receipts = receipts_of(answered, first, len(messages))
    names = answered.schema.names
    if TO_SERVICE not in names:
        raise InvalidSettings(_lacks(TO_SERVICE, names))
    kind = answered.column(TO_SERVICE).type if names.count(TO_SERVICE) == 1 else pa.null()
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind)):
        raise InvalidSettings(f"column {TO_SERVICE!r} came back as {kind}, but the name of a service is a string")
    columns = [column_of(answered, field) for field in DECISIONS]
    rows: list[list[tuple[str | None, str | None, str | None]]] = [[] for _ in messages]
    for receipt, row in zip(receipts, zip(*columns, strict=True), strict=True):
        rows[receipt - first].append(row)
    return [_decision(some, message, at) for at, (some, message) in enumerate(zip(rows, messages, strict=True), first)]


def _decision(
    rows: Sequence[tuple[str | None, str | None, str | None]], message: Message, receipt: int
) -> Decision | Exception:
    if len(rows) > 1:
        services = ", ".join(repr(service) for service, _, _ in rows)
        return InvalidRoute(
            f"the classifier answered {len(rows)} times for receipt {receipt}, the first message of conversation "
            f"{message.dialog.id}: {services}. Let it give one row for each receipt; a table that it joins may have a "
            "key twice"
        )
    service, instance, reason = rows[0] if rows else (None, None, None)
    if service is None:
        return Unclassifiable(reason or "")
    if not service:
        return InvalidRoute(
            f"the classifier answered with an empty string for receipt {receipt}, the first message of conversation "
            f"{message.dialog.id}; column {TO_SERVICE!r} names a service, or is null for a message that cannot be "
            "classified"
        )
    return Target(service, instance)
