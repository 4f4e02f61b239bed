"""A job for the Spark of the stack: `spark-submit tests/compose/spark_job.py DATABASE WORKERS`.

It routes orders by content to the services of two regions, answers them there with a function over Arrow batches, and
routes the receipts back and reads them. `spark-submit` runs it inside our image, which has no other file of the
repository. Code in the workers has konverse from that image.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import SparkSession

import konverse
from konverse.spark import map_arrow, route

if TYPE_CHECKING:
    from pyspark import SparkContext

ORDER: Final = "//sales/Order"
RECEIPT: Final = "//sales/Receipt"
CONTRACT: Final = "//sales/Ordering"
REGIONS: Final = ("North", "South")
BY_REGION: Final = "concat('//sales/', substring_index(CAST(body AS STRING), ' ', 1))"

DIALOGS: Final = 40
ORDERS: Final = 5
IDLE_S: Final = 5.0
"""How long a receiver waits for more before it is done."""
WORKERS_S: Final = 60.0


def body(dialog: int, order: int) -> bytes:
    """Body of an order: its region, its dialog and its number there."""
    return f"{REGIONS[dialog % len(REGIONS)]} {dialog} {order}".encode()


def define(broker: konverse.Broker) -> None:
    """Fill the catalog: a shop, the routed service, and one service for each region."""
    broker.admin.create_message_type(ORDER)
    broker.admin.create_message_type(RECEIPT)
    broker.admin.create_contract(CONTRACT, {ORDER: "INITIATOR", RECEIPT: "TARGET"})
    for name in ("Shop", "Orders", *REGIONS):
        broker.admin.create_queue(name, partitions=4)
        broker.admin.create_service(f"//sales/{name}", queue=name, contracts=[CONTRACT])


def send_orders(broker: konverse.Broker) -> None:
    """Begin the dialogs and send their orders in turn."""
    dialogs = [broker.begin_dialog("//sales/Shop", "//sales/Orders", CONTRACT) for _ in range(DIALOGS)]
    for order in range(ORDERS):
        for number, dialog in enumerate(dialogs):
            dialog.send(ORDER, body(number, order))
    broker.flush()


def receipts(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A receipt for each order."""
    columns = {"receipt": batch.column("receipt"), "message_type": [RECEIPT] * batch.num_rows}
    return pa.RecordBatch.from_pydict(columns | {"body": batch.column("body")})


def hosts(context: SparkContext, workers: int) -> set[str]:
    """Hosts of the tasks, once every worker has an executor."""
    java: Any = context._jsc  # Python has no API for it
    deadline_s = time.monotonic() + WORKERS_S
    while java.sc().getExecutorMemoryStatus().size() <= workers:  # the driver counts as one
        assert time.monotonic() < deadline_s, f"{workers} workers have not joined within {WORKERS_S:.0f} s"
        time.sleep(0.1)

    def host(_number: int) -> str:
        time.sleep(1.0)  # so that no task ends before all have begun
        return socket.gethostname()

    tasks = context.defaultParallelism
    return set(context.parallelize(range(tasks), tasks).map(host).collect())


def main(database: str, workers: int) -> None:
    kafka = os.environ["KONVERSE_KAFKA"]
    where: dict[str, Any] = {"kafka": kafka, "database": database}
    broker = konverse.connect(**where)
    try:
        define(broker)
        send_orders(broker)
    finally:
        broker.close()
    spark = SparkSession.builder.appName("compose-check").getOrCreate()
    try:
        used = hosts(spark.sparkContext, workers)
        assert len(used) == workers, f"tasks ran on {used}"
        there = route(spark, "Orders", BY_REGION, timeout=IDLE_S, **where)
        answered = [map_arrow(spark, region, receipts, timeout=IDLE_S, **where) for region in REGIONS]
        back = route(spark, "Orders", BY_REGION, timeout=IDLE_S, **where)
        options = {"bootstrap": kafka, "database": database, "queue": "Shop"}
        shop = spark.read.format("konverse").options(**options).load().where(f"message_type = '{RECEIPT}'")
        heard = shop.orderBy("conversation", "sequence").select("conversation", "body").collect()
    finally:
        spark.stop()
    assert there.forwarded == DIALOGS, there
    assert there.targets == {f"//sales/{region}": DIALOGS * ORDERS // len(REGIONS) for region in REGIONS}, there
    assert [done.replies for done in answered] == [DIALOGS * ORDERS // len(REGIONS)] * len(REGIONS), answered
    assert back.replied == DIALOGS * ORDERS, back
    got: dict[bytes, list[bytes]] = {}
    for row in heard:
        got.setdefault(bytes(row.conversation), []).append(bytes(row.body))
    expected = [[body(dialog, order) for order in range(ORDERS)] for dialog in range(DIALOGS)]
    assert sorted(got.values()) == sorted(expected), f"receipts as the shop saw them: {got}"
    orders = f"{DIALOGS * ORDERS} orders in {DIALOGS} dialogs"
    print(f"{orders} routed to {len(REGIONS)} services and answered on {workers} workers, each once and in order")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
