"""A batch read: which offsets of which partitions, and one task for each partition."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from konverse.schemas.errors import InvalidSettings

from .columns import COLUMNS, batch
from .filters import Selection, select
from .ingest import Ingest, Verdict
from .settings import Offsets, Position, Settings
from .topic import Bounds, Topic

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter


@dataclass(frozen=True)
class Range(InputPartition):
    """What one task reads: the log is judged from `log_start`, rows are given from `first` up to `end`."""

    partition: int
    log_start: int
    first: int
    end: int


class MessagesReader(DataSourceReader):
    """Messages of a queue, one Arrow batch per few thousand records."""

    def __init__(self, settings: Settings, schema: StructType) -> None:
        self._settings = settings
        self._schema = arrow_schema(schema)
        self._selection = Selection()

    def partitions(self) -> Sequence[InputPartition]:
        """One range for each partition that has something to read."""
        with Topic(self._settings) as topic:
            known = topic.partitions()
            _check_partitions(self._settings, known)
            wanted = self._selection.partitions
            bounds = topic.bounds([p for p in known if wanted is None or p in wanted])
        ranges = [self._range(partition, bound) for partition, bound in bounds.items()]
        return [found for found in ranges if found.first < found.end] or [NOTHING]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one range."""
        assert isinstance(partition, Range)
        with Topic(self._settings) as topic:
            yield from read_range(topic, partition, self._settings, self._schema)

    def _range(self, partition: int, bound: Bounds) -> Range:
        settings = self._settings
        first = _resolve("startingOffsets", settings.starting, partition, bound)
        end = _resolve("endingOffsets", settings.ending, partition, bound)
        selection = self._selection
        return Range(partition, bound.first, max(first, selection.first), min(end, selection.end))


class FilteredMessagesReader(MessagesReader):
    """The same, for a session with `spark.sql.python.filterPushdown.enabled`."""

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:
        """Take filters on partition and offset; leave the others to Spark."""
        self._selection, rest = select(self._selection, filters)
        return rest


ALLOCATIONS_UNTIL_COLLECTION: Final = 200_000
"""More than a fetch of the largest size leaves behind at any time."""

NOTHING: Final = Range(0, 0, 0, 0)
"""Spark runs at least one task; this one reads nothing."""


def read_range(topic: Topic, wanted: Range, settings: Settings, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Judge a partition from its log start; give the rows from `first` on."""
    ingest = Ingest(tag=settings.tag, cut=wanted.log_start > 0)
    if wanted.first >= wanted.end:
        return
    with rare_collections():
        for messages in topic.chunks(wanted.partition, wanted.log_start, wanted.end):
            rows = ingest.take(messages)
            keep = rows.offsets >= wanted.first
            if not settings.include_all:
                keep &= rows.verdict == Verdict.accepted
            made = batch(rows, schema, keep)
            if made is not None:
                yield made


@contextmanager
def rare_collections() -> Iterator[None]:
    """Let the garbage collector wait: a fetch makes thousands of short-lived tuples and no cycles.

    With Python's own thresholds it walks all that pyspark ever imported a dozen times per fetch, and takes half of the
    time.
    """
    before = gc.get_threshold()
    gc.set_threshold(ALLOCATIONS_UNTIL_COLLECTION, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow form of a schema of ours, or of some of its columns; InvalidSettings for anything else."""
    fields = []
    for field in schema.fields:
        column = COLUMNS.get(field.name)
        if column is None:
            raise InvalidSettings(f"the format konverse has no column {field.name!r}; it has {', '.join(COLUMNS)}")
        if field.dataType.simpleString() != column.sql:
            found = field.dataType.simpleString()
            raise InvalidSettings(f"column {field.name!r} has the type {column.sql}, not {found}; correct the schema")
        fields.append(pa.field(field.name, column.arrow, nullable=field.nullable))
    return pa.schema(fields)


def _check_partitions(settings: Settings, known: list[int]) -> None:
    for option, offsets in (("startingOffsets", settings.starting), ("endingOffsets", settings.ending)):
        unknown = sorted(set(offsets.partitions) - set(known))
        if unknown:
            raise InvalidSettings(
                f"option {option!r} names partition {unknown[0]}; topic {settings.topic!r} has {len(known)} partitions"
            )


def _resolve(option: str, offsets: Offsets, partition: int, bound: Bounds) -> int:
    position: Position = offsets.of(partition)
    if position == "earliest":
        return bound.first
    if position == "latest":
        return bound.end
    if not bound.first <= position <= bound.end:
        raise InvalidSettings(
            f"option {option!r} asks for offset {position} of partition {partition}, which holds "
            f"{bound.first} up to {bound.end}; give an offset in that range, 'earliest' or 'latest'"
        )
    return position
