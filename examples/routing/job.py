"""The Spark job: routes orders to the service of their region, in tasks, until no order has come for a while.

    python -m examples.routing.job KAFKA DATABASE FOLDER

Each Python worker that classifies leaves a file in FOLDER whose name is its process id.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Final

import pyarrow as pa

from examples.routing.services import ORDERS, service_of
from konverse.deploy.java.java import find_java, spark_java_home
from konverse.spark import route_arrow
from konverse.spark.session import local_session

QUIET_S: Final = 8.0
"""The job ends after this long without an order."""


def classifier(folder: str) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """A classifier by the region that the first order of a conversation names."""

    def classify(batch: pa.RecordBatch) -> pa.RecordBatch:
        Path(folder, str(os.getpid())).touch()
        services = [service_of(json.loads(body)["region"]) for body in batch.column("body").to_pylist()]
        return pa.RecordBatch.from_pydict({"receipt": batch.column("receipt"), "to_service": services})

    return classify


def main(kafka: str, database: str, folder: str) -> None:
    """Route, and print the counts."""
    config = {"spark.master": "local[4,8]"}  # a worker that dies is replaced, up to seven times
    spark = local_session("routing", java_home=spark_java_home(find_java()), config=config)
    spark.sparkContext.setLogLevel("OFF")
    done = route_arrow(spark, ORDERS, classifier(folder), timeout=QUIET_S, kafka=kafka, database=database)
    print(json.dumps(asdict(done)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
