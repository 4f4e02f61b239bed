"""A queue received in batches, by tasks of Spark or by its driver: a function answers, and a commit has all of it.

The messages of a batch are locked while the function works. What it answers is staged with what was received and joins
a commit of the partition's owner, so a process that dies in between leaves the messages as they were, and whatever the
function says the second time is the only answer there is.
"""

from __future__ import annotations

import logging
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
from pyspark import TaskContext

from konverse.bridge.background import in_background
from konverse.bridge.broker import Broker
from konverse.bridge.handling import Handling
from konverse.bridge.kafka import Kafka
from konverse.bridge.reader import Reader
from konverse.bridge.settings import Settings
from konverse.bridge.topics import Topics
from konverse.dialog.transaction import Transaction
from konverse.schemas.catalog import Queue
from konverse.schemas.errors import InvalidSettings, SteppedDown, TransactionTooLarge

from .answers import Done, Part, apply, read, rows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log: Final = logging.getLogger("konverse.spark")

Function = Callable[[pa.RecordBatch], Any]
Answered = dict[Transaction, Part | Exception]
"""The messages of each transaction with the answers to them, or how the function failed on it."""

GROUPS_PER_COMMIT: Final = 1_000
BEAT_S: Final = 0.01
"""While the function works, Kafka hears of us so often, and what comes next is read."""

_ROWS_OF_ALL: Final = 65_536
"""A range of so many rows is divided among all cores."""

_COUNTS: Final = "messages bigint, replies bigint, ends bigint, failed bigint"


class Source(NamedTuple):
    """What to receive, and how."""

    settings: Settings
    queue: str
    rows: int
    """Of a batch."""
    timeout: float | None

    def behind_the_dead(self) -> Source:
        """The same for who takes the place of a reader that died: until Kafka gives its partitions to another one.

        Whoever ended before would leave the messages of those partitions waiting.
        """
        if self.timeout is None:
            return self
        return self._replace(timeout=self.timeout + Topics(Kafka(self.settings)).session_timeout_s())

    @contextmanager
    def reader(self) -> Iterator[Reader]:
        """A reader of it in this process."""
        with (
            Broker(self.settings) as broker,
            broker.reader(self.queue, batch=GROUPS_PER_COMMIT, timeout=self.timeout) as reader,
        ):
            yield reader

    def partitions(self) -> int:
        """So many tasks can share it."""
        with Broker(self.settings) as broker:
            return broker.catalog.get(Queue, self.queue).partitions


def map_arrow(spark: SparkSession, source: Source, function: Function) -> Done:
    """Receive with a task for each partition, and no more than can run at once; what all of them have done."""
    tasks = min(source.partitions(), cores(spark))

    def work(_batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        again = context is not None and context.attemptNumber() > 0
        with (source.behind_the_dead() if again else source).reader() as reader:
            done = Batches(reader, function).work(source.rows)
        yield pa.RecordBatch.from_pylist([done._asdict()])

    counts = spark.range(tasks, numPartitions=tasks).mapInArrow(work, _COUNTS).collect()
    return reduce(Done.plus, counts, Done())


def process(spark: SparkSession, source: Source, transform: Callable[[DataFrame], DataFrame]) -> Done:
    """Receive in this process, and have Spark answer each batch."""

    def function(batch: pa.RecordBatch) -> pa.Table:
        return transform(spark.createDataFrame(pa.Table.from_batches([batch]))).toArrow()

    with source.reader() as reader:
        return Batches(reader, function).work(source.rows)


def cores(spark: SparkSession) -> int:
    """So many tasks can run at once: a further one would wait until the others have nothing left to receive."""
    context = getattr(spark, "sparkContext", None)
    if context is not None:
        return int(context.defaultParallelism)
    parts = spark.range(_ROWS_OF_ALL).selectExpr("spark_partition_id()").distinct().collect()  # by Spark Connect
    return 1 + max(int(part) for (part,) in parts)


class Batches:
    """The batches of one reader, and the function that answers them."""

    def __init__(self, reader: Reader, function: Function) -> None:
        self._reader = reader
        self._function = function
        self._handling = Handling(reader.queue.name, self._handle)
        self._answers: Answered = {}
        self._receipt = 0
        self._done = Done()

    def work(self, rows: int) -> Done:
        """Until the reader ends. Raises InvalidSettings for answers of a wrong shape, which no attempt mends."""
        for transactions in self._reader.batches(rows):
            for transaction in transactions:
                transaction.__enter__()
            with _heard_of(self._reader):
                self._answers = self._answered(transactions)
            self._handling.work(self._counted(transactions))
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

    def _answered(self, transactions: Sequence[Transaction]) -> Answered:
        """What the function says of these; where it fails, of each half, so that only who fails alone has failed."""
        try:
            return self._ask(transactions)
        except InvalidSettings:
            raise
        except Exception as error:  # noqa: BLE001  # of the user's function
            if len(transactions) == 1:
                return {transactions[0]: error}
        middle = len(transactions) // 2
        return {**self._answered(transactions[:middle]), **self._answered(transactions[middle:])}

    def _ask(self, transactions: Sequence[Transaction]) -> Answered:
        received = [list(transaction) for transaction in transactions]
        messages = [message for some in received for message in some]
        at, self._receipt = self._receipt, self._receipt + len(messages)
        rows = read(self._function(rows_of(messages, at)), at, len(messages))
        receipts = [row[0] for row in rows]
        found: Answered = {}
        upto = 0
        for transaction, some in zip(transactions, received, strict=True):
            since, upto = upto, bisect_left(receipts, at + len(some), upto)
            found[transaction] = Part(some, at, rows[since:upto])
            at += len(some)
        return found

    def _handle(self, transaction: Transaction) -> None:
        part = self._answers[transaction]
        try:
            if isinstance(part, Exception):
                raise part
            self._done = self._done.plus(self._apply(transaction, part))
        except Exception:
            self._done = self._done.plus(Done(failed=1))
            raise

    @staticmethod
    def _apply(transaction: Transaction, part: Part) -> Done:
        """Stage the answers, as far as they fit into one commit; the messages behind that come again."""
        while True:
            try:
                return apply(transaction, part)
            except TransactionTooLarge:
                count = len(part.messages)
                if count == 1:
                    raise
                transaction.clear()
                part = part.head(count // 2)
                transaction.receive(len(part.messages))


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
