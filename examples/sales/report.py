"""Spark reads the queue's topic: sales per region, and a ledger of the conversations."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from datetime import datetime
from typing import Any
from uuid import UUID

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from konverse.bridge.cli.tables import print_table
from konverse.deploy.java.java import find_java, spark_java_home
from konverse.schemas.counting import counted
from konverse.spark.read.ledger import conversations
from konverse.spark.session import local_session


def messages(spark: SparkSession, bootstrap: str, database: str) -> DataFrame:
    """The orders that the order service received."""
    reader = spark.read.format("konverse").option("bootstrap", bootstrap)
    return reader.option("database", database).option("queue", "Orders").load()


def sales_per_region(orders: DataFrame) -> DataFrame:
    """Orders, items and turnover of each region."""
    text = F.col("body").cast("string")
    value = F.get_json_object
    lines = orders.where(F.col("kind") == "MESSAGE").select(
        F.coalesce(value(text, "$.region"), F.lit("(none)")).alias("region"),
        value(text, "$.quantity").cast("double").alias("quantity"),
        value(text, "$.unit_price").cast("double").alias("unit_price"),
    )
    return (
        lines.groupBy("region")
        .agg(
            F.count("*").alias("orders"),
            F.sum("quantity").alias("items"),
            F.round(F.sum(F.col("quantity") * F.col("unit_price")), 2).alias("turnover"),
        )
        .orderBy(F.desc("orders"))
    )


def print_rows(title: str, columns: Iterable[str], rows: Iterable[Iterable[Any]]) -> None:
    """Print rows of Spark as a table, or as paragraphs in a terminal that is too narrow for it."""
    print_table(title, columns, [[_shown(cell) for cell in row] for row in rows])


def _shown(value: Any) -> object:
    match value:
        case bytes() | bytearray():
            return UUID(bytes=bytes(value))
        case bool():  # bool is a subclass of int
            return str(value)
        case float():
            return f"{value:,}"
        case datetime():
            return f"{value:%Y-%m-%d %H:%M:%S}"
        case _:
            return value


def main(bootstrap: str, database: str) -> None:
    """Print both tables."""
    spark = local_session("konverse sales", java_home=spark_java_home(find_java()))
    try:
        orders = messages(spark, bootstrap, database).cache()
        sales = sales_per_region(orders)
        print_rows("Sales per region (Spark, from the queue's topic)", sales.columns, sales.limit(20).collect())
        ledger = conversations(orders)
        largest = ledger.orderBy(F.desc("messages")).limit(5).collect()
        print_rows(f"Ledger: the largest of {counted(ledger.count(), 'conversation')}", ledger.columns, largest)
    finally:
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
