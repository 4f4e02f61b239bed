"""A Spark stream in small batches from one queue into another: the time of each batch."""

from __future__ import annotations

import tempfile
from statistics import median
from typing import Final

from tests.bench import conversations, fill
from tests.bench.model import WARM_UP_BATCHES, Case, Figures, Load, Place, Row, Run
from tests.bench.spark_read import spark
from tests.bench.spark_write import transmitting

COPIES: Final = "//order/copies"


def product(place: Place, load: Load) -> Figures:
    """Micro-batches of `load.batch` rows, each read, written exactly once and noted in the checkpoint."""
    with conversations.connect(place) as broker:
        broker.admin.create_queue("Copies")
        broker.admin.create_service(COPIES, queue="Copies", contracts=["//order"])
    session = spark(connector=False)
    where = {"bootstrap": place.bootstrap, "database": conversations.database(place)}
    orders = (
        session.readStream.format("konverse").options(**where, queue=conversations.QUEUE, maxRows=load.batch).load()
    )
    rows = orders.selectExpr(
        f"'{COPIES}' AS to_service", f"'{conversations.MESSAGE}' AS message_type", "body", "hex(conversation) AS key"
    )
    with tempfile.TemporaryDirectory() as checkpoint, transmitting(place):
        into = {"from_service": "//order/shop", "contract": "//order", "checkpointLocation": checkpoint}
        query = rows.writeStream.format("konverse").options(**where, **into).trigger(availableNow=True).start()
        query.awaitTermination()
        taken = [progress["durationMs"]["triggerExecution"] / 1_000 for progress in query.recentProgress]
        session.stop()
    return {"batch_s": median(taken[WARM_UP_BATCHES:])}


CASES: Final = (
    Case(
        (Row("spark-micro-batch", "batch_s", "s"),),
        Run(product, Load(messages=40_000), prepare=fill.queue),
    ),
)
