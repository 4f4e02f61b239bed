"""The time of acceptance is an event time: a watermark drops no row of a job that was decided late."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from konverse.schemas.wire.batches import encode_winners
from konverse.schemas.wire.records import Decision, Kind, Suffix
from tests.kit.batches import QUERY, Query
from tests.kit.builders import Scribe, identifier
from tests.spark.conftest import NewLog
from tests.spark.logs import ORDERS, Log

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.xdist_group("spark"), pytest.mark.timeout(300)]

CONVERSATION: Final = identifier("a conversation")
JOBS: Final = 2
ROWS: Final = 10
DIRECT: Final = 20
LATE_MS: Final = 60_000
"""Time between the writing of a job's rows and their decision."""


def late(log: Log) -> int:
    """Write rows of jobs that are decided much later, with messages in between. Returns how many count."""
    query, scribe = Query(), Scribe("writer")
    now_ms = round(time.time() * 1000) - JOBS * LATE_MS
    log.write(scribe.message(ORDERS, CONVERSATION), timestamp=now_ms)
    for batch in range(JOBS):
        task = query.task(0, f"attempt {batch}", batch)
        for number in range(ROWS):
            header, body = query.message(task, CONVERSATION, b"%d" % number)
            log.write(header, body=body, timestamp=now_ms)
        now_ms += LATE_MS
        for _ in range(DIRECT):
            log.write(scribe.message(ORDERS, CONVERSATION), timestamp=now_ms)
        suffix = Suffix(detail=Decision(QUERY, batch, begins=False, final=True))
        decision = query.judge.write(Kind.DECISION, ORDERS, QUERY, suffix=suffix)
        log.write(decision, body=encode_winners(((task.attempt, ROWS),)), timestamp=now_ms)
    return 1 + JOBS * (ROWS + DIRECT)


def counted(spark: SparkSession, log: Log, event_time: str, folder: Path) -> int:
    """Rows that a stream counts in windows, with a watermark of one second."""
    frame = spark.readStream.format("konverse").options(**log.options(maxRows="9")).load()
    windows = frame.withWatermark(event_time, "1 second").groupBy(f.window(event_time, "10 seconds")).count()
    counts: dict[object, int] = {}

    def gather(some: DataFrame, _: int) -> None:
        counts.update({row["window"]: row["count"] for row in some.collect()})

    writer = windows.writeStream.outputMode("update").foreachBatch(gather)
    query = writer.option("checkpointLocation", str(folder / event_time)).trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(120)
    finally:
        query.stop()
    return sum(counts.values())


def test_a_stream_with_a_short_watermark_counts_every_row_of_jobs_that_are_decided_late(
    spark: SparkSession, new_log: NewLog, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    log = new_log()
    whole = late(log)
    request.addfinalizer(lambda: spark.conf.unset("spark.sql.shuffle.partitions"))  # only this setting
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    assert counted(spark, log, "accepted_time", tmp_path) == whole
    assert counted(spark, log, "timestamp", tmp_path) < whole, "rows that were decided late are dropped"
    assert log.read(spark).where("accepted_time is null").count() == 0
