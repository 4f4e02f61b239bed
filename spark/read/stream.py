"""Streaming reads: the position in the checkpoint, bounded micro-batches, and tasks that go on from stored states."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NotRequired, TypedDict
from uuid import uuid4

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from konverse.schemas.catalog.objects import Queue
from konverse.schemas.errors import InvalidSettings, TopicMismatch, UnknownObject
from konverse.spark.connection.settings import ConnectionSettings, Mode, tag_of
from konverse.spark.log.states import ACCEPTANCES, States
from konverse.spark.log.topic import Bounds, Topic

from .reader import Range, arrow_schema, check_groups, check_partitions, lose, read_range, resolve
from .registration import Registration


class Position(TypedDict):
    """The position of a stream, as JSON in its checkpoint."""

    topic: str
    """Kafka's id of the topic."""
    name: NotRequired[str]
    """Name of the topic."""
    reader: str
    """Id of this stream, which stays the same through restarts."""
    partitions: dict[str, int]
    """The next offset of each partition; strings, as JSON has no other keys."""
    states: NotRequired[dict[str, int]]
    """Offset of each partition at which its state is stored after the micro-batch. Truncation may delete up to it."""


@dataclass(frozen=True, kw_only=True)
class StreamRange(Range):
    """A part of a micro-batch: records of one partition."""

    topic: str
    reader: str


STATE_RECORDS: Final = 10_000
STATE_EVERY_S: Final = 60.0
"""The state of a partition is stored after this many records, or this long, however large it is."""

TASK_RECORDS: Final = 500
"""Ranges share a task up to this many records together, as starting a task costs more than reading them. A larger range
has a task of its own."""


@dataclass(frozen=True)
class Ranges(InputPartition):
    """The ranges that one task of a micro-batch reads, one after the other."""

    ranges: tuple[StreamRange, ...]


class RangesStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The ranges of a topic in each micro-batch. The driver's reader lives as long as the stream; tasks get copies."""

    def __init__(self, settings: ConnectionSettings) -> None:
        if settings.mode in (Mode.CONVERSATIONS, Mode.RETURNED):
            raise InvalidSettings(
                f"a stream gives messages or a journal; read mode {settings.mode.value!r} with spark.read"
            )
        if settings.ending.default != "latest" or settings.ending.partitions:
            raise InvalidSettings(
                "a stream has no end, so 'endingOffsets' and 'endingTimestamp' do not apply; remove them, and "
                "use the trigger availableNow to read what is there"
            )
        if settings.partitions is not None or settings.conversations is not None:
            raise InvalidSettings(
                "options 'partitions' and 'conversations' choose what a batch reads; remove them, and filter the stream"
            )
        self._settings = settings
        self._topic: Topic | None = None
        self._registration: Registration | None = None
        self._initial: Position | None = None
        self._stop_at: dict[str, int] | None = None
        self._state_due_s: dict[str, float] = {}
        self._records_before = 0
        """Number of records before a position that its first rows may need."""
        self._queue: Queue | None = None
        """The queue as the catalog has it; None for a bare topic, and for a queue that is in no catalog."""
        self._checked = False
        """The queue was looked up since this stream was started."""
        self._known = False
        """The topic was compared with the one of the checkpoint since this stream was started."""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_topic": None, "_registration": None}

    def initialOffset(self) -> Position:  # type: ignore[override]  # a dict in JSON
        """The position at which a new stream begins, by the options. Spark calls this twice, and needs one answer."""
        if self._initial is not None:
            return self._initial
        self._check_queue()
        bounds = self._bounds()
        settings = self._settings
        check_partitions(settings, [*bounds])
        begin = resolve(self._opened(), "startingOffsets", settings.starting, bounds)
        log_starts = _named({partition: bound.first for partition, bound in bounds.items()})
        self._initial = Position(
            topic=self._topic_id(),
            name=settings.topic,
            reader=uuid4().hex,
            partitions=_named(begin),
            states=log_starts,
        )
        if self._stop_at is not None:  # Spark asks for the ends first, and records may have come since
            begins = self._initial["partitions"]
            self._stop_at = {name: max(end, begins.get(name, end)) for name, end in self._stop_at.items()}
        return self._initial

    def latestOffset(self, start: Position, limit: ReadLimit) -> Position:  # type: ignore[override]  # a dict in JSON
        """The end of the next micro-batch."""
        if not self._known:
            self._check_queue()
            self._check_topic(start)
            self._known = True
        self._needs(start)  # also while nothing comes, or Kafka would forget the registration
        ends = self._ends()
        begin = {partition: start["partitions"].get(partition, 0) for partition in ends}
        shorter = [partition for partition, end in ends.items() if end < begin[partition]]
        if shorter:
            self._check_topic(start)
        for partition in shorter:
            lose(
                self._settings,
                f"partition {partition}",
                f"ends at {ends[partition]}, before the checkpoint's {begin[partition]}",
            )
            begin[partition] = ends[partition]
        if isinstance(limit, ReadMaxRows):
            ends = _shared(begin, ends, limit.max_rows)
        states = self._states(start, begin, ends)
        return {**start, "partitions": ends, "states": states}

    def _states(self, start: Position, begin: Mapping[str, int], ends: Mapping[str, int]) -> dict[str, int]:
        """Offsets at which states are stored once the tasks up to `ends` are done.

        The first state of each partition in a run is always stored. The offsets are kept in the checkpoint, so that
        after a restart the micro-batch's tasks store the same states.
        """
        written, now_s = dict(_states_of(start)), time.monotonic()
        for name, end in ends.items():
            due = end - written.get(name, 0) >= STATE_RECORDS or now_s >= self._state_due_s.get(name, 0.0)
            if begin[name] < end and due:
                written[name] = end
                self._state_due_s[name] = now_s + STATE_EVERY_S
        return written

    def getDefaultReadLimit(self) -> ReadLimit:
        """The limit by `maxRows`, which counts records: a micro-batch has fewer rows when some are not messages."""
        most = self._settings.max_rows
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:
        """Let this run end at the current ends of the logs."""
        self._stop_at = self._ends()

    def ranges(self, start: Position, end: Position) -> list[StreamRange]:
        """One range for each partition with new records."""
        self._check_topic(start)
        if not self._checked:  # a restart begins with the ranges of a micro-batch that the former run has planned
            self._check_queue()
        bounds, tag = self._bounds(), tag_of(self._settings, self._queue)
        self._needs(start)
        ranges = []
        for name, until in end["partitions"].items():
            partition, first = int(name), start["partitions"].get(name, 0)
            if first < until:
                reach = (partition, bounds[partition].first, *self._spared(partition, first, until, bounds[partition]))
                lasting = _states_of(end).get(name) == until
                ranges.append(
                    StreamRange(*reach, tag=tag, lasting=lasting, topic=start["topic"], reader=start["reader"])
                )
        return ranges

    def commit(self, end: Position) -> None:  # type: ignore[override]  # a dict in JSON
        """Release the records before `end` for truncation."""
        self._needs(end)

    def stop(self) -> None:
        """Close the clients of the driver."""
        for client in (self._topic, self._registration):
            if client is not None:
                client.close()
        self._topic = self._registration = None

    def _opened(self) -> Topic:
        if self._topic is None:
            self._topic = Topic(self._settings)
        return self._topic

    def _bounds(self) -> dict[int, Bounds]:
        topic = self._opened()
        try:
            known = topic.partitions()
        except UnknownObject:
            self._check_known()
            raise
        return topic.bounds(known)

    def _ends(self) -> dict[str, int]:
        if self._stop_at is not None:
            return self._stop_at
        return _named({partition: bound.end for partition, bound in self._bounds().items()})

    def _needs(self, position: Position) -> None:
        if self._settings.queue is None:
            return
        if self._registration is None:
            self._registration = self._registered(position["reader"])
        written = _states_of(position)
        offsets = {int(name): min(offset, written.get(name, 0)) for name, offset in position["partitions"].items()}
        self._registration.needs({name: max(0, offset - self._records_before) for name, offset in offsets.items()})

    def _registered(self, reader: str) -> Registration:
        return Registration(self._settings, reader)

    def _topic_id(self) -> str:
        from konverse.spark.connection.clients import topic_id  # noqa: PLC0415  # for the driver alone

        return topic_id(self._settings)

    def _check_queue(self) -> None:
        """Raise TopicMismatch when the topics are not those of the queue, and so hold none of its messages."""
        if self._settings.queue is not None:
            from konverse.spark.connection.clients import check_queue  # noqa: PLC0415  # as above

            self._queue = check_queue(self._settings)
        self._checked = True

    def _check_known(self) -> None:
        """Raise TopicMismatch when a topic of the queue was deleted, or created again, since it was looked up."""
        if self._queue is not None:
            from konverse.bridge.kafka.topics import topic_ids  # noqa: PLC0415  # as above
            from konverse.spark.connection.clients import check_topics  # noqa: PLC0415  # as above

            check_topics(self._settings, topic_ids(self._queue).items())

    def _check_topic(self, start: Position) -> None:
        settings, begun_with = self._settings, start.get("name", self._settings.topic)
        if settings.topic != begun_with:
            option = f"'topic' is {settings.topic!r}"
            if settings.queue is not None:
                option = f"'queue' is {settings.queue!r} (with 'database', 'instance' and 'mode': {settings.topic!r})"
            raise InvalidSettings(
                f"option {option}, but the checkpoint belongs to topic {begun_with!r}: a stream continues with the "
                "topic of its checkpoint; give that topic again, or another checkpointLocation"
            )
        self._check_known()
        if self._topic_id() != start["topic"]:
            raise TopicMismatch(
                f"topic {settings.topic!r} at {settings.bootstrap} is not the one of the checkpoint: it was deleted "
                "and created again, or option 'bootstrap' names another Kafka; begin with a new checkpointLocation"
            )

    def _spared(self, partition: int, first: int, until: int, bound: Bounds) -> tuple[int, int]:
        """The offsets, `first` up to `until`, as far as the log still holds them."""
        if first < bound.first or bound.end < until:
            planned = f"and the checkpoint goes on from {first} to {until}"
            lose(self._settings, f"partition {partition}", f"holds offsets {bound.first} up to {bound.end}, {planned}")
        until = min(until, bound.end)
        return min(max(first, bound.first), until), until


class MessagesStreamReader(RangesStreamReader):
    """The messages of a queue as they are accepted."""

    def __init__(self, settings: ConnectionSettings, schema: StructType) -> None:
        super().__init__(settings)
        self._schema = arrow_schema(schema)
        check_groups(settings, self._schema)
        self._judged = False
        """A micro-batch was planned since the start. Its tasks store states, without which tasks read whole logs."""

    def partitions(self, start: Position, end: Position) -> Sequence[InputPartition]:  # type: ignore[override]
        """A task for each range. From the second micro-batch on, small ranges share a task."""
        ranges, judged, self._judged = self.ranges(start, end), self._judged, True
        return [Ranges(tuple(some)) for some in (_packed(ranges) if judged else ([one] for one in ranges))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of the task's ranges."""
        assert isinstance(partition, Ranges)
        with Topic(self._settings) as topic:
            for wanted in partition.ranges:
                tag = "any" if wanted.tag is None else wanted.tag.hex()
                states = States(self._settings.state_folder, wanted.topic, wanted.reader, tag, ACCEPTANCES)
                yield from read_range(topic, wanted, self._settings, self._schema, states)


def _packed(ranges: Iterable[StreamRange]) -> Iterator[list[StreamRange]]:
    """Group neighbouring ranges up to TASK_RECORDS. The same ranges are grouped alike after a restart."""
    task: list[StreamRange] = []
    records = 0
    for wanted in ranges:
        size = wanted.end - wanted.first
        if task and records + size > TASK_RECORDS:
            yield task
            task, records = [], 0
        task.append(wanted)
        records += size
    if task:
        yield task


def _states_of(position: Position) -> dict[str, int]:
    """Where states were stored; a checkpoint without `states` is of a version that stored one at each position."""
    return position.get("states", position["partitions"])


def _named(offsets: Mapping[int, int]) -> dict[str, int]:
    return {str(partition): offsets[partition] for partition in sorted(offsets)}


def _shared(begin: Mapping[str, int], ends: Mapping[str, int], most: int) -> dict[str, int]:
    """The ends of a micro-batch of at most `most` records, shared in proportion to the records that wait.

    Every partition with records gets at least one, as far as `most` allows, so that all make progress.
    """
    waiting = sum(ends.values()) - sum(begin.values())
    if waiting <= most:
        return dict(ends)
    left, out = most, dict(begin)
    for partition in sorted(begin, key=lambda name: begin[name] - ends[name]):
        behind = ends[partition] - begin[partition]
        taken = min(behind, left, max(1, most * behind // waiting)) if behind else 0
        out[partition] += taken
        left -= taken
    return {partition: out[partition] for partition in begin}
