"""Duties of an owner that fall due with time: heartbeats, timers and lifetimes, pruning (protocol.md section 5).

Data is judged by the partition's time, which is the journal's. That time must be recent: an owner with nothing to
commit appends an empty COMMIT from time to time, and one that slept commits before it ingests. It commits even more
often than that requires, because readers take the owner of a silent journal for dead (M83). The owner's own clock only
decides when to write.
"""

from __future__ import annotations

from typing import Final

from konverse.dialog.fold.fold import Fold
from konverse.schemas.limits import PRUNE_EVERY_MS, TIME_LAG_MS_MAX, WRITER_HORIZON_MS
from konverse.schemas.wire.journal import FOLD_VERSION, Claim, CommitOperations, encode_claim
from konverse.schemas.wire.operations import Prune

from .events import DataEnd, Effect, ReadDataEnd
from .snapshots import SnapshotMaker

TIMER_PAUSE_MS: Final = 50
"""Minimum pause between COMMITs that only establish the time: the broker's clock may disagree with ours."""


class Upkeep:
    """The duties of one owner that fall due with time."""

    def __init__(self, fold: Fold, snapshots: SnapshotMaker, alive_every_ms: int) -> None:
        self._alive_every_ms = alive_every_ms
        self._fold = fold
        self._snapshots = snapshots
        self._made_ms = 0
        """When the last journal record was made, by this process's clock."""
        self._as_of_ms = 0
        """When the journal record by whose time data is judged was made, by this process's clock."""
        self._verified_ms: int | None = None
        """The partition's time when the end of the data log was asked for; None: no request is open."""
        self._data_end: int | None = None
        """The end of the data log that was returned; None: no answer yet."""

    def claim(self, owner: bytes, now_ms: int) -> bytes:
        """The owner's CLAIM, encoded; its log-append time becomes the partition's time."""
        head = self._fold.head
        identity = head.identity
        ids = (identity.incarnation, identity.data_topic_id, identity.journal_topic_id)
        self._made_ms = self._as_of_ms = now_ms
        return encode_claim(Claim(head.epoch + 1, owner, FOLD_VERSION, *ids, head.clean))

    def late(self, now_ms: int) -> bool:
        """Whether the partition's time is too old to judge data by it."""
        return now_ms - self._as_of_ms > TIME_LAG_MS_MAX

    def due(self, now_ms: int) -> bool:
        """Whether a COMMIT is due, even an empty one: for a heartbeat, a timer, or a snapshot that must begin."""
        silent_ms = now_ms - self._made_ms
        late = silent_ms > self._alive_every_ms or now_ms - self._as_of_ms > TIME_LAG_MS_MAX // 2
        return late or self._snapshots.overdue(now_ms) or self._rings(silent_ms)

    def _rings(self, silent_ms: int) -> bool:
        """Whether a timer or a lifetime is due. The first COMMIT establishes the time, and the one after it fires."""
        time_ms = self._fold.head.now_ms
        next_ms = self._fold.state.clocks.next_ms(time_ms)
        if next_ms is None or next_ms <= time_ms:
            return next_ms is not None
        return next_ms <= time_ms + silent_ms and silent_ms >= TIMER_PAUSE_MS

    def commits(self, operations: CommitOperations, now_ms: int) -> None:
        """Note that a COMMIT is made. Add a PRUNE if all data that the PRUNE must see is ingested (rule 4)."""
        self._as_of_ms, self._made_ms = self._made_ms, now_ms
        if self._data_end is not None and self._fold.state.ingest_to >= self._data_end:
            assert self._verified_ms is not None
            operations.rare.append(Prune(self._verified_ms - WRITER_HORIZON_MS))
            self._verified_ms = self._data_end = None

    def go_on(self) -> list[Effect]:
        """When a PRUNE is due, ask where the data log ends: all data below must be ingested before the PRUNE (M126)."""
        now_ms, floor_ms = self._fold.head.now_ms, self._fold.state.floor_ms
        if self._verified_ms is not None or now_ms - floor_ms < WRITER_HORIZON_MS + PRUNE_EVERY_MS:
            return []
        self._verified_ms = now_ms
        return [ReadDataEnd()]

    def data_end(self, event: DataEnd) -> list[Effect]:
        """Take the end of the data log. If it is unknown, `go_on` asks again."""
        self._data_end = event.offset
        if event.offset is None:
            self._verified_ms = None
        return []
