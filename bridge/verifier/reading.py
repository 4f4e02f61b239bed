"""Reads the logs of queues from a live system, in the order that makes the comparison fair.

The end of each data log is asked for first, then the ends of the journals, then those of the data logs again. So the
COMMIT of every output below the first end is in a journal that is read, and all data that a journal ingested or called
acknowledged is below the second end. The system may work meanwhile.

Partitions are read and folded one at a time. A partition's journal is in memory until it is folded. Bodies of the data
log are kept as digests; a message that was received and answered takes about 1,200 bytes of memory until the end.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from hashlib import blake2b
from types import MappingProxyType
from typing import Final, NamedTuple

from confluent_kafka import Message, TopicPartition

from konverse.bridge.kafka.clients import Kafka, LogTruncated
from konverse.bridge.kafka.headers import header_of
from konverse.bridge.kafka.log_reader import LogReader
from konverse.bridge.kafka.offsets import log_ends
from konverse.bridge.kafka.open_transactions import Stalled
from konverse.bridge.kafka.topics import Topics
from konverse.bridge.verifier.fold.batches import WHOLE
from konverse.bridge.verifier.fold.loss import hole_of, said_to_be_lost
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.errors import MalformedRecord, TopicMismatch, Unavailable
from konverse.schemas.identifiers import journal_topic, owner_writer, snapshot_topic
from konverse.schemas.wire import envelope
from konverse.schemas.wire import journal as operations
from konverse.schemas.wire.journal import FOLD_VERSION, Commit
from konverse.schemas.wire.records import Kind

from .check import Finding, Held, PartitionVerdict, Place, compare, judge, newer_rules
from .journal import JournalJudge
from .log_gaps import Gap, describe_gaps, noting_gaps, unexplained
from .records import Record
from .starting_state import StartingState, beginning, resume, starts
from .view import Shown, compare_view

DIGEST_BYTES: Final = 16

_KINDS_READ: Final = {bytes((kind << 1,)) for kind in (*WHOLE, Kind.TRANSACTION, Kind.INSTALL)}
"""First byte of the headers of records whose bodies the second fold decodes: these are kept whole."""

Views = Mapping[tuple[str, int], Shown]

Progress = Callable[[int], None]
"""Called with the number of records read since the last call."""


class Extent(NamedTuple):
    """A partition, and where its logs begin and end."""

    place: Place
    journal: str
    snapshots: str
    journal_end: int
    stalled: tuple[tuple[str, Stalled], ...] = ()
    """Topics of the partition that an open transaction of another producer holds up."""

    @property
    def records(self) -> int:
        """Approximate number of records to read."""
        place = self.place
        return self.journal_end - place.journal_start + place.data_end - place.data_start


def digest(body: bytes) -> bytes:
    """The digest that is kept of a body; an empty body stays empty."""
    return blake2b(body, digest_size=DIGEST_BYTES).digest() if body else b""


def shorten(record: Record) -> Record:
    """Replace the body of a data record by its digest, unless the second fold decodes it."""
    if record.header is not None and record.header[:1] in _KINDS_READ:
        return record
    body = record.body or b""
    return record._replace(body=digest(body), whole=len(body))


class LogPart(NamedTuple):
    """Records of a log, from `start` up to but not including `end`."""

    topic: str
    partition: int
    start: int
    end: int


class PartitionReader:
    """Reads and folds partitions one at a time, in this process or in a task of Spark."""

    def __init__(self, log: LogReader, owners: Collection[bytes], since_ms: int | None = None) -> None:
        """`owners` are the writer ids of all partitions that are verified together. `since_ms`: see `Verification`."""
        self._log = log
        self._owners = owners
        self._since_ms = since_ms

    def judge(
        self, extent: Extent, shown: Shown | None = None, progress: Progress = lambda _: None
    ) -> PartitionVerdict:
        """Read and fold one partition, and compare `shown`, its view in Redis, with the result."""
        snapshots = self._snapshots(extent)
        place = extent.place
        start = beginning(snapshots, place.journal_start, place.data_start, self._since_ms)
        journal_from, data_from = place.journal_start, place.data_start
        if start is None and place.held.snapshots and (journal_from or data_from):
            nothing = place._replace(data_end=data_from, held=Held(data=True, journal=True, snapshots=True))
            return judge(nothing, [], [], self._owners, digest)  # the snapshot to begin at cannot be read
        if start is not None:
            journal_from, data_from = start.end.offset + 1, start.end.ingest_to
            place = place._replace(journal_start=0, data_start=0, start=start)
        logs = {
            "journal": LogPart(extent.journal, place.partition, journal_from, extent.journal_end),
            "data log": LogPart(place.topic, place.partition, data_from, place.data_end),
        }
        gaps: dict[str, list[Gap]] = {log: [] for log in logs}
        journal, records = (
            noting_gaps(self._read(part, progress), part.start, part.end, gaps[log]) for log, part in logs.items()
        )
        data = [shorten(record) for record in records]
        known = [one for one in snapshots if journal_from <= one.end.offset < extent.journal_end]
        place = place._replace(snapshots=known[-1:])
        if shown is not None and shown.journal_offset < journal_from - 1:
            shown = None  # the view is older than what is read
        if shown is not None and place.held.journal and shown.journal_offset >= extent.journal_end:
            shown = None  # the view is newer than what can be read
        if shown is not None:
            place = place._replace(shown_at=shown.journal_offset)
        verdict = judge(place, journal, data, self._owners, digest)
        of_this_partition = partial(_is_envelope, tag=place.address.tag)
        deleted = {
            "journal": self._deleted(logs["journal"], extent.place.journal_start, gaps["journal"], _is_operation),
            "data log": self._deleted(logs["data log"], extent.place.data_start, gaps["data log"], of_this_partition),
        }
        verdict.findings += [
            Finding("lost", place.name, describe_gaps(log, found)) for log, found in deleted.items() if found
        ]
        verdict.findings += self._cut_behind(extent, snapshots)
        if start is not None and self._since_ms is None:
            verdict.findings += self._lost_before(extent, start, snapshots)
        if shown is not None:
            verdict.findings += compare_view(verdict, shown)
        return verdict

    def _deleted(self, part: LogPart, first: int, gaps: list[Gap], is_ours: Callable[[Record], bool]) -> list[Gap]:
        """The gaps that no transaction explains. The log is read once more, from `first` on, if it has gaps at all."""
        if not gaps:
            return []
        with closing(self._log.with_aborted()) as log:
            records = self._read(part._replace(start=first), lambda _: None, log)
            return unexplained(gaps, records, is_ours, first, part.start)

    def _cut_behind(self, extent: Extent, snapshots: Sequence[StartingState]) -> Iterator[Finding]:
        """Report a log that ends before the offset at which a snapshot of it was made: its last records are gone."""
        place = extent.place
        offset = max((one.end.offset for one in snapshots), default=-1)
        ingest_to = max((one.end.ingest_to for one in snapshots), default=0)
        if offset < extent.journal_end and ingest_to <= place.data_end:
            return
        with closing(self._log.with_aborted()) as log:  # read again: the snapshot may be newer than `extent`
            _, journal_end = log.ends(extent.journal, place.partition)
            _, data_end = log.ends(place.topic, place.partition)
        for log_name, needed, end in (("journal", offset + 1, journal_end), ("data log", ingest_to, data_end)):
            if needed > end:
                yield Finding(
                    "lost",
                    place.name,
                    f"the {log_name} ends at offset {end}, but a snapshot was made when it ended at {needed} or later: "
                    "its last records are gone",
                )

    def _lost_before(
        self, extent: Extent, start: StartingState, snapshots: Iterable[StartingState]
    ) -> Iterator[Finding]:
        """Report each LOST before `start`, for a verification that begins there because the logs were cut."""
        place = extent.place
        judge, at = JournalJudge(place.identity), place.journal_start
        if at > 0:  # only after a snapshot is it known which commits count
            first = next(one for one in snapshots if one.end.offset + 1 >= at)
            resume(first, judge)
            at = first.end.offset + 1
        earlier = LogPart(extent.journal, place.partition, at, start.end.offset + 1)
        for record in self._read(earlier, lambda _: None):
            _, decision, counts = judge.judge(record)
            judge.judged.clear()
            hole = hole_of(decision) if counts and isinstance(decision, Commit) else None
            if hole is not None:
                yield Finding(
                    "lost", place.name, f"{said_to_be_lost(*hole)}, according to journal record {record.offset}"
                )

    def _snapshots(self, extent: Extent) -> list[StartingState]:
        """The complete snapshots made by these fold rules, oldest first. Raises PartitionHalted for newer rules."""
        first, end = self._log.ends(extent.snapshots, extent.place.partition)
        records = self._read(LogPart(extent.snapshots, extent.place.partition, first, end), lambda _: None)
        found = starts(records, extent.place.identity)
        newest = max((one.end.fold_version for one in found), default=FOLD_VERSION)
        if newest > FOLD_VERSION:
            raise newer_rules(f"a snapshot of {extent.place.name}", newest)
        return [one for one in found if one.end.fold_version == FOLD_VERSION]

    def _read(self, part: LogPart, progress: Progress, log: LogReader | None = None) -> Iterator[Record]:
        try:
            with closing((log or self._log).read(*part)) as chunks:
                for messages, _ in chunks:
                    yield from map(_record, messages)
                    progress(len(messages))
        except LogTruncated:
            raise Unavailable(
                f"{part.topic}/{part.partition} was truncated while it was read, before offset {part.end}. Verify again"
            ) from None


class Verification:
    """Verifies queues of one cluster, against themselves and against each other."""

    def __init__(self, kafka: Kafka, queues: Sequence[Queue], since_ms: int | None = None) -> None:
        """With `since_ms` (broker's time) each partition begins at its newest snapshot from before that time.

        Where the beginning of a log was deleted, the partition begins at its oldest usable snapshot.
        """
        self.kafka = kafka
        self.since_ms = since_ms
        self.gone: list[Finding] = []
        """A finding for each queue that cannot be read: one of its topics was deleted, or deleted and created again."""
        with closing(LogReader(kafka)) as log:
            self.extents = measure(kafka, log, [queue for queue in queues if self._is_there(queue)])
        self.owners = {owner_writer(extent.place.incarnation, extent.place.partition) for extent in self.extents}

    def _is_there(self, queue: Queue) -> bool:
        try:
            Topics(self.kafka).same_queue(queue)
        except TopicMismatch as error:
            self.gone.append(Finding("lost", queue.topic, str(error)))
            return False
        return True

    @property
    def records(self) -> int:
        """Approximate number of records to read."""
        return sum(extent.records for extent in self.extents)

    @property
    def stalled(self) -> list[str]:
        """A sentence for each log that another producer's open transaction holds up, with the remedy."""
        return [one.describe(topic, extent.place.partition) for extent in self.extents for topic, one in extent.stalled]

    def run(
        self,
        progress: Progress = lambda _: None,
        views: Views = MappingProxyType({}),
        judged: Judged | None = None,
    ) -> tuple[list[PartitionVerdict], list[Finding]]:
        """Read and fold everything; return the verdicts of the partitions, and all findings.

        `views` by topic and partition must have been read before this object was made. `judged` judges the partitions
        elsewhere with `PartitionReader`, such as in Spark; without it they are judged here, one after the other.
        """
        verdicts = [*(judged or _here)(self, views, progress)]
        findings = [finding for verdict in verdicts for finding in verdict.findings]
        return verdicts, [*self.gone, *findings, *compare(verdicts)]


Judged = Callable[[Verification, Views, Progress], Iterable[PartitionVerdict]]
"""Judges all extents of a verification; yields a verdict for each, in their order."""


def _here(verification: Verification, views: Views, progress: Progress) -> Iterator[PartitionVerdict]:
    with closing(LogReader(verification.kafka)) as log:
        reading = PartitionReader(log, verification.owners, verification.since_ms)
        for extent in verification.extents:
            yield reading.judge(extent, views.get((extent.place.topic, extent.place.partition)), progress)


def measure(kafka: Kafka, log: LogReader, queues: Iterable[Queue]) -> list[Extent]:
    """Ask where the logs of these queues begin and end, in the order that makes the comparison fair.

    A log can be read only up to its first open transaction. Its true end is requested just before its readable end, so
    that `Held` shows whether unreadable records follow: perhaps an output that a journal acknowledges, or the COMMIT of
    an output.
    """
    partitions = [(queue, number) for queue in queues for number in range(queue.partitions)]
    data = [(queue.topic, number) for queue, number in partitions]
    journals = [(journal_topic(queue.topic, queue.subscription), number) for queue, number in partitions]
    snapshots = [(snapshot_topic(queue.topic, queue.subscription), number) for queue, number in partitions]
    first = [log.ends(*one) for one in data]
    journal_ends, journals_held = _measured(kafka, log, journals)
    data_ends, data_held = _measured(kafka, log, data)
    _, snapshots_held = _measured(kafka, log, snapshots)
    extents = []
    for at, (queue, number) in enumerate(partitions):
        (start, certain_to), (journal_start, journal_end), (_, end) = first[at], journal_ends[at], data_ends[at]
        ids = (queue.incarnation, queue.data_topic_id, queue.journal_topic_id)
        held = [data_held[at], journals_held[at], snapshots_held[at]]
        place = Place(queue.topic, number, *ids, certain_to, end, start, journal_start, held=Held(*map(bool, held)))
        topics = [queue.topic, journals[at][0], snapshots[at][0]]
        stalled = tuple((topic, one) for topic, one in zip(topics, held, strict=True) if one is not None)
        extents.append(Extent(place, journals[at][0], snapshots[at][0], journal_end, stalled))
    return extents


def _measured(
    kafka: Kafka, log: LogReader, places: Sequence[tuple[str, int]]
) -> tuple[list[tuple[int, int]], list[Stalled | None]]:
    """Start and readable end of each log, and the open transaction that holds it up."""
    whole = log_ends(kafka, [TopicPartition(*one) for one in places])
    ends = [log.ends(*one) for one in places]
    return ends, [
        Stalled(end, whole[one]) if end < whole[one] else None for one, (_, end) in zip(places, ends, strict=True)
    ]


def _is_envelope(record: Record, tag: bytes) -> bool:
    """Whether a data record has a konverse header for this queue. A record copied from another queue is foreign."""
    try:
        return envelope.decode(record.header or b"").tag == tag
    except MalformedRecord:
        return False


def _is_operation(record: Record) -> bool:
    """Whether a journal record is a CLAIM or COMMIT, or a part of one."""
    try:
        operations.decode(record.body or b"")
    except MalformedRecord:
        return False
    return record.header is None


def _record(message: Message) -> Record:
    return Record(message.offset() or 0, header_of(message), message.value(), message.timestamp()[1])
