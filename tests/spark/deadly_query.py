"""A streaming query process that dies at every point of a write, once at each of POINTS.

python -m tests.spark.deadly_query BOOTSTRAP DATABASE FOLDER

FOLDER has `in` with text files, one for each micro-batch. Before each death a file appears in `deaths`; at some points
the query then waits to be killed as a whole. It also gets `checkpoint`, and `done` at the end. Each row has a random
key.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.errors import PySparkException
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.functions import udf

from konverse.deploy.java.java import find_java, spark_java_home
from konverse.spark.session import local_session
from konverse.spark.source import KonverseDataSource
from konverse.spark.write.settings import parse_writer
from konverse.spark.write.sink import StreamWriter
from tests.kit.shop import ORDER, ORDER_SERVICE, ORDERING, SHOP_SERVICE

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

OF_TASKS: Final = ("task before its rows", "task in the middle", "task after its rows")
OF_COMMITS: Final = ("commit before", "commit after")
OF_DRIVERS: Final = ("driver before", "driver after")
POINTS: Final = (*OF_TASKS, *OF_COMMITS, *OF_DRIVERS)
FORMAT: Final = "deadly"


class Deadly(StreamWriter):
    """The writer, whose processes kill themselves."""

    folder: Path

    def _die(self, point: str) -> None:
        """Once: kill this process, or wait until the driver is killed with all its processes."""
        try:
            (self.folder / "deaths" / point).touch(exist_ok=False)
        except FileExistsError:
            return
        if point in OF_DRIVERS:
            time.sleep(600)
        os.kill(os.getpid(), signal.SIGKILL)

    def write(self, iterator: Iterator[RecordBatch]) -> WriterCommitMessage:
        """Like the product's method, unless it dies."""
        self._die(OF_TASKS[0])

        def doomed() -> Iterator[RecordBatch]:
            for batch in iterator:
                yield batch.slice(0, 5)
                time.sleep(0.1)  # the rows leave
                self._die(OF_TASKS[1])
                yield batch.slice(5)

        written = super().write(doomed())
        self._die(OF_TASKS[2])
        return written

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's own name
        """Like the product's method, unless it dies."""
        if batchId:
            self._die(OF_COMMITS[0])
        if batchId > 1:
            self._die(OF_DRIVERS[0])
        super().commit(messages, batchId)
        self._die(OF_COMMITS[1])
        if batchId > 1:
            self._die(OF_DRIVERS[1])


class DeadlySource(KonverseDataSource):
    """The format `deadly`."""

    @classmethod
    def name(cls) -> str:
        """Name of the format."""
        return FORMAT

    def streamWriter(self, schema: StructType, overwrite: bool) -> Deadly:  # noqa: N802  # Spark's own
        """The deadly writer."""
        options = dict(self.options)
        folder = Path(options.pop("folder"))
        writer = Deadly(parse_writer(options), schema, overwrite=overwrite)
        writer.folder = folder
        return writer


def any_key(_body):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201  # with hints Spark looks for pandas
    """A random key."""
    return f"key {random.randrange(5)}"


def write(spark: SparkSession, bootstrap: str, database: str, folder: Path) -> None:
    """Write from the checkpoint on, until nothing fails any more."""
    lines = spark.readStream.option("maxFilesPerTrigger", "1").text(str(folder / "in")).repartition(3)
    rows = lines.selectExpr(f"'{ORDER_SERVICE}' AS to_service", f"'{ORDER}' AS message_type", "value AS body")
    options = {"from_service": SHOP_SERVICE, "contract": ORDERING, "bootstrap": bootstrap, "database": database}
    options |= {"folder": str(folder), "checkpointLocation": str(folder / "checkpoint"), "pool": "deadly"}
    while True:
        stream = rows.withColumn("key", udf(any_key, "string").asNondeterministic()("body")).writeStream
        query = stream.format(FORMAT).options(**options).trigger(availableNow=True).start()
        try:
            query.awaitTermination()
        except PySparkException as error:
            print("again:", str(error)[:300], file=sys.stderr, flush=True)
        else:
            return


def main() -> None:
    """Write everything, or be killed."""
    bootstrap, database, folder = sys.argv[1:]
    java_home = spark_java_home(find_java())
    spark = local_session("deadly", java_home=java_home, config={"spark.master": "local[2,8]"})
    spark.sparkContext.setLogLevel("OFF")
    spark.dataSource.register(DeadlySource)
    write(spark, bootstrap, database, Path(folder))
    (Path(folder) / "done").touch()


if __name__ == "__main__":
    main()
