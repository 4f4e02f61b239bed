"""A queue received in batches, by tasks of Spark or by its driver: a function answers, and a commit has all of it.

The messages of a batch are locked while the function works. What it answers is staged with what was received and joins
a commit of the partition's owner, so a process that dies in between leaves the messages as they were, and whatever the
function says the second time is the only answer there is.
"""

from __future__ import annotations

import json
import logging
import re
import threading
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
from konverse.bridge.reader.handlers import Handling
from konverse.bridge.reader.reader import Reader
from konverse.bridge.runtime.settings import Settings
from konverse.bridge.runtime.threads import in_background
from konverse.dialog.transaction.transaction import Transaction
from konverse.schemas import errors
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.errors import InvalidSettings, KonverseError, SteppedDown, TransactionTooLarge
from konverse.schemas.identifiers import consumer_group, data_topic
from konverse.schemas.limits import SPARK_BATCH_BYTES_MAX
from konverse.spark.connection.case_rule import spelled
from konverse.spark.connection.clients import kafka_of

from .answers import ANSWERS, RECEIPT, Done, Part, apply, read, rows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log: Final = logging.getLogger("konverse.spark")

Function = Callable[[pa.RecordBatch], Any]

GROUPS_PER_COMMIT: Final = 1_000
BEAT_S: Final = 0.01
"""While the function works, Kafka hears of us so often, and what comes next is read."""

_ROWS_OF_ALL: Final = 65_536
"""A range of so many rows is divided among all cores."""


class Counted(Protocol):
    """Counts of what was done."""

    def plus(self, other: Self) -> Self:
        """Both together."""
        ...


Counts = TypeVar("Counts", bound=Counted)


class Task(Protocol[Counts]):
    """What is done with the transactions of a batch: first all are asked about together, then each is worked on."""

    nothing: Counts
    failure: Counts
    """What one transaction counts that is rolled back."""

    def ask(self, transactions: Sequence[Transaction]) -> Mapping[Transaction, Any]:
        """What is to be done with each; an exception for one alone that cannot be worked on. Raises for all of them."""
        ...

    def apply(self, transaction: Transaction, found: Any) -> Counts:
        """Do that with one of them. Raises to have it rolled back."""
        ...

    def check(self) -> object:
        """Asking has failed: raise when it would fail whatever was asked about, which ends the work."""
        ...


class Source(NamedTuple):
    """What to receive, and how."""

    settings: Settings
    queue: str
    rows: int
    """Of a batch."""
    timeout: float | None
    behind_a_dead_one: bool = False
    """It takes the place of a reader that died, and stays until Kafka has given that one's partitions to another.

    Whoever ended before would leave the messages of those partitions waiting.
    """

    def begun(self) -> Source:
        """The same as a job begins, before it reads itself: who is in the queue's consumer group then may be dead.

        A driver that was killed stays a member until its session times out, and Kafka cannot tell it from one that
        lives.
        """
        if self.timeout is None:
            return self
        settings = self.settings
        group = consumer_group(data_topic(settings.instance, settings.database, self.queue))
        kafka, timeout_s = kafka_of(settings), settings.connect_timeout_s
        try:
            asked = kafka.admin.describe_consumer_groups([group], request_timeout=timeout_s)
            found = asked[group].result()
        except KafkaException as error:  # there is none, or it may not be described
            log.debug("the members of group %s are not known: %s", group, kafka.words(error, Need.group(group)))
            return self
        return self._replace(behind_a_dead_one=bool(found.members))

    @contextmanager
    def opened(self) -> Iterator[tuple[Broker, Reader]]:
        """A reader of it in this process."""
        with Broker(self.settings) as broker:
            timeout = self.timeout
            if timeout is not None and self.behind_a_dead_one:
                timeout += broker.session_timeout_s()
            with broker.reader(self.queue, batch=GROUPS_PER_COMMIT, timeout=timeout) as reader:
                yield broker, reader

    def partitions(self) -> int:
        """So many tasks can share it."""
        with Broker(self.settings) as broker:
            return broker.catalog.get(Queue, self.queue).partitions


def map_arrow(spark: SparkSession, source: Source, function: Function) -> Done:
    """Receive in tasks; what all of them have done."""

    def work(mine: Source) -> dict[str, Any]:
        with mine.opened() as (_, reader):
            return Batches(reader, Answering(function)).work(mine.rows)._asdict()

    return reduce(Done.plus, (Done(**done) for done in in_tasks(spark, source, work)), Done())


def in_tasks(spark: SparkSession, source: Source, work: Callable[[Source], dict[str, Any]]) -> list[dict[str, Any]]:
    """What `work` returns in a task for each partition of the queue, as far as there are cores."""
    tasks = min(source.partitions(), cores(spark))
    source = source.begun()

    def run(_batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        again = context is not None and context.attemptNumber() > 0
        mine = source._replace(behind_a_dead_one=source.behind_a_dead_one or again)
        yield pa.RecordBatch.from_pylist([{"done": json.dumps(work(mine))}])

    try:
        rows = spark.range(tasks, numPartitions=tasks).mapInArrow(run, "done string").collect()
    except PySparkException as error:
        raise _own(error) or error from None
    return [json.loads(row.done) for row in rows]


def _own(error: PySparkException) -> KonverseError | None:
    """The error of ours that a task has raised; Spark passes on nothing but its text."""
    found = _RAISED.findall(str(error))
    kind = getattr(errors, found[-1][0], None) if found else None
    return kind(found[-1][1]) if isinstance(kind, type) and issubclass(kind, KonverseError) else None


_RAISED: Final = re.compile(r"^konverse\.schemas\.errors\.(\w+): (.*)$", re.MULTILINE)
"""As the traceback of a task ends."""


def process(spark: SparkSession, source: Source, transform: Callable[[DataFrame], DataFrame]) -> Done:
    """Receive in this process, and have Spark answer each batch."""
    function = by_frame(spark, transform, lambda frame: spelled(frame, (RECEIPT, *ANSWERS.names)))
    with source.begun().opened() as (_, reader):
        return Batches(reader, Answering(function, checking(spark))).work(source.rows)


def checking(spark: SparkSession) -> Callable[[], None]:
    """Raises InvalidSettings when Spark itself has gone, and no function can work: large batches end its JVM."""

    def check() -> None:
        try:
            spark.range(1).count()
        except Exception as error:
            raise InvalidSettings(
                f"Spark has gone ({type(error).__name__}: {error}). If its memory was too small for a batch, give "
                "smaller ones (`rows`), or the driver more (spark.driver.memory; `memory` of local_session)"
            ) from error

    return check


def by_frame(
    spark: SparkSession, transform: Callable[[DataFrame], Any], checked: Callable[[DataFrame], DataFrame]
) -> Function:
    """A function from DataFrame to DataFrame as one over Arrow batches; `checked` looks at what it returns.

    What is no frame, or cannot be planned, is InvalidSettings, as no attempt mends it.
    """
    from pyspark.errors import AnalysisException  # noqa: PLC0415  # tasks do without

    def function(batch: pa.RecordBatch) -> pa.Table:
        try:
            frame = transform(spark.createDataFrame(pa.Table.from_batches([batch])))
            if not hasattr(frame, "toArrow"):  # a session of Spark Connect has frames of its own
                raise InvalidSettings(f"the function must return a DataFrame, not {type(frame).__name__}")
            return checked(frame).toArrow()
        except AnalysisException as error:
            raise InvalidSettings(f"what the function makes of a frame cannot be run: {first_line(error)}") from None

    return function


def first_line(error: Exception) -> str:
    """What Spark says, without the plan behind it."""
    return str(error).strip().splitlines()[0]


def cores(spark: SparkSession) -> int:
    """So many tasks can run at once: a further one would wait until the others have nothing left to receive."""
    context = getattr(spark, "sparkContext", None)
    if context is not None:
        return int(context.defaultParallelism)
    parts = spark.range(_ROWS_OF_ALL).selectExpr("spark_partition_id()").distinct().collect()  # by Spark Connect
    return 1 + max(int(part) for (part,) in parts)


class Answering:
    """Replies, ends and errors that a function answers with."""

    nothing = Done()
    failure = Done(failed=1)

    def __init__(self, function: Function, check: Callable[[], object] = lambda: None) -> None:
        """`check` raises when no function can work here, such as a Spark that was stopped."""
        self._function = function
        self._receipt = 0
        self.check = check

    def ask(self, transactions: Sequence[Transaction]) -> dict[Transaction, Part]:
        """The messages of each with the answers to them."""
        received = [list(transaction) for transaction in transactions]
        messages = [message for some in received for message in some]
        at, self._receipt = self._receipt, self._receipt + len(messages)
        # none are left when a partition was lost that all of them came from
        rows = read(self._function(rows_of(messages, at)), at, len(messages)) if messages else []
        receipts = [row[0] for row in rows]
        found: dict[Transaction, Part] = {}
        upto = 0
        for transaction, some in zip(transactions, received, strict=True):
            since, upto = upto, bisect_left(receipts, at + len(some), upto)
            found[transaction] = Part(some, at, rows[since:upto])
            at += len(some)
        return found

    def apply(self, transaction: Transaction, found: Part) -> Done:
        """Stage the answers, as far as they fit into one commit; the messages behind that come again."""
        while True:
            try:
                return apply(transaction, found)
            except TransactionTooLarge:
                count = len(found.messages)
                if count == 1:
                    raise
                transaction.clear()
                found = found.head(count // 2)
                transaction.receive(len(found.messages))


class Batches(Generic[Counts]):
    """The batches of one reader, and what is done with them."""

    def __init__(
        self, reader: Reader, task: Task[Counts], shown: Callable[[Counts], object] = lambda counts: counts
    ) -> None:
        """`shown` is called behind each batch with the counts of all so far."""
        self._reader = reader
        self._task = task
        self._shown = shown
        self._handling = Handling(reader.queue.name, self._handle)
        self._found: Mapping[Transaction, Any] = {}
        self._done = task.nothing

    def work(self, rows: int) -> Counts:
        """Until the reader ends. Raises InvalidSettings for answers of a wrong shape, which no attempt mends."""
        for transactions in self._reader.batches(rows, size_bytes=SPARK_BATCH_BYTES_MAX):
            for transaction in transactions:
                transaction.hold()
            with _heard_of(self._reader):
                self._found = self._answered(transactions)
            self._handling.work(self._counted(transactions), together=True)
            self._shown(self._done)
        try:
            self._reader.settle()
        except SteppedDown as error:
            log.info("%s", error)
        return self._done

    def _counted(self, transactions: Sequence[Transaction]) -> Iterator[Transaction]:
        """These; what comes too late, as its partition went to another reader, is that one's to count."""
        for transaction in transactions:
            done, lost = self._done, self._reader.lost
            yield transaction
            if self._reader.lost > lost:
                self._done = done

    def _answered(self, transactions: Sequence[Transaction]) -> Mapping[Transaction, Any]:
        """What is to be done with these; where asking fails, each half's, so that only who fails alone has failed."""
        try:
            return self._task.ask(transactions)
        except InvalidSettings:
            raise
        except Exception as error:  # noqa: BLE001  # of the user's function
            self._task.check()  # else all would be suspended because Spark has gone
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


@contextmanager
def _heard_of(reader: Reader) -> Iterator[None]:
    """While this thread is busy, commit what is finished and keep the partitions."""
    over = threading.Event()

    def beat() -> None:
        while not over.wait(BEAT_S):
            reader.keep_up()

    thread = in_background("konverse-beat", beat)
    try:
        yield
    finally:
        over.set()
        thread.join()
