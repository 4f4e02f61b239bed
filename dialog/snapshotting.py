"""When a partition's snapshot is due, how it is made beside the work, and what may be deleted then (I12).

A snapshot begins with a commit of which nobody knows yet whether it counts, because only there the live state is one
that the journal will say. When the commit is known to count, its pieces are made, one at a tick, and written.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple

from konverse.schemas.journal import FOLD_VERSION
from konverse.schemas.limits import (
    SNAPSHOT_CHUNK_BYTES_MAX,
    SNAPSHOT_EVERY_BYTES,
    SNAPSHOT_EVERY_RECORDS,
    SNAPSHOT_RETRY_MS,
)
from konverse.schemas.snapshot import Chunk, SnapshotEnd, encode

from .events import AppendSnapshot, Effect, Truncate
from .fold import Fold
from .head import JournalHead
from .snapshot import Freeze
from .snapshot_search import Found

RECORDS_PER_ENDPOINT: Final = 4
KEPT: Final = 2
"""Durable snapshots; what stands before the older one is needed by nobody."""


class _Durable(NamedTuple):
    """A snapshot that is in its topic."""

    journal_offset: int
    ingest_to: int
    first_offset: int


class Snapshotting:
    """The snapshots of one partition, as one process makes them."""

    def __init__(self, fold: Fold) -> None:
        self._fold = fold
        self._durable: deque[_Durable] = deque(maxlen=KEPT)
        self._records_then = 0
        self._bytes_then = 0
        self._retry_at = 0
        self._freeze: Freeze | None = None
        self._pieces: Iterator[bytes] = iter(())
        self._head: JournalHead | None = None
        self._ingest_to = 0
        self._waiting = b""
        """Bytes that are not in a chunk yet."""
        self._chunks = 0
        self._size = 0
        self._hash = hashlib.sha256()
        self._writing = False
        """All records are handed over."""

    @property
    def _records(self) -> int:
        return self._fold.state.ingest_to + self._fold.head.number

    def recovered(self, found: Found) -> None:
        """The state was restored from this one."""
        self._records_then = self._records
        self._durable.append(_Durable(found.end.offset, found.end.ingest_to, found.first_offset))

    @property
    def kept(self) -> int:
        """Durable snapshots that this process knows of."""
        return len(self._durable)

    def due(self, journal_bytes: int, now_ms: int) -> bool:
        """Whether one should begin with this commit; `journal_bytes` were written by this process so far."""
        if self._freeze is not None or now_ms < self._retry_at:
            return False
        live = len(self._fold.state.sides[0]) + len(self._fold.state.sides[1])
        return (
            self._records - self._records_then >= max(SNAPSHOT_EVERY_RECORDS, RECORDS_PER_ENDPOINT * live)
            or journal_bytes - self._bytes_then >= SNAPSHOT_EVERY_BYTES
        )

    def begin(self, journal_bytes: int) -> None:
        """Take the state as it is now."""
        self._freeze = Freeze(self._fold.state)
        self._freeze.follow()
        self._pieces = self._freeze.pieces()
        self._ingest_to = self._fold.state.ingest_to
        self._head = None
        self._records_then, self._bytes_then = self._records, journal_bytes
        self._waiting, self._chunks, self._size, self._writing = b"", 0, 0, False
        self._hash = hashlib.sha256()

    def confirm(self) -> None:
        """The commit counts: the head is the one that belongs to the state."""
        if self._freeze is not None and self._head is None:
            self._head = self._fold.head.copy()

    def go_on(self) -> list[Effect]:
        """Make a piece; what is to be written."""
        head = self._head
        if self._freeze is None or head is None or self._writing:
            return []
        identifier = hashlib.sha256(head.owner + head.offset.to_bytes(8, "big")).digest()[:16]
        piece = next(self._pieces, None)
        self._waiting += piece or b""
        records = []
        while len(self._waiting) >= SNAPSHOT_CHUNK_BYTES_MAX or (piece is None and self._waiting):
            data, self._waiting = (
                self._waiting[:SNAPSHOT_CHUNK_BYTES_MAX],
                self._waiting[SNAPSHOT_CHUNK_BYTES_MAX:],
            )
            records.append(encode(Chunk(identifier, self._chunks, data)))
            self._hash.update(data)
            self._chunks += 1
            self._size += len(data)
        if piece is None:
            records.append(encode(self._end(identifier, head)))
            self._writing = True
        return [AppendSnapshot(records, self._writing)] if records else []

    def written(self, first_offset: int | None, now_ms: int) -> list[Effect]:
        """It is durable, or nobody knows; what may be deleted."""
        freeze, head, self._freeze = self._freeze, self._head, None
        if freeze is None or head is None or first_offset is None:
            self._retry_at = now_ms + SNAPSHOT_RETRY_MS
            return []
        self._durable.append(_Durable(head.offset, self._ingest_to, first_offset))
        if len(self._durable) < KEPT:
            return []
        older = self._durable[0]
        needed = older.ingest_to if freeze.oldest_waiting is None else min(older.ingest_to, freeze.oldest_waiting)
        return [Truncate(older.journal_offset + 1, needed, older.first_offset)]

    def _end(self, identifier: bytes, head: JournalHead) -> SnapshotEnd:
        identity = head.identity
        return SnapshotEnd(
            identifier,
            FOLD_VERSION,
            identity.incarnation,
            identity.data_topic_id,
            identity.journal_topic_id,
            head.epoch,
            head.owner,
            head.number,
            head.hash,
            head.claim_offset,
            head.offset,
            head.now_ms,
            head.clean,
            self._ingest_to,
            self._chunks,
            self._size,
            self._hash.digest(),
        )
