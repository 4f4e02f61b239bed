"""A job with Spark's own Kafka source, in a driver of its own, because no other session needs its jars.

python -m tests.spark.kafka_job BOOTSTRAP DATABASE RECORDS ORDERS FOLDER

RECORDS is a topic of ours. The job prints as JSON the rows of `decode` and those of our format. The records of ORDERS
are streamed into the order service, with the checkpoint FOLDER.
"""

from __future__ import annotations

import json
import sys
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from konverse.deploy.java.jars import spark_connector_jars
from konverse.deploy.java.java import find_java, spark_java_home
from konverse.spark import decode
from konverse.spark.session import local_session
from tests.kit.shop import ORDER, ORDER_SERVICE, ORDERING, SHOP_SERVICE

BATCH: Final = 8
"""Most records of a micro-batch, so that there are several."""


def main() -> None:
    """Run the job of the arguments."""
    bootstrap, database, records, orders, folder = sys.argv[1:]
    java = find_java()
    jars = ",".join(map(str, sorted(spark_connector_jars(java).glob("*.jar"))))
    session = local_session(
        "konverse beside Spark's Kafka source", java_home=spark_java_home(java), config={"spark.jars": jars}
    )
    source = {"kafka.bootstrap.servers": bootstrap, "startingOffsets": "earliest", "includeHeaders": "true"}
    theirs = decode(session.read.format("kafka").options(**source, subscribe=records).load())
    ours = (
        session.read.format("konverse")
        .options(bootstrap=bootstrap, topic=records, include="all")
        .load()
        .drop("accepted_time")
    )
    said = {"decoded": rows(theirs, ours.drop("verdict").columns), "read": rows(ours, ours.columns)}
    for _ in range(2):  # the second time there is nothing left to write
        copy(session, {**source, "subscribe": orders}, {"bootstrap": bootstrap, "database": database}, folder)
    print(json.dumps(said))
    session.stop()


def rows(frame: DataFrame, columns: list[str]) -> list[dict[str, Any]]:
    """These columns, by partition and offset; values that JSON lacks are written as Python text."""
    found = sorted(frame.select(columns).collect(), key=lambda row: (row["partition"], row["offset"]))
    return [json.loads(json.dumps(row.asDict(recursive=True), default=repr)) for row in found]


def copy(session: SparkSession, source: dict[str, str], place: dict[str, str], folder: str) -> None:
    """Write each record as an order, with a conversation for its key."""
    records = session.readStream.format("kafka").options(**source, maxOffsetsPerTrigger=BATCH).load()
    made = records.selectExpr("key", "value AS body", "headers")
    into = {"from_service": SHOP_SERVICE, "contract": ORDERING, "to_service": ORDER_SERVICE, "message_type": ORDER}
    writer = made.writeStream.format("konverse").options(**place, **into, checkpointLocation=folder)
    writer.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main()
