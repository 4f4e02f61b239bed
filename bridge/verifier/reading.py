"""Takes the logs of queues from a live system, in the order that makes the comparison fair.

The end of each data log is asked for first, then the ends of the journals, then those of the data logs again. So every
output that stood before the first end has its commit in a journal, and whatever a journal ingested or called
acknowledged stands before the second. The system may work on meanwhile.

A partition is read and folded at a time. Bodies are kept as digests; a message that was received and answered costs
about 1,200 bytes until the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from hashlib import blake2b
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from confluent_kafka import Message

from konverse.bridge.kafka import Kafka, LogReader, LogTruncated
from konverse.schemas.catalog import Queue
from konverse.schemas.envelope import HEADER
from konverse.schemas.errors import Unavailable
from konverse.schemas.identifiers import journal_topic, owner_writer

from .check import Finding, PartitionVerdict, Place, compare, judge
from .records import Record
from .shown import Shown, compare_view

DIGEST_BYTES: Final = 16

Views = Mapping[tuple[str, int], Shown]

Progress = Callable[[int], None]
"""Told how many records were read since the last call."""


class Extent(NamedTuple):
    """A partition, and where its logs begin and end."""

    place: Place
    journal: str
    journal_end: int

    @property
    def records(self) -> int:
        """How many there are to read, about."""
        place = self.place
        return self.journal_end - place.journal_start + place.data_end - place.data_start


def digest(body: bytes) -> bytes:
    """What is kept of a body; nothing of none."""
    return blake2b(body, digest_size=DIGEST_BYTES).digest() if body else b""


class Verification:
    """The verification of some queues of one cluster, which hear each other's outputs."""

    def __init__(self, kafka: Kafka, queues: Sequence[Queue]) -> None:
        self._log = LogReader(kafka)
        self.extents = self._measure(queues)

    @property
    def records(self) -> int:
        """How many records there are to read, about."""
        return sum(extent.records for extent in self.extents)

    def run(
        self, progress: Progress = lambda _: None, views: Views = MappingProxyType({})
    ) -> tuple[list[PartitionVerdict], list[Finding]]:
        """Read and fold everything: the partitions, and all that contradicts the promise.

        `views` were read before this was made: by topic and partition, what Redis shows.
        """
        owners = {owner_writer(extent.place.incarnation, extent.place.partition) for extent in self.extents}
        verdicts = []
        for extent in self.extents:
            place = extent.place
            journal = self._read(extent.journal, place.partition, place.journal_start, extent.journal_end, progress)
            data = self._read(place.topic, place.partition, place.data_start, place.data_end, progress)
            shortened = [record._replace(body=digest(record.body or b"")) for record in data]
            shown = views.get((place.topic, place.partition))
            if shown is not None:
                place = place._replace(shown_at=shown.journal_offset)
            verdict = judge(place, journal, shortened, owners, digest)
            if shown is not None:
                verdict.findings += compare_view(verdict, shown)
            verdicts.append(verdict)
        findings = [finding for verdict in verdicts for finding in verdict.findings]
        return verdicts, [*findings, *compare(verdicts)]

    def close(self) -> None:
        """Close the client."""
        self._log.close()

    def _measure(self, queues: Iterable[Queue]) -> list[Extent]:
        partitions = [(queue, number) for queue in queues for number in range(queue.partitions)]
        first = [self._log.ends(queue.topic, number) for queue, number in partitions]
        names = [journal_topic(queue.topic, queue.subscription) for queue, _ in partitions]
        journals = [self._log.ends(name, number) for name, (_, number) in zip(names, partitions, strict=True)]
        second = [self._log.ends(queue.topic, number) for queue, number in partitions]
        extents = []
        for (queue, number), name, (start, certain_to), (journal_start, journal_end), (_, end) in zip(
            partitions, names, first, journals, second, strict=True
        ):
            ids = (queue.incarnation, queue.data_topic_id, queue.journal_topic_id)
            place = Place(queue.topic, number, *ids, certain_to, end, start, journal_start)
            extents.append(Extent(place, name, journal_end))
        return extents

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


def _record(message: Message) -> Record:
    pairs: Any = message.headers() or ()
    header = next((value for name, value in pairs if name == HEADER and isinstance(value, bytes)), None)
    return Record(message.offset() or 0, header, message.value(), message.timestamp()[1])
