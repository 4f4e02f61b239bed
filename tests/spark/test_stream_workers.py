"""Streams whose workers die, and concurrent streams: each message once."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from konverse.spark.read.stream import MessagesStreamReader
from konverse.spark.source import KonverseDataSource
from tests.kit.builders import Scribe, identifier
from tests.spark.conftest import NewLog
from tests.spark.logs import ORDERS

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.xdist_group("spark"), pytest.mark.timeout(300)]

CONVERSATION: Final = identifier("a conversation")
COUNT: Final = 12_000
"""More than a task hands over at once."""


def deadly(folder: Path) -> type[KonverseDataSource]:
    """The format under another name. Its first worker dies after handing over some of its rows."""

    class DeadlyReader(MessagesStreamReader):
        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            for batch in super().read(partition):
                yield batch
                if not (folder / "died").exists():
                    (folder / "died").write_text(str(batch.num_rows))
                    os.kill(os.getpid(), signal.SIGKILL)

    class Deadly(KonverseDataSource):
        @classmethod
        def name(cls) -> str:
            return "deadly"

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  # as Spark calls it
            return DeadlyReader(self._settings, schema)

    return Deadly


def gathering(got: list[tuple[int, int]]) -> Callable[[DataFrame, int], None]:
    """Collects the micro-batch and counter of each row."""

    def gather(frame: DataFrame, number: int) -> None:
        got.extend((number, row["counter"]) for row in frame.select("counter").collect())

    return gather


def started(frame: DataFrame, checkpoint: Path, got: list[tuple[int, int]]) -> StreamingQuery:
    writer = frame.writeStream.foreachBatch(gathering(got)).option("checkpointLocation", str(checkpoint))
    return writer.trigger(availableNow=True).start()


def ended(*queries: StreamingQuery) -> None:
    for query in queries:
        try:
            assert query.awaitTermination(240)
        finally:
            query.stop()


def test_a_query_continues_after_a_worker_is_killed_in_a_micro_batch(
    spark: SparkSession, new_log: NewLog, tmp_path: Path
) -> None:
    log, scribe = new_log(), Scribe("writer")
    sent = [scribe.message(ORDERS, CONVERSATION) for _ in range(COUNT)]
    log.fill([*sent[:9_000], *sent[5:10], *sent[9_000:], sent[0]])
    spark.dataSource.register(deadly(tmp_path))
    options: dict[str, Any] = log.options(stateFolder=str(tmp_path / "states"), maxRows="10000")
    got: list[tuple[int, int]] = []
    ended(started(spark.readStream.format("deadly").options(**options).load(), tmp_path / "checkpoint", got))
    assert 0 < int((tmp_path / "died").read_text()) < 10_000, "it died in the middle"
    assert {number for number, _ in got} == {0, 1}, "in one run"
    assert sorted(counter for _, counter in got) == [*range(COUNT)]


def test_two_streams_of_a_topic_do_not_disturb_each_other(spark: SparkSession, new_log: NewLog, tmp_path: Path) -> None:
    log, scribe = new_log(), Scribe("writer")
    sent = [scribe.message(ORDERS, CONVERSATION) for _ in range(30)]
    log.fill([*sent[:20], *sent[:5], *sent[20:]])
    options: dict[str, Any] = log.options(stateFolder=str(tmp_path / "states"))
    one: list[tuple[int, int]] = []
    two: list[tuple[int, int]] = []
    frames = [spark.readStream.format("konverse").options(**options, maxRows=most).load() for most in ("20", "12")]
    ended(
        started(frames[0], tmp_path / "one", one),
        started(frames[1], tmp_path / "two", two),
    )
    for got, batches in ((one, 2), (two, 3)):
        assert sorted(counter for _, counter in got) == [*range(30)]
        assert len({number for number, _ in got}) == batches
    states = [folder.name for folder in (tmp_path / "states").iterdir()]
    assert len(states) == 2, f"each has its own states: {states}"
