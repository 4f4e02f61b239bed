"""A router process that dies at every point, once at each of POINTS, and decides at random.

python -m tests.spark.deadly_router BOOTSTRAP DATABASE FOLDER tasks|driver

Before each death a file appears in FOLDER/deaths; at some points the router then waits to be killed as a whole. It also
gets `done` at the end.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.functions import udf

from konverse.deploy.java.java import find_java, spark_java_home
from konverse.routing.routed import Routed
from konverse.spark import route, route_arrow
from konverse.spark.session import local_session
from tests.kit.regions import REGIONS, service_of

OF_TASKS: Final = ("task in its function", "task with work behind it")
OF_TASKS_DRIVERS: Final = ("driver with tasks at work",)
OF_WORKERS: Final = ("worker that classifies",)
OF_DRIVERS: Final = ("driver that asks", "driver with answers staged")
WAITING: Final = (*OF_TASKS_DRIVERS, *OF_DRIVERS)
"""Points at which the whole router is killed."""
POINTS: Final = (*OF_TASKS, *OF_TASKS_DRIVERS, *OF_WORKERS, *OF_DRIVERS)
ROWS: Final = 6


def die(folder: Path, point: str) -> None:
    """Once: kill this process, or wait until the router is killed with all its processes."""
    try:
        (folder / "deaths" / point).touch(exist_ok=False)
    except FileExistsError:
        return
    if point in WAITING:
        time.sleep(600)
    os.kill(os.getpid(), signal.SIGKILL)


def by_chance() -> str:
    """A random service."""
    return service_of(random.choice(REGIONS))


def in_tasks(folder: Path) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """A classifier for tasks."""
    calls = 0

    def classify(batch: pa.RecordBatch) -> pa.RecordBatch:
        nonlocal calls
        calls += 1
        die(folder, OF_TASKS[0])
        if calls > 1:
            die(folder, OF_TASKS[1])
        if calls > 2:
            die(folder, OF_TASKS_DRIVERS[0])
        services = [by_chance() for _ in range(batch.num_rows)]
        return pa.RecordBatch.from_pydict({"receipt": batch.column("receipt"), "to_service": services})

    return classify


def in_driver(folder: Path) -> Callable[[DataFrame], DataFrame]:
    """A classifier from frame to frame."""

    def any_service(_body):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202  # with hints Spark looks for pandas
        die(folder, OF_WORKERS[0])
        return by_chance()

    calls = 0

    def classify(frame: DataFrame) -> DataFrame:
        nonlocal calls
        calls += 1
        if calls > 1:
            die(folder, OF_DRIVERS[0])
        return frame.withColumn("to_service", udf(any_service, "string").asNondeterministic()("body"))

    return classify


def main() -> None:
    """Route everything, or be killed."""
    bootstrap, database, path, where = sys.argv[1:]
    folder = Path(path)
    config = {"spark.master": "local[2,8]"}
    spark = local_session("deadly", java_home=spark_java_home(find_java()), config=config)
    spark.sparkContext.setLogLevel("OFF")
    options: dict[str, Any] = {"kafka": f"kafka://{bootstrap}", "database": database, "rows": ROWS, "timeout": 4.0}

    def shown(routed: Routed) -> None:
        if routed.forwarded > ROWS:
            die(folder, OF_DRIVERS[1])

    if where == "tasks":
        print(route_arrow(spark, "Orders", in_tasks(folder), **options), flush=True)
    else:
        print(route(spark, "Orders", in_driver(folder), progress=shown, **options), flush=True)
    (folder / "done").touch()


if __name__ == "__main__":
    main()
