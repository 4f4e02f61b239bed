"""What a task of `konverse verify --spark` sends to the driver."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import PySparkException

from konverse.schemas.errors import KafkaUnavailable, PartitionHalted
from konverse.spark.verifier_job import sent_verdict, unpacked, verdicts

EXTENT: Any = None


def reading(error: Exception) -> Any:
    def judge(_extent: Any, _view: Any) -> None:
        raise error

    return SimpleNamespace(judge=judge)


def test_a_log_that_cannot_be_judged_is_the_same_error_in_the_driver() -> None:
    """An exception of a task would be one of Spark there, and end the command with a traceback."""
    text = "the journal of orders/0 from offset 7 on needs fold rules 2"
    with pytest.raises(PartitionHalted, match=text):
        unpacked(sent_verdict(reading(PartitionHalted(text)), EXTENT, None))


def test_a_task_without_kafka_fails_so_that_spark_tries_it_again() -> None:
    with pytest.raises(KafkaUnavailable):
        sent_verdict(reading(KafkaUnavailable("Kafka is away")), EXTENT, None)


def test_a_task_that_has_failed_for_good_is_the_same_error_in_the_driver() -> None:
    """So the command ends with one line and with the exit code that it has without Spark."""

    def collect() -> None:
        told = "konverse.schemas.errors.KafkaUnavailable: no broker answers"
        raise PySparkException(
            f"Job aborted due to stage failure: Traceback (most recent call last):\n{told}\n\tat java"
        )

    frame = SimpleNamespace(mapInArrow=lambda _work, _schema: SimpleNamespace(collect=collect))
    spark: Any = SimpleNamespace(range=lambda _count, numPartitions: frame)  # noqa: N803  # Spark's own name
    verification: Any = SimpleNamespace(
        kafka=SimpleNamespace(settings=None), extents=[EXTENT], owners={}, since_ms=None
    )
    with pytest.raises(KafkaUnavailable, match=r"^no broker answers$"):
        list(verdicts(spark, verification, {}, lambda _: None))
