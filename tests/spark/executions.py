"""Runs tasks and commits of a writer as Spark does, one by one and without Spark. `main` dies in one of them.

A writer is pickled for its tasks. A task that is to be killed runs in a process of its own.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from konverse.spark.write import sink
from konverse.spark.write.decision import BatchDecision
from konverse.spark.write.settings import parse_writer
from konverse.spark.write.sink import BatchWriter, StreamWriter, Written
from tests.kit.shop import ORDER, ORDER_SERVICE, ORDERING, SHOP_SERVICE

COLUMNS: Final = (
    ("to_service", StringType()),
    ("message_type", StringType()),
    ("body", BinaryType()),
    ("key", StringType()),
)
TASK_S: Final = 60.0

POINTS: Final = ("before the first row", "in the middle", "after all rows")
"""Points at which a task is killed."""

Writer = BatchWriter | StreamWriter
Rows = Sequence[tuple[str, bytes]]
"""Key and body."""


class Context:
    """Spark's task context."""

    def __init__(
        self, number: int, query: str | None = None, batch: int = 0, others: Mapping[str, str] | None = None
    ) -> None:
        """`others` are local properties beside those of a stream."""
        self._number = number
        self._properties = {"sql.streaming.queryId": query, "streaming.sql.batchId": str(batch), **(others or {})}

    def partitionId(self) -> int:  # noqa: N802  # Spark's name
        """The task's partition number."""
        return self._number

    def getLocalProperty(self, name: str) -> str | None:  # noqa: N802  # as above
        """A property of the query."""
        return self._properties.get(name)


def batch_writer(bootstrap: str, database: str, **options: str) -> BatchWriter:
    """The writer of a `df.write` run."""
    return BatchWriter(parse_writer(_options(bootstrap, database, options)), _schema(), overwrite=False)


def stream_writer(bootstrap: str, database: str, checkpoint: str, **options: str) -> StreamWriter:
    """The writer of one micro-batch of a stream."""
    given = _options(bootstrap, database, {"checkpointLocation": checkpoint, **options})
    return StreamWriter(parse_writer(given), _schema(), overwrite=False)


def _options(bootstrap: str, database: str, options: dict[str, str]) -> dict[str, str]:
    given = {"from_service": SHOP_SERVICE, "contract": ORDERING, "bootstrap": bootstrap, "database": database}
    return {**given, **options}


def _schema() -> StructType:
    return StructType([StructField(name, kind) for name, kind in COLUMNS])


def batches_of(rows: Rows, size: int = 1_000) -> Iterator[pa.RecordBatch]:
    """The rows in batches, as Spark gives them to a task."""
    for at in range(0, len(rows), size):
        keys, bodies = zip(*rows[at : at + size], strict=True)
        count = len(keys)
        columns: list[Any] = [[ORDER_SERVICE] * count, [ORDER] * count, bodies, keys]
        kinds = ("string", "string", "binary", "string")
        arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, [name for name, _ in COLUMNS])


def execute(writer: Writer, rows: Rows, context: Context | None = None) -> Written:
    """Run one execution of a task and return its report."""
    with patch.object(sink, "TaskContext") as contexts:
        contexts.get.return_value = context or Context(0)
        written = pickle.loads(pickle.dumps(writer)).write(batches_of(rows))
    assert isinstance(written, Written)
    arrived: Written = pickle.loads(pickle.dumps(written))
    return arrived


def run(writer: BatchWriter, *tasks: Rows, stream: str | None = None) -> None:
    """Run a whole write of these tasks. `stream` is Spark's id of the stream whose `foreachBatch` writes."""
    messages: list[WriterCommitMessage | None] = [
        execute(writer, rows, Context(number, stream)) for number, rows in enumerate(tasks)
    ]
    writer.commit(messages)


def killed(folder: Path, what: str, writer: Writer, argument: Any) -> None:
    """Run it in a process that is killed: a task's rows at one of POINTS, or `commit` behind its BATCH."""
    file = folder / "work.pickle"
    file.write_bytes(pickle.dumps((what, writer, argument)))
    done = subprocess.run([sys.executable, "-m", "tests.spark.executions", str(file)], timeout=TASK_S, check=False)
    assert done.returncode == -signal.SIGKILL


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _doomed(batches: Iterator[pa.RecordBatch], what: str) -> Iterator[pa.RecordBatch]:
    if what == POINTS[0]:
        _die()
    for batch in batches:
        yield batch
        if what == POINTS[1]:
            time.sleep(0.5)  # so that the rows leave
            _die()


def main() -> None:
    """Run the call in the file, and be killed."""
    what, writer, argument = pickle.loads(Path(sys.argv[1]).read_bytes())
    if what == "commit":
        put = BatchDecision._put

        def put_and_die(deciding: BatchDecision, effect: Any) -> None:
            put(deciding, effect)
            _die()

        with patch.object(BatchDecision, "_put", put_and_die):
            writer.commit(argument)
    with patch.object(sink, "TaskContext") as contexts:
        contexts.get.return_value = Context(0)
        writer.write(_doomed(batches_of(argument), what))
    _die()


if __name__ == "__main__":
    main()
