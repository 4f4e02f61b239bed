"""Mode `journal` as a stream."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from konverse.schemas.limits import COMMIT_PARTS_MAX
from konverse.spark.connection.settings import ConnectionSettings
from konverse.spark.log.decisions import COLUMNS, JudgeState
from konverse.spark.log.states import States
from konverse.spark.log.topic import Topic

from .journal import JournalPart, of_journal, parts, read_part
from .reader import arrow_schema
from .registration import Registration
from .stream import Position, RangesStreamReader, StreamRange


class JournalStreamReader(RangesStreamReader):
    """The decisions of the owners as they are appended."""

    def __init__(self, settings: ConnectionSettings, schema: StructType) -> None:
        super().__init__(of_journal(settings))
        self._schema = arrow_schema(schema, COLUMNS)
        self._data_topic = settings.topic
        self._records_before = COMMIT_PARTS_MAX  # a micro-batch may end between two parts of a COMMIT

    def partitions(self, start: Position, end: Position) -> Sequence[InputPartition]:  # type: ignore[override]
        """A task for each range. The queue is looked up once: `ranges` notices when it was created again."""
        from konverse.spark.connection.clients import queue_of  # noqa: PLC0415  # for the driver alone

        ranges = self.ranges(start, end)
        if self._queue is None:
            self._queue = queue_of(self._settings)
        return parts(self._queue, ranges)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one range."""
        assert isinstance(partition, JournalPart)
        wanted = partition.range
        assert isinstance(wanted, StreamRange)
        place = (wanted.topic, wanted.reader, "journal")
        states = States(self._settings.state_folder, *place, JudgeState(partition.identity))
        with Topic(self._settings) as topic:
            yield from read_part(topic, partition, self._schema, include_all=self._settings.include_all, states=states)

    def _registered(self, reader: str) -> Registration:
        return Registration(self._settings, reader, self._data_topic)
