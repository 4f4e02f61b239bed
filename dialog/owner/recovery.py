"""Recovers the state of a partition: restores the newest usable snapshot, then folds the journal up to its end.

`SnapshotSearch` reads the snapshot topic backwards, in growing windows. The snapshot nearest to the end of the topic
may be unusable: a follower, or a process that slept, may have written it late, when the logs after its state were
already truncated. A snapshot earlier in the topic may still be usable (M208).

`Recovery` drives the fold (protocol.md section 4, `recover`). Each of its methods returns the next read, or nothing
when the journal is folded up to the given end. Started again with a later end it continues from its position: that is
how an owner follows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Final, NamedTuple, NoReturn

from konverse.dialog.fold.fold import Fold, Overtaken
from konverse.dialog.fold.journal import NewerFold
from konverse.dialog.fold.snapshot import restore
from konverse.dialog.rules.accepted_loss import AcceptedLoss, command
from konverse.schemas.errors import WAY_ON, MalformedRecord, PartitionHalted
from konverse.schemas.identifiers import LogIdentity
from konverse.schemas.wire.journal import FOLD_VERSION
from konverse.schemas.wire.snapshot import Chunk, SnapshotEnd, decode

from .events import (
    DataRead,
    Effect,
    JournalRead,
    OutOfRange,
    ReadData,
    ReadJournal,
    ReadSnapshots,
    Recover,
    SnapshotsRead,
)

FIRST_WINDOW: Final = 16
GROWTH: Final = 8


class FoundSnapshot(NamedTuple):
    """A snapshot that is complete and intact."""

    end: SnapshotEnd
    data: bytes
    first_offset: int
    """Offset of its first record in the topic: a chunk, or the END."""

    @property
    def by_owner(self) -> bool:
        """Whether an owner made it, at a COMMIT of its own."""
        return self.end.snapshot == snapshot_id(self.end.owner, self.end.offset)


def snapshot_id(owner: bytes, journal_offset: int, *, follower: bool = False) -> bytes:
    """Name of a snapshot of the state at this journal offset, by the owner of that time or by a follower."""
    maker = b"follower" if follower else b""
    return hashlib.sha256(maker + owner + journal_offset.to_bytes(8, "big")).digest()[:16]


class SnapshotSearch:
    """The search for a snapshot in one partition of a snapshot topic."""

    def __init__(self, identity: LogIdentity, bounds: Recover) -> None:
        self.found: FoundSnapshot | None = None
        self._identity = identity
        self._bounds = bounds
        self._data_start = bounds.data_start
        self._next = self._window_end = self._seen_from = self._lowest = bounds.snapshots_end
        self._window = FIRST_WINDOW
        self._ends: dict[bytes, tuple[int, SnapshotEnd]] = {}
        """Name of the snapshot -> offset and content of its first END."""
        self._wanted: bytes | None = None
        """The snapshot whose chunks are searched for."""
        self._chunks: dict[tuple[bytes, int], tuple[int, Chunk]] = {}
        """Chunks of the last window, and of the wanted snapshot."""
        self._spoilt: set[bytes] = set()

    def next_read(self) -> tuple[int, int] | None:
        """The range to read next; None when the search is over."""
        while self._next == self._window_end:
            self.found = next(self._intact(), None)
            if self.found is not None:
                return None
            if self._wanted is not None and self._is_hopeless(self._wanted):
                self._spoilt.add(self._wanted)
                self._wanted = None
                self._go_to(self._lowest)
            if self._wanted is None:
                self._want()
            if self._seen_from <= self._bounds.snapshots_start:
                if self._wanted is not None:
                    continue
                if not self._data_start:
                    return None
                self._data_start = 0  # data after each snapshot is gone; perhaps no commit needs it
                self._go_to(self._bounds.snapshots_end)
                continue
            self._window_end = self._seen_from
            self._next = self._seen_from = max(self._bounds.snapshots_start, self._window_end - self._size())
            self._lowest = min(self._lowest, self._seen_from)
        return self._next, self._window_end

    def read(self, records: list[tuple[int, bytes]], next_offset: int) -> None:
        """Take the records of a read. Garbage is skipped: the SHA-256 decides whether a snapshot is intact."""
        for offset, data in records:
            try:
                record = decode(data)
            except MalformedRecord:
                continue
            if isinstance(record, SnapshotEnd):
                self._ends.setdefault(record.snapshot, (offset, record))
            else:
                self._chunks[record.snapshot, record.number] = offset, record
        self._next = next_offset

    def _go_to(self, offset: int) -> None:
        """Continue with the records before this offset, and drop all chunks."""
        self._next = self._window_end = self._seen_from = offset
        self._chunks.clear()

    def _want(self) -> None:
        """Choose the newest usable snapshot, and look for its chunks from the end of the topic.

        A chunk that was written late may come after the END.
        """
        newest = next(self._usable(), None)
        if newest is not None:
            self._wanted = newest[1].snapshot
            if self._window_end < self._bounds.snapshots_end:
                self._go_to(self._bounds.snapshots_end)

    def _is_hopeless(self, snapshot: bytes) -> bool:
        """Whether the snapshot has all chunks and is not intact, or nothing is left to read."""
        return not self._missing(snapshot) or self._seen_from <= self._bounds.snapshots_start

    def _missing(self, snapshot: bytes) -> int:
        return self._ends[snapshot][1].chunks - sum(name == snapshot for name, _ in self._chunks)

    def _size(self) -> int:
        """Size of the next window: the chunks that the wanted snapshot lacks, else more each time. Drops all others."""
        self._chunks = {key: chunk for key, chunk in self._chunks.items() if key[0] == self._wanted}
        if self._wanted is not None:
            return self._missing(self._wanted) + FIRST_WINDOW
        size, self._window = self._window, self._window * GROWTH
        return size

    def _usable(self) -> Iterator[tuple[int, SnapshotEnd]]:
        """Snapshots of this log after which the logs still have all records, newest state first."""
        for offset, end in sorted(self._ends.values(), key=lambda pair: -pair[1].offset):
            reaches = self._bounds.journal_start <= end.offset + 1 and self._data_start <= end.ingest_to
            if reaches and end.snapshot not in self._spoilt and self._is_ours(end):
                yield offset, end

    def _intact(self) -> Iterator[FoundSnapshot]:
        for offset, end in self._usable():
            chunks = [self._chunks.get((end.snapshot, number)) for number in range(end.chunks)]
            whole = [chunk for chunk in chunks if chunk is not None]
            if len(whole) != len(chunks):
                continue
            data = b"".join(chunk.data for _, chunk in whole)
            if len(data) == end.size and hashlib.sha256(data).digest() == end.sha256:
                begins_at = min(offset, *(at for at, _ in whole))  # a chunk may have been written again after the END
                yield FoundSnapshot(end, data, begins_at)

    def _is_ours(self, end: SnapshotEnd) -> bool:
        identity = self._identity
        named = (end.incarnation, end.data_topic_id, end.journal_topic_id)
        if named != (identity.incarnation, identity.data_topic_id, identity.journal_topic_id):
            return False
        if end.fold_version > FOLD_VERSION:
            raise NewerFold(
                f"a snapshot of {identity.data_topic}/{identity.partition} needs fold rules {end.fold_version}; "
                f"this process has only {FOLD_VERSION}: upgrade konverse"
            )
        return True


class Recovery:
    """The recovery of one partition, or the following of it."""

    def __init__(self, fold: Fold) -> None:
        self.restored: FoundSnapshot | None = None
        """The snapshot from which the state was restored."""
        self.acceptance: AcceptedLoss | None = None
        """An operator's consent to lose data that COMMITs have ingested; None: the partition halts when such data
        is gone."""
        self._fold = fold
        self._found = False
        """Whether the search for a snapshot is over, so that the fold has a position in the journal."""
        self._search: SnapshotSearch | None = None
        self._goes_on = False
        """Whether the recovery was started again: the fold is past the snapshots that it has seen."""
        self._bounds = Recover(0, 0)
        self._end = 0
        self._resume_at = 0

    @property
    def data_start(self) -> int:
        """Where the data log began when the recovery began."""
        return self._bounds.data_start

    @property
    def data_end(self) -> int:
        """Where the data log ended when the recovery began."""
        return self._bounds.data_end

    def start(self, event: Recover) -> list[Effect]:
        """Search for a snapshot, or continue at the fold's position. Raises Overtaken when that was truncated."""
        self._bounds = event
        self._end = event.journal_end
        self._goes_on = self._found
        if self._found:
            if event.journal_start > self._fold.head.offset + 1:
                raise Overtaken(f"the next records in the journal of {self._fold.head.where} were truncated")
            return self.read_on(event.journal_end)
        self._search = SnapshotSearch(self._fold.head.identity, event)
        return self._search_on(self._search)

    def snapshots_read(self, event: SnapshotsRead) -> list[Effect]:
        """Take records of the snapshot topic."""
        search = self._search
        assert search is not None
        search.read(event.records, event.next_offset)
        return self._search_on(search)

    def _search_on(self, search: SnapshotSearch) -> list[Effect]:
        span = search.next_read()
        if span is not None:
            return [ReadSnapshots(*span)]
        fold, found = self._fold, search.found
        self._search = None
        self._found = True
        if found is not None:
            restore(fold.state, found.data)
            fold.head.restore(found.end)
            self.restored = found
        if self._bounds.journal_start > fold.head.offset + 1:
            held = (
                "no intact snapshot" if found is None else f"no intact snapshot after journal offset {fold.head.offset}"
            )
            raise PartitionHalted(
                f"the journal of {fold.head.where} begins at {self._bounds.journal_start} and there is {held}: "
                f"its beginning was deleted. {WAY_ON}"
            )
        return self.read_on(self._end)

    def read_on(self, end: int) -> list[Effect]:
        """Fold up to `end`, a later end of the journal."""
        self._end = end
        self._resume_at = max(self._resume_at, self._fold.head.offset + 1)
        return self._fold_on()

    def journal_read(self, event: JournalRead) -> list[Effect]:
        """Take records of the journal."""
        self._fold.feed_journal(event.records)
        self._resume_at = event.next_offset
        return self._fold_on()

    def data_read(self, event: DataRead) -> list[Effect]:
        """Take records of the data log."""
        self._fold.feed_data(event.columns)
        return self._fold_on()

    def out_of_range(self, event: OutOfRange) -> NoReturn:
        """A read was out of range. Raises Overtaken for a truncated log, PartitionHalted when a log's end is gone."""
        if event.beginning:
            raise Overtaken(f"a log of {self._fold.head.where} was truncated while it was read")
        raise self._end_missing()

    def _end_missing(self) -> PartitionHalted:
        where = self._fold.head.where
        return PartitionHalted(
            f"a log of {where} ends before an offset that was read or relied on: its end was deleted. {WAY_ON}"
        )

    def _data_missing(self) -> Overtaken | PartitionHalted:
        """The error for ingested data that is gone.

        Overtaken after the recovery was started again, since a newer snapshot may cover the data; else PartitionHalted.
        """
        where, offset, identity = self._fold.head.where, self._fold.data_to, self._fold.head.identity
        if self._goes_on:
            return Overtaken(f"the next records in the data log of {where} were truncated")
        return PartitionHalted(
            f"the data log of {where} does not hold offset {offset} any more, which its journal has ingested: "
            f"its beginning was deleted. {WAY_ON}. To give up only the lost records: "
            f"{command(identity.data_topic, identity.partition)}"
        )

    def _fold_on(self) -> list[Effect]:
        fold = self._fold
        try:
            needed = fold.advance()
        except Overtaken as error:
            if self._goes_on:
                raise
            raise PartitionHalted(f"{error}, and there is no intact snapshot after it. {WAY_ON}") from None
        fold.state.discard_hints()
        if needed is not None:
            if self._bounds.data_start > fold.data_to:
                if self.acceptance is None:
                    raise self._data_missing()
                fold.give_up(self.acceptance)
                return self._fold_on()
            return [ReadData(fold.data_to, needed)]
        if self._resume_at < self._end:
            return [ReadJournal(self._resume_at, self._end)]
        if fold.given_up is not None and fold.given_up.ingested_to > self._bounds.data_end:
            raise self._end_missing()
        return []
