"""Receives a queue in batches, in tasks of Spark or in the driver, and commits a function's answers with the messages.

The messages of a batch are locked while the function works. Its answers are staged together with the receives, and join
a commit of the partition's owner. A process that dies before that leaves the messages unchanged, and only the
function's next answer takes effect.
"""

from __future__ import annotations

import json
import logging
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Protocol, Self, TypeVar

import pyarrow as pa
from confluent_kafka import KafkaException
from pyspark import TaskContext
from pyspark.errors import PySparkException

from konverse.bridge.broker import Broker
from konverse.bridge.kafka.refusals import Need
from konverse.bridge.kafka.topics import SESSION_TIMEOUT_S
from konverse.bridge.reader.handlers import HandlerRunner
from konverse.bridge.reader.reader import Reader
from konverse.bridge.runtime.settings import Settings
from konverse.bridge.runtime.threads import repeating
from konverse.dialog.transaction.transaction import Transaction
from konverse.schemas import errors
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.errors import InvalidSettings, KonverseError, SteppedDown, TransactionTooLarge
from konverse.schemas.identifiers import consumer_group, data_topic
from konverse.schemas.limits import SPARK_BATCH_BYTES_MAX
from konverse.spark.connection.case_rule import spelled
from konverse.spark.connection.clients import kafka_of

from .answers import ANSWERS, RECEIPT, AnsweredTransaction, Done, apply, read, rows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log: Final = logging.getLogger("konverse.spark")

Function = Callable[[pa.RecordBatch], Any]

GROUPS_PER_COMMIT: Final = 1_000
BEAT_S: Final = 0.01
"""Interval at which the reader commits, reads ahead and keeps its partitions while the function works."""

_ROWS_OF_ALL: Final = 65_536
"""Rows enough for Spark to divide a range among all cores."""


class Counted(Protocol):
    """Counts of the work."""

    def plus(self, other: Self) -> Self:
        """The sum of both."""
        ...


Counts = TypeVar("Counts", bound=Counted)


class MappingTask(Protocol[Counts]):
    """The work on the transactions of a batch: `ask` about all of them together, then `apply` to each."""

    nothing: Counts
    failure: Counts
    """Counts of a transaction that is rolled back."""

    def ask(self, transactions: Sequence[Transaction]) -> Mapping[Transaction, Any]:
        """Find the work for each transaction, or an exception for that one alone. Raises when all of them fail."""
        ...

    def apply(self, transaction: Transaction, found: Any) -> Counts:
        """Do the work that was found for a transaction. An exception rolls it back."""
        ...

    def check(self) -> object:
        """Called after `ask` has raised. Raises if `ask` would fail on every transaction, and so ends the job."""
        ...


class QueueSource(NamedTuple):
    """The queue to receive from, and how."""

    settings: Settings
    queue: str
    rows: int
    """Approximate number of messages in a batch."""
    timeout: float | None
    may_follow_dead_reader: bool = False
    """The reader may follow one that died. It then waits longer, until Kafka has moved the dead reader's partitions.

    If it ended before that, the messages in those partitions would be left in the queue.
    """

    def begun(self) -> QueueSource:
        """The source at the start of a job. Members that the queue's consumer group has at that time may be dead.

        A driver that was killed remains a member until its session times out, and Kafka cannot tell it from a living
        one.
        """
        if self.timeout is None:
            return self
        settings = self.settings
        group = consumer_group(data_topic(settings.instance, settings.database, self.queue))
        kafka, timeout_s = kafka_of(settings), settings.connect_timeout_s
        try:
            asked = kafka.admin.describe_consumer_groups([group], request_timeout=timeout_s)
            found = asked[group].result()
        except KafkaException as error:  # the group does not exist, or may not be described
            log.debug("the members of group %s cannot be listed: %s", group, kafka.words(error, Need.group(group)))
            return self
        return self._replace(may_follow_dead_reader=bool(found.members))

    @contextmanager
    def opened(self) -> Iterator[tuple[Broker, Reader]]:
        """A broker, and a reader of the queue, in this process."""
        with Broker(self.settings) as broker:
            timeout = self.timeout
            if timeout is not None and self.may_follow_dead_reader:
                timeout += broker.operations.session_timeout_s() or SESSION_TIMEOUT_S
            with broker.reader(self.queue, batch=GROUPS_PER_COMMIT, timeout=timeout) as reader:
                yield broker, reader

    def partitions(self) -> int:
        """Number of partitions of the queue, and so of tasks that can share it."""
        with Broker(self.settings) as broker:
            return broker.catalog.get(Queue, self.queue).partitions


def check_callable(name: str, function: object, hint: str = "") -> None:
    """Raise InvalidSettings for a function that cannot be called: in a task it would fail for each conversation."""
    if not callable(function):
        raise InvalidSettings(f"{name} takes a function, not {function!r}{hint}")


def map_arrow(spark: SparkSession, source: QueueSource, function: Function) -> Done:
    """Receive in tasks, and return the counts of all of them together."""
    check_callable("map_arrow", function)

    def work(mine: QueueSource) -> dict[str, Any]:
        with mine.opened() as (_, reader):
            return Batches(reader, Answerer(function)).work(mine.rows)._asdict()

    return reduce(Done.plus, (Done(**done) for done in in_tasks(spark, source, work)), Done())


def in_tasks(
    spark: SparkSession, source: QueueSource, work: Callable[[QueueSource], dict[str, Any]]
) -> list[dict[str, Any]]:
    """Run `work` in a task for each partition of the queue, up to the number of cores. Returns their results."""
    tasks = min(source.partitions(), cores(spark))
    source = source.begun()

    def run(_batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        again = context is not None and context.attemptNumber() > 0
        mine = source._replace(may_follow_dead_reader=source.may_follow_dead_reader or again)
        yield pa.RecordBatch.from_pylist([{"done": json.dumps(work(mine))}])

    try:
        rows = spark.range(tasks, numPartitions=tasks).mapInArrow(run, "done string").collect()
    except PySparkException as error:
        raise own_error(error) or error from None
    return [json.loads(row.done) for row in rows]


def own_error(error: PySparkException) -> KonverseError | None:
    """The error of konverse that a task has raised; Spark passes on only its text."""
    found = _RAISED.findall(str(error))
    kind = getattr(errors, found[-1][0], None) if found else None
    return kind(found[-1][1]) if isinstance(kind, type) and issubclass(kind, KonverseError) else None


_RAISED: Final = re.compile(r"^konverse\.schemas\.errors\.(\w+): (.*)$", re.MULTILINE)
"""The end of a task's traceback."""


def process(spark: SparkSession, source: QueueSource, transform: Callable[[DataFrame], DataFrame]) -> Done:
    """Receive in this process, and answer each batch by `transform` in Spark."""
    check_callable("process", transform)
    function = by_frame(spark, transform, lambda frame: spelled(frame, (RECEIPT, *ANSWERS.names)))
    with source.begun().opened() as (_, reader):
        return Batches(reader, Answerer(function, checking(spark))).work(source.rows)


def checking(spark: SparkSession) -> Callable[[], None]:
    """A check that raises InvalidSettings when Spark no longer runs. Batches that are too large can end its JVM."""

    def check() -> None:
        try:
            spark.range(1).count()
        except Exception as error:
            raise InvalidSettings(
                f"Spark has stopped ({type(error).__name__}: {error}). If its memory was too small for a batch, give "
                "smaller ones (`rows`), or the driver more (spark.driver.memory; `memory` of local_session)"
            ) from error

    return check


def by_frame(
    spark: SparkSession, transform: Callable[[DataFrame], Any], checked: Callable[[DataFrame], DataFrame]
) -> Function:
    """A function over Arrow batches from a function over frames; `checked` checks the frame that comes back.

    A result that is not a frame, or that Spark cannot plan, raises InvalidSettings, as no retry can fix it.
    """
    from pyspark.errors import AnalysisException  # noqa: PLC0415  # tasks do without

    def function(batch: pa.RecordBatch) -> pa.Table:
        try:
            frame = transform(spark.createDataFrame(pa.Table.from_batches([batch])))
            if not hasattr(frame, "toArrow"):  # Spark Connect has another class of frames
                raise InvalidSettings(f"the function must return a DataFrame, not {type(frame).__name__}")
            return checked(frame).toArrow()
        except AnalysisException as error:
            raise InvalidSettings(
                f"the DataFrame that the function returned cannot be run: {first_line(error)}"
            ) from None

    return function


def first_line(error: Exception) -> str:
    """The first line of an error of Spark, without the plan that follows."""
    return str(error).strip().splitlines()[0]


def cores(spark: SparkSession) -> int:
    """Tasks that can run at once. A further task would wait until another one ends, when nothing is left to receive."""
    context = getattr(spark, "sparkContext", None)
    if context is not None:
        return int(context.defaultParallelism)
    parts = spark.range(_ROWS_OF_ALL).selectExpr("spark_partition_id()").distinct().collect()  # by Spark Connect
    return 1 + max(int(part) for (part,) in parts)


class Answerer:
    """Answers messages with the replies, ends and errors that a function returns."""

    nothing = Done()
    failure = Done(failed=1)

    def __init__(self, function: Function, check: Callable[[], object] = lambda: None) -> None:
        """`check` raises when no function can work here, as when Spark was stopped."""
        self._function = function
        self._receipt = 0
        self.check = check

    def ask(self, transactions: Sequence[Transaction]) -> dict[Transaction, AnsweredTransaction]:
        """The messages of each transaction, with the answers to them."""
        received = [list(transaction) for transaction in transactions]
        messages = [message for some in received for message in some]
        at, self._receipt = self._receipt, self._receipt + len(messages)
        # there are no messages if the partition of all of them was lost
        rows = read(self._function(rows_of(messages, at)), at, len(messages)) if messages else []
        receipts = [row[0] for row in rows]
        found: dict[Transaction, AnsweredTransaction] = {}
        upto = 0
        for transaction, some in zip(transactions, received, strict=True):
            since, upto = upto, bisect_left(receipts, at + len(some), upto)
            found[transaction] = AnsweredTransaction(some, at, rows[since:upto])
            at += len(some)
        return found

    def apply(self, transaction: Transaction, found: AnsweredTransaction) -> Done:
        """Stage the answers that fit into one commit; the messages after them are received again."""
        while True:
            try:
                return apply(transaction, found)
            except TransactionTooLarge:
                count = len(found.messages)
                if count == 1:
                    raise
                transaction.clear()
                found = found.head(count // 2)
                transaction.receive_only(found.messages)


class Batches(Generic[Counts]):
    """Takes batches of transactions from a reader, and does a task's work on them."""

    def __init__(
        self, reader: Reader, task: MappingTask[Counts], shown: Callable[[Counts], object] = lambda counts: counts
    ) -> None:
        """`shown` is called after each batch with the counts of all batches so far."""
        self._reader = reader
        self._task = task
        self._shown = shown
        self._handling = HandlerRunner(reader.queue.name, self._handle)
        self._found: Mapping[Transaction, Any] = {}
        self._done = task.nothing

    def work(self, rows: int) -> Counts:
        """Work until the reader ends, and return the counts.

        Raises InvalidSettings for answers of a wrong shape, which no retry can fix.
        """
        for transactions in self._reader.batches(rows, size_bytes=SPARK_BATCH_BYTES_MAX):
            for transaction in transactions:
                transaction.hold()
            with repeating("konverse-beat", BEAT_S, self._reader.keep_up):
                self._found = self._answered(transactions)
            self._handling.work(self._counted(transactions), together=True)
            self._shown(self._done)
        try:
            self._reader.settle()
        except SteppedDown as error:
            log.info("%s", error)
        return self._done

    def _counted(self, transactions: Sequence[Transaction]) -> Iterator[Transaction]:
        """The transactions. Takes back the counts of one whose partition was lost: its next reader counts it."""
        for transaction in transactions:
            done, lost = self._done, self._reader.lost
            yield transaction
            if self._reader.lost > lost:
                self._done = done

    def _answered(self, transactions: Sequence[Transaction]) -> Mapping[Transaction, Any]:
        """The work for these transactions. If `ask` raises, each half is tried, until a transaction fails alone."""
        try:
            return self._task.ask(transactions)
        except InvalidSettings:
            raise
        except Exception as error:  # noqa: BLE001  # of the user's function
            self._task.check()  # else all groups would be suspended when Spark no longer runs
            if len(transactions) == 1:
                return {transactions[0]: error}
        middle = len(transactions) // 2
        return {**self._answered(transactions[:middle]), **self._answered(transactions[middle:])}

    def _handle(self, transaction: Transaction) -> None:
        found = self._found[transaction]
        try:
            if isinstance(found, Exception):
                raise found
            self._done = self._done.plus(self._task.apply(transaction, found))
        except Exception:
            self._done = self._done.plus(self._task.failure)
            raise
