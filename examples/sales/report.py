"""Spark reads the queue's topic: sales per region, and a ledger of the conversations."""

from __future__ import annotations

import sys
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.console import Console
from rich.table import Table

from konverse.deploy.java.java import find_java, spark_java_home
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


def table(title: str, frame: DataFrame, rows: int) -> Table:
    """The first rows of a frame as a table for the terminal."""
    out = Table(title=title, title_justify="left")
    for name in frame.columns:
        out.add_column(name, justify="right")
    for row in frame.limit(rows).collect():
        out.add_row(*map(_shown, row))
    return out


def _shown(value: Any) -> str:
    if isinstance(value, bytes | bytearray):
        return bytes(value).hex()[:8] + "…"
    return f"{value:,}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)


def main(bootstrap: str, database: str) -> None:
    """Print both tables."""
    spark = local_session("konverse sales", java_home=spark_java_home(find_java()))
    try:
        orders = messages(spark, bootstrap, database).cache()
        console = Console()
        console.print(table("Sales per region (Spark, from the queue's topic)", sales_per_region(orders), 20))
        ledger = conversations(orders)
        console.print(table(f"Ledger: the largest of {ledger.count():,} conversations", _largest(ledger), 5))
    finally:
        spark.stop()


def _largest(ledger: DataFrame) -> DataFrame:
    return ledger.orderBy(F.desc("messages"))


if __name__ == "__main__":
    main(*sys.argv[1:])
