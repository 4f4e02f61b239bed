"""Takes the logs of queues from a live system, in the order that makes the comparison fair.

The end of each data log is asked for first, then the ends of the journals, then those of the data logs again. So every
output that stood before the first end has its commit in a journal, and whatever a journal ingested or called
acknowledged stands before the second. The system may work on meanwhile.

A partition is read and folded at a time. Bodies are kept as digests; a message that was received and answered costs
about 1,200 bytes until the end.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from hashlib import blake2b
from types import MappingProxyType
from typing import Final, NamedTuple

from confluent_kafka import Message, TopicPartition

from konverse.bridge.kafka.clients import Kafka, LogTruncated
from konverse.bridge.kafka.headers import header_of
from konverse.bridge.kafka.log_reader import LogReader
from konverse.bridge.kafka.open_transactions import Stalled, log_ends
from konverse.bridge.kafka.topics import Topics
from konverse.bridge.verifier.fold.batches import WHOLE
from konverse.bridge.verifier.fold.loss import hole_of, said_to_be_lost
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.errors import TopicMismatch, Unavailable
from konverse.schemas.identifiers import journal_topic, owner_writer, snapshot_topic
from konverse.schemas.wire.journal import FOLD_VERSION, Commit
from konverse.schemas.wire.records import Kind

from .check import Finding, Held, PartitionVerdict, Place, compare, judge
from .journal import JournalJudge
from .records import Record
from .starting_state import Start, beginning, resume, starts
from .view import Shown, compare_view

DIGEST_BYTES: Final = 16

_KINDS_READ: Final = {bytes((kind << 1,)) for kind in (*WHOLE, Kind.TRANSACTION, Kind.INSTALL)}
"""How the headers of records begin whose bodies are read."""

Views = Mapping[tuple[str, int], Shown]

Progress = Callable[[int], None]
"""Told how many records were read since the last call."""


class Extent(NamedTuple):
    """A partition, and where its logs begin and end."""

    place: Place
    journal: str
    snapshots: str
    journal_end: int
    stalled: tuple[tuple[str, Stalled], ...] = ()
    """Topics of it that a stranger's open transaction holds up."""

    @property
    def records(self) -> int:
        """How many there are to read, about."""
        place = self.place
        return self.journal_end - place.journal_start + place.data_end - place.data_start


def digest(body: bytes) -> bytes:
    """What is kept of a body; nothing of none."""
    return blake2b(body, digest_size=DIGEST_BYTES).digest() if body else b""


def shorten(record: Record) -> Record:
    """A data record with what is kept of its body: all of it where it says what happened and does not just travel."""
    if record.header is not None and record.header[:1] in _KINDS_READ:
        return record
    body = record.body or b""
    return record._replace(body=digest(body), whole=len(body))


class PartitionReading:
    """Reads and folds partitions, one at a time, wherever there is a client."""

    def __init__(self, log: LogReader, owners: Collection[bytes], since_ms: int | None = None) -> None:
        """`owners` are the writer ids of all partitions that are verified together."""
        self._log = log
        self._owners = owners
        self._since_ms = since_ms

    def judge(
        self, extent: Extent, shown: Shown | None = None, progress: Progress = lambda _: None
    ) -> PartitionVerdict:
        """What the logs of one partition say; `shown` is what Redis shows of it."""
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
        journal = self._read(extent.journal, place.partition, journal_from, extent.journal_end, progress)
        records = self._read(place.topic, place.partition, data_from, place.data_end, progress)
        data = [shorten(record) for record in records]
        known = [one for one in snapshots if journal_from <= one.end.offset < extent.journal_end]
        place = place._replace(snapshots=known[-1:])
        if shown is not None and shown.journal_offset < journal_from - 1:
            shown = None  # it shows how things stood before
        if shown is not None and place.held.journal and shown.journal_offset >= extent.journal_end:
            shown = None  # it shows what cannot be read
        if shown is not None:
            place = place._replace(shown_at=shown.journal_offset)
        verdict = judge(place, journal, data, self._owners, digest)
        if start is not None and self._since_ms is None:
            verdict.findings += self._lost_before(extent, start, snapshots)
        if shown is not None:
            verdict.findings += compare_view(verdict, shown)
        return verdict

    def _lost_before(self, extent: Extent, start: Start, snapshots: Iterable[Start]) -> Iterator[Finding]:
        """What the journal calls lost before the snapshot at which nobody but the logs made us begin."""
        place = extent.place
        judge, at = JournalJudge(place.identity), place.journal_start
        if at > 0:  # which commits count is known behind a snapshot only
            first = next(one for one in snapshots if one.end.offset + 1 >= at)
            resume(first, judge)
            at = first.end.offset + 1
        for record in self._read(extent.journal, place.partition, at, start.end.offset + 1, lambda _: None):
            _, decision, counts = judge.hear(record)
            judge.judged.clear()
            hole = hole_of(decision) if counts and isinstance(decision, Commit) else None
            if hole is not None:
                yield Finding("lost", place.name, f"{said_to_be_lost(*hole)}: so says the journal at {record.offset}")

    def _snapshots(self, extent: Extent) -> list[Start]:
        """Those that are whole and made by the same rules, the oldest first."""
        first, end = self._log.ends(extent.snapshots, extent.place.partition)
        records = self._read(extent.snapshots, extent.place.partition, first, end, lambda _: None)
        return [one for one in starts(records, extent.place.identity) if one.end.fold_version == FOLD_VERSION]

    def _read(self, topic: str, partition: int, start: int, end: int, progress: Progress) -> Iterator[Record]:
        try:
            with closing(self._log.read(topic, partition, start, end)) as chunks:
                for messages, _ in chunks:
                    yield from map(_record, messages)
                    progress(len(messages))
        except LogTruncated:
            raise Unavailable(
                f"{topic}/{partition} was truncated while it was read, before offset {end}. Verify again"
            ) from None


class Verification:
    """The verification of some queues of one cluster, which hear each other's outputs."""

    def __init__(self, kafka: Kafka, queues: Sequence[Queue], since_ms: int | None = None) -> None:
        """With `since_ms` (Kafka's time) each partition begins at its newest snapshot that is not younger.

        Where the beginning of a log was deleted, the oldest snapshot is the beginning.
        """
        self.kafka = kafka
        self.since_ms = since_ms
        self.gone: list[Finding] = []
        """Queues of which nothing can be read: a topic of theirs was deleted, or another one has its name."""
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
        """How many records there are to read, about."""
        return sum(extent.records for extent in self.extents)

    @property
    def stalled(self) -> list[str]:
        """Logs that a stranger's open transaction holds up, and what mends it; what stands behind is not judged."""
        return [one.said(topic, extent.place.partition) for extent in self.extents for topic, one in extent.stalled]

    def run(
        self,
        progress: Progress = lambda _: None,
        views: Views = MappingProxyType({}),
        judged: Judged | None = None,
    ) -> tuple[list[PartitionVerdict], list[Finding]]:
        """Read and fold everything: the partitions, and all that contradicts the promise.

        `views` were read before this was made: by topic and partition, what Redis shows. `judged` has the partitions
        judged somewhere else, by `PartitionReading`; without it that is done here, one after the other.
        """
        verdicts = [*(judged or _here)(self, views, progress)]
        findings = [finding for verdict in verdicts for finding in verdict.findings]
        return verdicts, [*self.gone, *findings, *compare(verdicts)]


Judged = Callable[[Verification, Views, Progress], Iterable[PartitionVerdict]]
"""Gives the verdict of each extent, in their order."""


def _here(verification: Verification, views: Views, progress: Progress) -> Iterator[PartitionVerdict]:
    with closing(LogReader(verification.kafka)) as log:
        reading = PartitionReading(log, verification.owners, verification.since_ms)
        for extent in verification.extents:
            yield reading.judge(extent, views.get((extent.place.topic, extent.place.partition)), progress)


def measure(kafka: Kafka, log: LogReader, queues: Iterable[Queue]) -> list[Extent]:
    """Where the logs of these queues begin and end, asked for in the order that makes the comparison fair.

    They end before the first transaction that is open. What stands behind it is known to be there, as the end of each
    log is asked for just before: an output may wait there of which a journal speaks, or the commit that made it.
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
    """Where each of these logs begins, up to where it can be read, and what an open transaction holds up there."""
    whole = log_ends(kafka, [TopicPartition(*one) for one in places])
    ends = [log.ends(*one) for one in places]
    return ends, [
        Stalled(end, whole[one]) if end < whole[one] else None for one, (_, end) in zip(places, ends, strict=True)
    ]


def _record(message: Message) -> Record:
    return Record(message.offset() or 0, header_of(message), message.value(), message.timestamp()[1])
