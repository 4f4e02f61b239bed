"""When to make a snapshot of a partition, and which records may be deleted after it (I12; protocol.md section 7.5).

An owner's snapshot begins with a COMMIT that is not known to count yet: only at that moment is the live state a state
of the journal. When the COMMIT is known to count, the pieces are made, one per tick, and written.

A follower's state is always a state of the journal. It makes a snapshot when no other process seems to make any, and
deletes nothing. It may lag, and then its snapshot follows newer ones in the topic. So an owner does not delete older
snapshots because of a follower's snapshot either: it truncates journal and data, and keeps the snapshots longer.
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
from konverse.dialog.state.recent import Alarm
from konverse.schemas.limits import (
    SNAPSHOT_CHUNK_BYTES_MAX,
    SNAPSHOT_EVERY_BYTES,
    SNAPSHOT_EVERY_RECORDS,
    SNAPSHOT_RETRY_MS,
)
from konverse.schemas.wire.journal import FOLD_VERSION
from konverse.schemas.wire.snapshot import Chunk, SnapshotEnd, encode

from .events import AppendSnapshot, Effect, Truncate
from .recovery import FoundSnapshot, Recovery, snapshot_id

RECORDS_PER_ENDPOINT: Final = 4
KEPT: Final = 2
"""Number of durable snapshots to keep. No recovery needs the records before the older one."""


class _Durable(NamedTuple):
    """A snapshot whose records are all in its topic."""

    journal_offset: int
    number: int
    """Number of the COMMIT whose state it has."""
    ingest_to: int
    first_offset: int
    journal_bytes: int
    """Bytes that this process had written to the journal when the snapshot began."""
    by_owner: bool


_NONE: Final = _Durable(-1, 0, 0, -1, 0, by_owner=False)
"""The beginning of the log, before there is any snapshot."""


class _SnapshotDraft:
    """A snapshot that is being made."""

    def __init__(self, state: Partition, journal_bytes: int, *, by_owner: bool) -> None:
        self.journal_bytes = journal_bytes
        self.by_owner = by_owner
        self.freeze = Freeze(state)
        self.freeze.follow()
        self.ingest_to = state.ingest_to
        self.head: JournalHead | None = None
        """The journal head at the COMMIT with which it began; None until that is known to count."""
        self.written = False
        """All of its records were handed over."""
        self._pieces = chain(self.freeze.pieces(), pieces_of(state.recent))
        self._rest = b""
        """Bytes that are in no chunk yet."""
        self._chunks = 0
        self._size = 0
        self._hash = hashlib.sha256()

    def go_on(self, head: JournalHead) -> list[bytes]:
        """Make a piece. Returns the snapshot records that are complete."""
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


class SnapshotMaker:
    """The snapshots that one process makes of one partition."""

    def __init__(self, fold: Fold) -> None:
        self._fold = fold
        self._durable: deque[_Durable] = deque(maxlen=KEPT)
        self._retry_at = 0
        self._making: _SnapshotDraft | None = None
        self._last = _NONE
        """The last snapshot, or the moment when another process seems to have made one. The next one is counted from
        it."""
        self.needed_from = 0
        """Data offset below which data is gone. A snapshot that has ingested less is useless."""
        self._gone = False
        """Whether the last snapshot was deleted from its topic. The log records that it replaces may be gone, too."""
        self._topic_end = -1
        self._others = False
        self.on_begin: Callable[[], None] | None = None
        """Called when a snapshot begins, before the state changes again."""
        self.on_restored: Callable[[FoundSnapshot], None] | None = None
        """Called with the snapshot from which the state was restored."""

    @property
    def urgent(self) -> bool:
        """Whether no process could recover without a new snapshot."""
        return self._gone or self._last.ingest_to < self.needed_from

    @property
    def newest(self) -> int:
        """Offset of a record of the last snapshot, the first if it is known; -1 when this process knows of none."""
        return self._last.first_offset

    def rests_on(self, offset: int) -> bool:
        """Whether a recovery from the last snapshot needs data below this offset."""
        return self._last.ingest_to < offset

    @property
    def busy(self) -> bool:
        """Whether a snapshot is being made or written."""
        return self._making is not None

    @property
    def to_be_made(self) -> bool:
        """Whether a snapshot has begun, and pieces of it are left to make."""
        return self._making is not None and not self._making.written

    def recovered(self, recovery: Recovery) -> None:
        """Note the snapshot from which the state was restored, if there is one."""
        found, recovery.restored = recovery.restored, None
        if found is None:
            return
        if self.on_restored is not None:
            self.on_restored(found)
        end = found.end
        self._keep(_Durable(end.offset, end.number, end.ingest_to, found.first_offset, 0, found.by_owner))

    def _keep(self, durable: _Durable) -> None:
        self._durable.append(durable)
        self._last, self._gone = durable, False

    def held(self, newest: int, start: int, end: int) -> None:
        """Check that the last snapshot, which begins at `newest`, is still in its topic, which has `start` to `end`.

        If not, a new one is urgent, and nothing more is deleted before there are two again.
        """
        if newest == self.newest and not start <= newest < end:
            self._durable.clear()
            self._last, self._gone = _NONE, True
            alarm = Alarm(
                f"the last snapshot of {self._fold.head.where} was deleted from its topic. Where the logs were "
                "truncated, no process can recover the partition before the next snapshot, which is begun now. Find "
                "out which program deletes records of that topic"
            )
            self._fold.journal.alarms.append(alarm)

    def note_topic_end(self, topic_end: int) -> None:
        """Note where the snapshot topic ends. If it grows while this process follows, another one makes snapshots."""
        self._others = self._others or -1 < self._topic_end != topic_end
        self._topic_end = topic_end

    def followed(self, now_ms: int) -> list[Effect]:
        """A follower has folded up to the journal's end: begin a snapshot if one is due."""
        if self._others:
            self._others = False
            head, newest = self._fold.head, self._topic_end - 1
            self._last = _NONE._replace(number=head.number, ingest_to=self._fold.state.ingest_to, first_offset=newest)
        if self.due(0, now_ms):
            self.begin(0, by_owner=False)
            self.confirm()
        return self.go_on()

    def abandon(self) -> None:
        """Drop a snapshot that was begun as a follower: this process claims the partition (M211)."""
        self._making = None
        self._fold.state.on_touch = None

    def overdue(self, now_ms: int) -> bool:
        """Whether a snapshot should begin even if there is nothing else to commit."""
        return self.urgent and not self.busy and now_ms >= self._retry_at

    def due(self, journal_bytes: int, now_ms: int) -> bool:
        """Whether a snapshot should begin with this COMMIT. `journal_bytes`: journal bytes of this process so far."""
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
        """Begin a snapshot of the present state."""
        self._making = _SnapshotDraft(self._fold.state, journal_bytes, by_owner=by_owner)
        if self.on_begin is not None:
            self.on_begin()

    def confirm(self) -> None:
        """The COMMIT counts: keep the journal head that belongs to the frozen state."""
        if self._making is not None and self._making.head is None:
            self._making.head = self._fold.head.copy()

    def go_on(self) -> list[Effect]:
        """Make a piece, and return the effect that writes it."""
        making = self._making
        if making is None or making.head is None or making.written:
            return []
        records = making.go_on(making.head)
        return [AppendSnapshot(records, making.written)] if records else []

    def written(self, first_offset: int | None, now_ms: int) -> list[Effect]:
        """The snapshot is durable, or its fate is unknown (None). Returns the effect that lets records be deleted."""
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
