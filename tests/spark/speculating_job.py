"""A job on a speculating Spark cluster, in a driver of its own: it writes, reads and receives orders.

python -m tests.spark.speculating_job MASTER BOOTSTRAP DATABASE FOLDER

In each part the first task with rows waits until Spark runs it a second time elsewhere; then both executions continue.
The job prints as JSON the parts that ran a task twice, and the counts.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession

from konverse.deploy.java.java import find_java, spark_java_home
from konverse.spark import map_arrow
from konverse.spark.session import local_session
from tests.kit.shop import ORDER, ORDER_SERVICE, ORDERING, RECEIPT, SHOP_SERVICE

ORDERS: Final = 200
KEYS: Final = 20
TASKS: Final = 2
WAIT_S: Final = 60.0
SETTINGS: Final = {
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.efficiency.enabled": "false",
}


def main() -> None:
    """Run the job of the arguments."""
    master, bootstrap, database, folder = sys.argv[1:]
    place = Path(folder)
    session = local_session(
        "konverse with speculation", master=master, java_home=spark_java_home(find_java()), config=SETTINGS
    )
    options = {"bootstrap": bootstrap, "database": database}
    where = {"kafka": f"kafka://{bootstrap}", "database": database}
    twice = place / "writing"
    orders = session.range(ORDERS, numPartitions=TASKS).mapInArrow(waiting(twice), "id bigint")
    with watched(session, twice):
        orders.selectExpr(
            f"'{ORDER_SERVICE}' AS to_service",
            f"'{ORDER}' AS message_type",
            "CAST(CONCAT('order ', id) AS BINARY) AS body",
            f"CAST(id % {KEYS} AS STRING) AS key",
        ).write.format("konverse").options(**options, from_service=SHOP_SERVICE, contract=ORDERING).mode(
            "append"
        ).save()

    twice = place / "reading"
    with watched(session, twice):
        frame = session.read.format("konverse").options(**options, queue="Orders").load().select("body")
        read = frame.mapInArrow(waiting(twice), "body binary").collect()

    twice = place / "receiving"
    wait = waiting(twice)

    def answer(batch: pa.RecordBatch) -> pa.RecordBatch:
        """A receipt for each order."""
        (batch,) = wait(iter((batch,)))
        types = [RECEIPT] * batch.num_rows
        columns = {"receipt": batch.column("receipt"), "message_type": types, "body": batch.column("body")}
        return pa.RecordBatch.from_pydict(columns)

    with watched(session, twice):
        done = map_arrow(session, "Orders", answer, rows=20, timeout=3.0, **where)
    parts = sorted(path.name for path in place.iterdir() if path.name in {"writing", "reading", "receiving"})
    said = {"twice": parts, "read": len({bytes(row.body) for row in read}), "rows": len(read), "done": done._asdict()}
    print(json.dumps(said))
    session.stop()


def waiting(twice: Path) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Passes rows on. The first task with rows waits for the file, in every execution.

    The second execution waits too: if it ended at once, `watched` could miss it, and Spark would end the first one.
    """

    def wait(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        for batch in batches:
            if is_chosen(twice.with_suffix(".task"), context.partitionId()):
                deadline = time.monotonic() + WAIT_S
                while not twice.exists() and time.monotonic() < deadline:
                    time.sleep(0.05)
            yield batch

    return wait


def is_chosen(file: Path, task: int) -> bool:
    """Whether the task is the first one that asked."""
    try:
        with file.open("x", encoding="ascii") as chosen:
            chosen.write(str(task))
    except FileExistsError:
        return file.read_text("ascii") == str(task)
    return True


@contextmanager
def watched(session: SparkSession, twice: Path) -> Iterator[None]:
    """Create the file as soon as a stage has more running tasks than unfinished ones."""
    over = threading.Event()
    tracker = session.sparkContext.statusTracker()

    def watch() -> None:
        while not over.wait(0.05):
            for stage in map(tracker.getStageInfo, tracker.getActiveStageIds()):
                if stage is not None and stage.numActiveTasks > stage.numTasks - stage.numCompletedTasks:
                    twice.touch()

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


if __name__ == "__main__":
    main()
