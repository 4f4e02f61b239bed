"""When a partition's snapshot is due, how it is made beside the work, and what may be deleted then (I12).

A snapshot begins with a commit of which nobody knows yet whether it counts, because only there the live state is one
that the journal will say. When the commit is known to count, its pieces are made, one at a tick, and written.

A follower's state is always one that the journal says. It makes a snapshot when nobody else seems to, and deletes
nothing: it may be behind, so that its snapshots stand in the topic behind newer ones. Therefore nobody deletes a
snapshot because there is one of a follower either; journal and data go, and what holds their place stays longer.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable
from itertools import chain
from typing import Final, NamedTuple

from konverse.dialog.fold.fold import Fold
from konverse.dialog.fold.journal import JournalHead
from konverse.dialog.fold.snapshot import Freeze
from konverse.dialog.fold.snapshot_sections import pieces_of
from konverse.dialog.state.partition import Partition
from konverse.schemas.limits import (
    SNAPSHOT_CHUNK_BYTES_MAX,
    SNAPSHOT_EVERY_BYTES,
    SNAPSHOT_EVERY_RECORDS,
    SNAPSHOT_RETRY_MS,
)
from konverse.schemas.wire.journal import FOLD_VERSION
from konverse.schemas.wire.snapshot import Chunk, SnapshotEnd, encode

from .events import AppendSnapshot, Effect, Truncate
from .recovery import Found, Recovery, snapshot_id

RECORDS_PER_ENDPOINT: Final = 4
KEPT: Final = 2
"""Durable snapshots; what stands before the older one is needed by nobody."""


class _Durable(NamedTuple):
    """A snapshot that is in its topic."""

    journal_offset: int
    number: int
    """Of its commit."""
    ingest_to: int
    first_offset: int
    journal_bytes: int
    """What this process had written to the journal when it began."""
    by_owner: bool


_NONE: Final = _Durable(-1, 0, 0, 0, 0, by_owner=False)
"""The beginning of the log, before there is any snapshot."""


class _Making:
    """A snapshot while it is made."""

    def __init__(self, state: Partition, journal_bytes: int, *, by_owner: bool) -> None:
        self.journal_bytes = journal_bytes
        self.by_owner = by_owner
        self.freeze = Freeze(state)
        self.freeze.follow()
        self.ingest_to = state.ingest_to
        self.head: JournalHead | None = None
        """Of the commit with which it began, when that is known to count."""
        self.written = False
        """All records are handed over."""
        self._pieces = chain(self.freeze.pieces(), pieces_of(state.recent))
        self._rest = b""
        """Bytes that are not in a chunk yet."""
        self._chunks = 0
        self._size = 0
        self._hash = hashlib.sha256()

    def go_on(self, head: JournalHead) -> list[bytes]:
        """Make a piece; the records that are full."""
        identifier = snapshot_id(head.owner, head.offset, follower=not self.by_owner)
        piece = next(self._pieces, None)
        self._rest += piece or b""
        records = []
        while len(self._rest) >= SNAPSHOT_CHUNK_BYTES_MAX or (piece is None and self._rest):
            data, self._rest = self._rest[:SNAPSHOT_CHUNK_BYTES_MAX], self._rest[SNAPSHOT_CHUNK_BYTES_MAX:]
            records.append(encode(Chunk(identifier, self._chunks, data)))
            self._hash.update(data)
            self._chunks += 1
            self._size += len(data)
        if piece is None:
            records.append(encode(self._end(identifier, head)))
            self.written = True
        return records

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
            self.ingest_to,
            self._chunks,
            self._size,
            self._hash.digest(),
        )


class Snapshotting:
    """The snapshots of one partition, as one process makes them."""

    def __init__(self, fold: Fold) -> None:
        self._fold = fold
        self._durable: deque[_Durable] = deque(maxlen=KEPT)
        self._retry_at = 0
        self._making: _Making | None = None
        self._last = _NONE
        """Since this one, or since somebody else seems to have made one, is counted for the next."""
        self.needed_from = 0
        """Data offset: nobody can recover from a snapshot that stands before it."""
        self._topic_end = -1
        self._others = False
        self.on_begin: Callable[[], None] | None = None
        """Told when one begins, while the state is as it will say."""
        self.on_restored: Callable[[Found], None] | None = None
        """Told of the one from which the state was restored."""

    @property
    def urgent(self) -> bool:
        """Without a new one nobody could recover."""
        return self._last.ingest_to < self.needed_from

    def rests_on(self, offset: int) -> bool:
        """Whoever recovers from the last one needs data that stand before this offset."""
        return self._last.ingest_to < offset

    @property
    def busy(self) -> bool:
        """One is being made or written."""
        return self._making is not None

    @property
    def to_be_made(self) -> bool:
        """There are pieces left to make."""
        return self._making is not None and not self._making.written

    def recovered(self, recovery: Recovery) -> None:
        """Take over the snapshot that the state was restored from, if there is one."""
        found, recovery.restored = recovery.restored, None
        if found is None:
            return
        if self.on_restored is not None:
            self.on_restored(found)
        end = found.end
        self._keep(_Durable(end.offset, end.number, end.ingest_to, found.first_offset, 0, found.by_owner))

    def _keep(self, durable: _Durable) -> None:
        self._durable.append(durable)
        self._last = durable

    def heard(self, topic_end: int) -> None:
        """Where the snapshot topic ends now: when it grows while one follows, somebody makes snapshots."""
        self._others = self._others or -1 < self._topic_end != topic_end
        self._topic_end = topic_end

    def followed(self, now_ms: int) -> list[Effect]:
        """A follower stands at a record of the journal: a snapshot may begin there."""
        if self._others:
            self._others = False
            self._last = _NONE._replace(number=self._fold.head.number, ingest_to=self._fold.state.ingest_to)
        if self.due(0, now_ms):
            self.begin(0, by_owner=False)
            self.confirm()
        return self.go_on()

    def abandon(self) -> None:
        """Finish none that was begun: whoever followed claims the partition."""
        self._making = None
        self._fold.state.on_touch = None

    def overdue(self, now_ms: int) -> bool:
        """One should begin, whether there is anything else to commit or not."""
        return self.urgent and not self.busy and now_ms >= self._retry_at

    def due(self, journal_bytes: int, now_ms: int) -> bool:
        """Whether one should begin with this commit; `journal_bytes` were written by this process so far."""
        if self.busy or now_ms < self._retry_at:
            return False
        state, last = self._fold.state, self._last
        records = state.ingest_to - last.ingest_to + self._fold.head.number - last.number
        live = len(state.sides[0]) + len(state.sides[1])
        return (
            self.urgent
            or records >= max(SNAPSHOT_EVERY_RECORDS, RECORDS_PER_ENDPOINT * live)
            or journal_bytes - last.journal_bytes >= SNAPSHOT_EVERY_BYTES
        )

    def begin(self, journal_bytes: int, *, by_owner: bool = True) -> None:
        """Take the state as it is now."""
        self._making = _Making(self._fold.state, journal_bytes, by_owner=by_owner)
        if self.on_begin is not None:
            self.on_begin()

    def confirm(self) -> None:
        """The commit counts: the head is the one that belongs to the state."""
        if self._making is not None and self._making.head is None:
            self._making.head = self._fold.head.copy()

    def go_on(self) -> list[Effect]:
        """Make a piece; what is to be written."""
        making = self._making
        if making is None or making.head is None or making.written:
            return []
        records = making.go_on(making.head)
        return [AppendSnapshot(records, making.written)] if records else []

    def written(self, first_offset: int | None, now_ms: int) -> list[Effect]:
        """It is durable, or nobody knows; what may be deleted."""
        making, self._making = self._making, None
        if making is None or making.head is None or first_offset is None:
            self._retry_at = now_ms + SNAPSHOT_RETRY_MS
            return []
        head = making.head
        self._keep(
            _Durable(head.offset, head.number, making.ingest_to, first_offset, making.journal_bytes, making.by_owner)
        )
        if len(self._durable) < KEPT or not making.by_owner:
            return []
        older, waiting = self._durable[0], making.freeze.oldest_waiting
        needed = older.ingest_to if waiting is None else min(older.ingest_to, waiting)
        return [Truncate(older.journal_offset + 1, needed, older.first_offset if older.by_owner else 0)]
