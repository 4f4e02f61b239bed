"""`konverse verify --spark`: each task reads and judges a partition, and the driver compares their verdicts.

Tasks use the verifier's own judge. A task sends its whole verdict, compressed: some hundred bytes for each message.
"""

from __future__ import annotations

import os
import pickle
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Final

from konverse.bridge.kafka.clients import Kafka
from konverse.bridge.kafka.log_reader import LogReader
from konverse.bridge.verifier.check import PartitionVerdict
from konverse.bridge.verifier.reading import Extent, Judged, PartitionReader, Progress, Verification, Views
from konverse.bridge.verifier.view import Shown
from konverse.schemas.errors import PartitionHalted
from konverse.spark.connection.requirements import require

from .session import local_session

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

_LARGE: Final = {"spark.driver.maxResultSize": "0"}
"""No bound on the size of results: the driver needs every verdict, and they grow with the logs."""

_SCHEMA: Final = "number bigint, verdict binary"


def spread(master: str | None) -> Judged:
    """A judge that runs on the Spark cluster at `master`, or on this machine. Raises NotInstalled."""
    require()

    def judged(verification: Verification, views: Views, progress: Progress) -> Iterator[PartitionVerdict]:
        with _session(master) as session:
            yield from verdicts(session, verification, views, progress)

    return judged


def verdicts(
    spark: SparkSession, verification: Verification, views: Views, progress: Progress
) -> Iterator[PartitionVerdict]:
    """The verdict of each partition, in their order.

    Raises PartitionHalted for logs of newer fold rules, and the error of konverse that made a task fail for good.
    """
    import pyarrow as pa  # noqa: PLC0415  # it may be absent, and `spread` has said how to get it
    from pyspark.errors import PySparkException  # noqa: PLC0415  # as above

    from .receive.mapping import own_error  # noqa: PLC0415  # as above

    settings, extents = verification.kafka.settings, verification.extents
    owners, since_ms = verification.owners, verification.since_ms

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with closing(LogReader(Kafka(settings))) as log:
            reading = PartitionReader(log, owners, since_ms)
            for batch in batches:
                for number in batch.column("id").to_pylist():
                    place = extents[number].place
                    verdict = sent_verdict(reading, extents[number], views.get((place.topic, place.partition)))
                    yield pa.RecordBatch.from_pydict({"number": [number], "verdict": [verdict]})

    numbers = spark.range(len(extents), numPartitions=len(extents))
    try:
        rows = sorted(numbers.mapInArrow(work, _SCHEMA).collect())
    except PySparkException as error:
        raise own_error(error) or error from None
    for row in rows:
        progress(extents[row.number].records)
        yield unpacked(row.verdict)


def sent_verdict(reading: PartitionReader, extent: Extent, view: Shown | None) -> bytes:
    """The verdict of a partition, or the PartitionHalted that stands in its place, as a task sends it."""
    try:
        return packed(reading.judge(extent, view))
    except PartitionHalted as error:  # in the driver it would be an exception of Spark, with a traceback
        return packed(error)


def packed(verdict: PartitionVerdict | PartitionHalted) -> bytes:
    """A verdict as a task sends it to the driver."""
    return zlib.compress(pickle.dumps(verdict, pickle.HIGHEST_PROTOCOL), 1)


def unpacked(sent: bytes) -> PartitionVerdict:
    """The verdict that a task has sent. Raises the PartitionHalted that it has sent."""
    verdict: PartitionVerdict | PartitionHalted = pickle.loads(zlib.decompress(sent))  # noqa: S301  # our own tasks
    if isinstance(verdict, PartitionHalted):
        raise verdict
    return verdict


@contextmanager
def _session(master: str | None) -> Iterator[SparkSession]:
    """The active session of this process, or a new one that is stopped afterwards."""
    from pyspark.sql import SparkSession  # noqa: PLC0415  # after `require`

    found = SparkSession.getActiveSession()
    if found is not None:
        yield found
        return
    made = local_session("konverse verify", cores=os.cpu_count() or 1, master=master, config=_LARGE)
    try:
        yield made
    finally:
        made.stop()
