"""A job on a Spark cluster, in a driver of its own: it writes orders, answers them in tasks, and reads the receipts.

python -m tests.spark.cluster_job MASTER BOOTSTRAP DATABASE FOLDER

A task with orders writes its process id to FOLDER/working and waits for FOLDER/killed. The job prints counts as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Final

import pyarrow as pa

from konverse.deploy.java.java import find_java, spark_java_home
from konverse.spark import map_arrow
from konverse.spark.session import local_session
from tests.kit.shop import ORDER, ORDER_SERVICE, ORDERING, RECEIPT, SHOP_SERVICE

ORDERS: Final = 400
KEYS: Final = 40
WAIT_S: Final = 60.0


def main() -> None:
    """Run the job of the arguments."""
    master, bootstrap, database, folder = sys.argv[1:5]
    place = Path(folder)

    def answer(batch: pa.RecordBatch) -> pa.RecordBatch:
        """A receipt for each order; one task must die over it."""
        if not (place / "killed").exists():
            say(place / "working")
            deadline = time.monotonic() + WAIT_S
            while not (place / "killed").exists() and time.monotonic() < deadline:
                time.sleep(0.05)
        types = [RECEIPT] * batch.num_rows
        columns = {"receipt": batch.column("receipt"), "message_type": types, "body": batch.column("body")}
        return pa.RecordBatch.from_pydict(columns)

    session = local_session(
        "konverse on a cluster",
        master=master,
        java_home=spark_java_home(find_java()),
        config={"spark.executor.memory": "512m", "spark.executor.cores": "1"},
    )
    options = {"bootstrap": bootstrap, "database": database}
    orders = session.range(ORDERS).selectExpr(
        f"'{ORDER_SERVICE}' AS to_service",
        f"'{ORDER}' AS message_type",
        "CAST(CONCAT('order ', id) AS BINARY) AS body",
        f"CAST(id % {KEYS} AS STRING) AS key",
    )
    writing = options | {"from_service": SHOP_SERVICE, "contract": ORDERING}
    orders.write.format("konverse").options(**writing).mode("append").save()
    map_arrow(session, "Orders", answer, rows=100, timeout=3.0, kafka=f"kafka://{bootstrap}", database=database)
    read = session.read.format("konverse").options(**options, queue="Shop").load()
    receipts = read.where(f"message_type = '{RECEIPT}'")
    print(json.dumps({"receipts": receipts.count(), "orders": receipts.select("body").distinct().count()}))
    session.stop()


def say(file: Path) -> None:
    """Write the id of this process to the file, atomically; the last writer wins."""
    written = file.with_name(f"{file.name}.{os.getpid()}")
    written.write_text(str(os.getpid()))
    written.rename(file)


if __name__ == "__main__":
    main()
