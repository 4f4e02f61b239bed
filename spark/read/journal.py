"""Mode `journal`: a row for each decision of the owners of a queue's partitions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from konverse.bridge.kafka.columns import journal_record
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.errors import InvalidSettings
from konverse.schemas.identifiers import LogIdentity, journal_topic
from konverse.spark.connection.settings import ConnectionSettings
from konverse.spark.log.decisions import COLUMNS, DecisionJudge, DecisionRow, JournalVerdict, rows
from konverse.spark.log.states import States
from konverse.spark.log.topic import Topic

from .reader import Range, RangesReader, arrow_schema

ROWS_MAX: Final = 8_192
"""Rows of one Arrow batch."""


@dataclass(frozen=True)
class JournalPart(InputPartition):
    """The range that one task reads, and the identity of the log, which a valid CLAIM must name."""

    range: Range
    identity: LogIdentity


def of_journal(settings: ConnectionSettings) -> ConnectionSettings:
    """The settings for reading the journal instead of the data; InvalidSettings without a queue."""
    if settings.queue is None:
        raise InvalidSettings("mode 'journal' needs a queue; give 'queue' and its 'database' instead of 'topic'")
    return replace(settings, topic=journal_topic(settings.topic))


def parts(queue: Queue, ranges: Sequence[Range]) -> list[JournalPart]:
    """A task for each range."""
    return [JournalPart(one, queue.log_identity(one.partition)) for one in ranges]


class JournalReader(RangesReader):
    """The journal of each partition of a queue."""

    def __init__(self, settings: ConnectionSettings, schema: StructType) -> None:
        super().__init__(of_journal(settings))
        self._schema = arrow_schema(schema, COLUMNS)

    def partitions(self) -> Sequence[InputPartition]:
        """A task for each partition whose journal has something to read."""
        from konverse.spark.connection.clients import queue_of  # noqa: PLC0415  # for the driver alone

        return parts(queue_of(self._settings), self.ranges())

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one range."""
        assert isinstance(partition, JournalPart)
        with Topic(self._settings) as topic:
            yield from read_part(topic, partition, self._schema, include_all=self._settings.include_all)


def read_part(
    topic: Topic,
    part: JournalPart,
    schema: pa.Schema,
    *,
    include_all: bool,
    states: States[DecisionJudge] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Judge a journal from its start, or from the nearest state of `states`. Yields the rows from `first` on."""
    wanted = part.range
    if wanted.first >= wanted.end:
        return
    found = states.newest(wanted.partition, wanted.log_start, wanted.first) if states else None
    begin, decisions = found or (wanted.log_start, DecisionJudge(part.identity, cut=wanted.log_start > 0))
    waiting: list[DecisionRow] = []
    for messages in topic.chunks(wanted.partition, begin, wanted.end):
        for record in map(journal_record, messages):
            judged = decisions.judge(record)
            if record.offset >= wanted.first and (include_all or judged.verdict is JournalVerdict.accepted):
                for row in rows(wanted.partition, judged):
                    waiting.append(row)
                    if len(waiting) == ROWS_MAX:
                        yield _batch(waiting, schema)
                        waiting.clear()
    if waiting:
        yield _batch(waiting, schema)
    if states:
        behind = wanted.end if decisions.parts_from is None else decisions.parts_from
        states.keep(wanted.partition, wanted.first, behind, decisions.copy(), lasting=wanted.lasting)


def _batch(waiting: list[DecisionRow], schema: pa.Schema) -> pa.RecordBatch:
    arrays = [pa.array(map(COLUMNS[field.name.lower()].make, waiting), field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
