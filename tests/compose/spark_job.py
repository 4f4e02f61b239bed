"""A job for the Spark of the stack: one sum in the JVM, one in the workers' Python.

Given to `spark-submit` inside our image, which has no other file of the repository.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import SparkSession

NUMBERS: Final = 1_000_000
SQUARES: Final = 1_000


def main() -> None:
    spark = SparkSession.builder.appName("compose-check").getOrCreate()
    try:
        total = spark.range(NUMBERS).groupBy().sum("id").collect()[0][0]
        squares = spark.sparkContext.parallelize(range(SQUARES), 4).map(lambda number: number * number).sum()
        master = spark.sparkContext.master
    finally:
        spark.stop()
    assert total == NUMBERS * (NUMBERS - 1) // 2, total
    assert squares == sum(number * number for number in range(SQUARES)), squares
    print(f"two jobs on {master}")


if __name__ == "__main__":
    main()
