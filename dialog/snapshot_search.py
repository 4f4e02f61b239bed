"""Looks for the newest intact snapshot of a log: from the end of its topic backwards, in windows that grow.

Whoever makes snapshots may be far behind when it writes one, a follower or a process that slept, and the logs behind
that one may be gone meanwhile: such a snapshot helps nobody, and one that stands before it in the topic does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Final, NamedTuple

from konverse.schemas.errors import MalformedRecord
from konverse.schemas.journal import FOLD_VERSION
from konverse.schemas.snapshot import Chunk, SnapshotEnd, decode

from .events import Recover
from .head import LogIdentity, NewerFold

FIRST_WINDOW: Final = 16
GROWTH: Final = 8


class Found(NamedTuple):
    """A snapshot, whole and intact."""

    end: SnapshotEnd
    data: bytes
    first_offset: int
    """Of what stands first in the topic: a chunk, or the END."""

    @property
    def by_owner(self) -> bool:
        """An owner made it, of a commit of its own."""
        return self.end.snapshot == snapshot_id(self.end.owner, self.end.offset)


def snapshot_id(owner: bytes, journal_offset: int, *, follower: bool = False) -> bytes:
    """The name of a snapshot that this owner, or somebody who followed it, made of the state at this offset."""
    maker = b"follower" if follower else b""
    return hashlib.sha256(maker + owner + journal_offset.to_bytes(8, "big")).digest()[:16]


class SnapshotSearch:
    """The search in one partition of a snapshot topic."""

    def __init__(self, identity: LogIdentity, bounds: Recover) -> None:
        self.found: Found | None = None
        self._identity = identity
        self._bounds = bounds
        self._next = self._window_end = self._seen_from = bounds.snapshots_end
        self._window = FIRST_WINDOW
        self._chunks: dict[tuple[bytes, int], tuple[int, Chunk]] = {}
        self._ends: list[tuple[int, SnapshotEnd]] = []

    def next_read(self) -> tuple[int, int] | None:
        """What to read next; None when the search is over."""
        if self._next == self._window_end:
            self.found = next(self._intact(self._bounds.data_start), None)
            if self.found is not None:
                return None
            if self._seen_from <= self._bounds.snapshots_start:
                self.found = next(self._intact(0), None)  # the data behind it are gone; the journal may not need them
                return None
            self._window_end = self._seen_from
            self._next = self._seen_from = max(self._bounds.snapshots_start, self._window_end - self._window)
            self._window *= GROWTH
        return self._next, self._window_end

    def read(self, records: list[tuple[int, bytes]], next_offset: int) -> None:
        """What a read brought. Garbage is passed over: the SHA-256 decides."""
        for offset, data in records:
            try:
                record = decode(data)
            except MalformedRecord:
                continue
            if isinstance(record, Chunk):
                self._chunks[record.snapshot, record.number] = offset, record
            else:
                self._ends.append((offset, record))
        self._next = next_offset

    def _intact(self, data_start: int) -> Iterator[Found]:
        for offset, end in sorted(self._ends, key=lambda pair: -pair[1].offset):
            chunks = [self._chunks.get((end.snapshot, number)) for number in range(end.chunks)]
            whole = [chunk for chunk in chunks if chunk is not None]
            if len(whole) != len(chunks) or not self._is_ours(end):
                continue
            if self._bounds.journal_start > end.offset + 1 or data_start > end.ingest_to:
                continue
            data = b"".join(chunk.data for _, chunk in whole)
            if len(data) == end.size and hashlib.sha256(data).digest() == end.sha256:
                yield Found(end, data, min(offset, *(at for at, _ in whole)))  # a chunk may have come again behind it

    def _is_ours(self, end: SnapshotEnd) -> bool:
        identity = self._identity
        named = (end.incarnation, end.data_topic_id, end.journal_topic_id)
        if named != (identity.incarnation, identity.data_topic_id, identity.journal_topic_id):
            return False
        if end.fold_version > FOLD_VERSION:
            raise NewerFold(
                f"a snapshot of {identity.data_topic}/{identity.partition} was made by rules {end.fold_version}; "
                f"this process knows {FOLD_VERSION}"
            )
        return True
