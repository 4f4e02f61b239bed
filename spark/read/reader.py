"""Batch reads: offsets from the options, one task for each partition, and the rows of a range."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from konverse.schemas.counting import counted
from konverse.schemas.errors import InvalidSettings, TopicMismatch
from konverse.spark.connection.settings import ConnectionSettings, Offsets, Position, Since, tag_of
from konverse.spark.log.acceptance import Acceptance
from konverse.spark.log.columns import COLUMNS, GROUP, Column, batch
from konverse.spark.log.contested import ContestedCount
from konverse.spark.log.ingest import Ingest, IngestedRows, RecordVerdict
from konverse.spark.log.states import States
from konverse.spark.log.topic import Bounds, Topic

log: Final = logging.getLogger("konverse.spark")


@dataclass(frozen=True)
class Range(InputPartition):
    """The part of a partition that one task reads.

    The log is judged from `log_start` on. The task gives the rows that are accepted from `first` up to, not including,
    `end`. A row of a batch is accepted where the log decides the batch, and keeps the offset at which it was written.
    """

    partition: int
    log_start: int
    first: int
    end: int
    only: frozenset[bytes] | None = None
    """Conversations whose rows are given; None: all."""
    tag: bytes | None = None
    """First four bytes of the incarnation whose records are judged; None: of any."""
    lasting: bool = False
    """Of a stream: truncation may delete records up to `end`, so the state at `end` has to be stored."""

    def may_hold_rows(self) -> bool:
        """Whether the range has offsets."""
        return self.first < self.end


def check_batch(settings: ConnectionSettings) -> None:
    """Raise InvalidSettings for an option that only a stream has."""
    for option in settings.of_streams:
        instead = ", and use `limit` to get fewer rows" if option == "maxRows" else ""
        raise InvalidSettings(f"option {option!r} is for streams; remove it{instead}")


class RangesReader(DataSourceReader):
    """A batch read of ranges of a topic, one for each partition."""

    def __init__(self, settings: ConnectionSettings) -> None:
        check_batch(settings)
        self._settings = settings

    def ranges(self) -> list[Range]:
        """One range for each partition with records to read. TopicMismatch when the topics are not the queue's."""
        queue = None
        if self._settings.queue is not None:
            from konverse.spark.connection.clients import check_queue  # noqa: PLC0415  # for the driver alone

            queue = check_queue(self._settings)
        with Topic(self._settings) as topic:
            known = topic.partitions()
            check_partitions(self._settings, known)
            wanted = self._settings.partitions
            bounds = topic.bounds([p for p in known if wanted is None or p in wanted])
            ranges = self._ranges(topic, bounds, tag_of(self._settings, queue))
        return [found for found in ranges if found.may_hold_rows()] or [NOTHING]

    def _ranges(self, topic: Topic, bounds: Mapping[int, Bounds], tag: bytes | None) -> list[Range]:
        settings, only = self._settings, self._settings.conversations
        first = _within(resolve(topic, "startingOffsets", settings.starting, bounds), bounds)
        end = _within(resolve(topic, "endingOffsets", settings.ending, bounds), bounds)
        for one in bounds:
            if first[one] > end[one]:
                raise InvalidSettings(
                    f"partition {one}: the start offset {first[one]} is after the end offset {end[one]}; "
                    "give 'startingOffsets' or 'startingTimestamp' before 'endingOffsets' or 'endingTimestamp'"
                )
        return [Range(one, bound.first, first[one], end[one], only, tag) for one, bound in bounds.items()]


class MessagesReader(RangesReader):
    """Messages of a queue, in Arrow batches of a few thousand records."""

    def __init__(self, settings: ConnectionSettings, schema: StructType) -> None:
        super().__init__(settings)
        self._schema = arrow_schema(schema)
        check_groups(settings, self._schema)

    def partitions(self) -> Sequence[InputPartition]:
        """A task for each range."""
        return self.ranges()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one range."""
        assert isinstance(partition, Range)
        with Topic(self._settings) as topic:
            yield from read_range(topic, partition, self._settings, self._schema)


ALLOCATIONS_UNTIL_COLLECTION: Final = 200_000
"""More objects than a fetch of the largest size keeps alive at any time."""

NOTHING: Final = Range(0, 0, 0, 0)
"""Spark runs at least one task; this one reads nothing."""


def read_range(
    topic: Topic,
    wanted: Range,
    settings: ConnectionSettings,
    schema: pa.Schema,
    states: States[Acceptance] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Judge a partition from its log start, or from the nearest state of `states`. Yields the rows that are wanted.

    Raises TopicMismatch, or warns, when a stream finds that rows of a batch were deleted before it gave them.
    """
    if not wanted.may_hold_rows():
        return
    found = states.newest(wanted.partition, wanted.log_start, wanted.first) if states else None
    begin, acceptance = found or (wanted.log_start, Acceptance(cut=wanted.log_start > 0))
    ingest = Ingest(acceptance, tag=wanted.tag, cut=wanted.log_start > 0)
    groups = _groups(settings, wanted.partition) if GROUP in map(str.lower, schema.names) else None
    with rare_collections(), contested_records(settings, wanted) as contested:
        if acceptance.waits_from is not None:
            for messages in topic.chunks(wanted.partition, max(acceptance.waits_from, wanted.log_start), begin):
                ingest.recall(messages)
        for messages in topic.chunks(wanted.partition, begin, wanted.end):
            judged = ingest.take(messages)
            contested.add(ingest.contested)
            for rows in judged:
                made = batch(rows._replace(groups=groups), schema, _kept(rows, wanted, settings))
                if made is not None:
                    yield made
    if states:
        lost_at = ingest.batches.lost_at
        if lost_at is not None and lost_at >= wanted.first:
            lose(settings, f"partition {wanted.partition}", f"lacks rows of a batch that was decided at {lost_at}")
        acceptance.waits_from = ingest.batches.oldest()
        states.keep(wanted.partition, wanted.first, wanted.end, acceptance, lasting=wanted.lasting)


def check_groups(settings: ConnectionSettings, schema: pa.Schema) -> None:
    """Raise InvalidSettings when the schema has the column of groups, and the options name a bare topic."""
    if settings.queue is None and GROUP in map(str.lower, schema.names):
        raise InvalidSettings(f"column {GROUP!r} needs a queue; give 'queue' and its 'database' instead of 'topic'")


def _groups(settings: ConnectionSettings, partition: int) -> dict[bytes, bytes]:
    from konverse.spark.log.columns import groups_of  # noqa: PLC0415  # for one column alone

    return groups_of(settings, partition)


def _kept(rows: IngestedRows, wanted: Range, settings: ConnectionSettings) -> NDArray[np.bool_]:
    """A mask of the rows that the range and the options ask for."""
    if rows.decided_at is None:
        keep = rows.offsets >= wanted.first
    else:
        keep = np.full(len(rows.offsets), wanted.first <= rows.decided_at)
    if not settings.include_all:
        keep &= rows.verdict == RecordVerdict.accepted
    if wanted.only is not None:
        identifiers = rows.frame.conversation
        keep &= np.isin(identifiers, np.frombuffer(b"".join(sorted(wanted.only)), identifiers.dtype)) & rows.decoded
    return keep


def lose(settings: ConnectionSettings, where: str, what: str) -> None:
    """Report records that were deleted before they were read: TopicMismatch, or a warning by `failOnDataLoss`."""
    lost = f"{where} of topic {settings.topic!r} {what}: records were deleted before they were read"
    if settings.fail_on_data_loss:
        raise TopicMismatch(f"{lost}. Set option 'failOnDataLoss' to 'false' to go on without them")
    log.warning("%s; the stream goes on without them", lost)


@contextmanager
def contested_records(settings: ConnectionSettings, wanted: Range) -> Iterator[ContestedCount]:
    """Count the contested records of a range. At the end of the block one warning names the offsets of the first."""
    count = ContestedCount(wanted.first)
    try:
        yield count
    finally:
        if count.first is not None:
            log.warning(
                "partition %d of topic %r: %s the writer and counter of an earlier record and other content, the first "
                "at offset %d; the earlier one is at %d. A foreign producer wrote in a sender's name. Receivers of the "
                "queue get both records, a read with 'include' = 'accepted' has only the earlier one: read with 'all', "
                "and take the rows with the verdict 'contested' too",
                wanted.partition,
                settings.topic,
                "1 record has" if count.records == 1 else f"{count.records} records have",
                count.first.second,
                count.first.first,
            )


@contextmanager
def rare_collections() -> Iterator[None]:
    """Run the garbage collector rarely in this block: a fetch makes thousands of short-lived tuples and no cycles.

    With Python's own thresholds the collector walks everything that pyspark has imported a dozen times per fetch, which
    takes half of the time.
    """
    before = gc.get_threshold()
    gc.set_threshold(ALLOCATIONS_UNTIL_COLLECTION, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def arrow_schema(schema: StructType, columns: Mapping[str, Column[Any]] = COLUMNS) -> pa.Schema:
    """The Arrow schema for a Spark schema of some of these columns.

    InvalidSettings for a schema without columns, with another column, or with another type. Columns are found in any
    case, and keep the spelling of the Spark schema.
    """
    if not schema.fields:
        raise InvalidSettings(f"the schema has no column; name some of {', '.join(columns)}")
    fields = []
    for field in schema.fields:
        column = columns.get(field.name.lower())
        if column is None:
            raise InvalidSettings(f"the format konverse has no column {field.name!r}; it has {', '.join(columns)}")
        if field.dataType.simpleString() != column.sql:
            found = field.dataType.simpleString()
            raise InvalidSettings(f"column {field.name!r} has the type {column.sql}, not {found}; correct the schema")
        fields.append(pa.field(field.name, column.arrow, nullable=field.nullable))
    return pa.schema(fields)


def check_partitions(settings: ConnectionSettings, known: list[int]) -> None:
    """Raise InvalidSettings when the options name a partition that the topic does not have."""
    for option, offsets in (("startingOffsets", settings.starting), ("endingOffsets", settings.ending)):
        unknown = sorted(set(offsets.partitions) - set(known))
        if unknown:
            raise InvalidSettings(
                f"option {option!r} names partition {unknown[0]}; topic {settings.topic!r} has "
                f"{counted(len(known), 'partition')}"
            )
    unknown = sorted((settings.partitions or frozenset()) - set(known))
    if unknown:
        raise InvalidSettings(
            f"option 'partitions' names partition {unknown[0]}; topic {settings.topic!r} has "
            f"{counted(len(known), 'partition')}"
        )


def resolve(topic: Topic, option: str, offsets: Offsets, bounds: Mapping[int, Bounds]) -> dict[int, int]:
    """The offset at which reading starts or ends, by partition; InvalidSettings for an offset outside of the log."""
    times = {one: position.time_ms for one in bounds if isinstance(position := offsets.of(one), Since)}
    found = topic.since(times) if times else {}
    return {one: found[one] if one in found else _offset(option, offsets.of(one), one, bounds[one]) for one in bounds}


def _within(offsets: Mapping[int, int], bounds: Mapping[int, Bounds]) -> dict[int, int]:
    """The offsets, at most the ends of the logs as planned: a time is looked up later, when a log may be longer."""
    return {one: min(offset, bounds[one].end) for one, offset in offsets.items()}


def _offset(option: str, position: Position, partition: int, bound: Bounds) -> int:
    if position == "earliest":
        return bound.first
    if position == "latest":
        return bound.end
    assert not isinstance(position, Since)
    if not bound.first <= position <= bound.end:
        raise InvalidSettings(
            f"option {option!r} asks for offset {position} of partition {partition}, which holds "
            f"{bound.first} up to {bound.end}; give an offset in that range, 'earliest' or 'latest'"
        )
    return position
