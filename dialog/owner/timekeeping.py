"""What an owner does because time passes: keep the partition's time, have writers pruned (protocol.md section 5).

Data is judged by the partition's time, and that is the time of the journal. So it must not be old: an owner with
nothing to say commits now and then, and one that slept ingests nothing before it has done so. It commits more often
than that, for who sees a journal stand still takes its owner for dead. The clock that is asked here is the owner's own;
it decides when to write, never what is true.
"""

from __future__ import annotations

from typing import Final

from konverse.dialog.fold.fold import Fold
from konverse.schemas.limits import PRUNE_EVERY_MS, TIME_LAG_MS_MAX, WRITER_HORIZON_MS
from konverse.schemas.wire.journal import FOLD_VERSION, Claim, Operations, encode_claim
from konverse.schemas.wire.operations import Prune

from .events import DataEnd, Effect, ReadDataEnd
from .snapshots import Snapshotting

TIMER_PAUSE_MS: Final = 50
"""Commits that only tell the time follow each other no faster: brokers' clocks may disagree with ours."""


class Upkeep:
    """The clock of one owner."""

    def __init__(self, fold: Fold, snapshots: Snapshotting, alive_every_ms: int) -> None:
        self._alive_every_ms = alive_every_ms
        self._fold = fold
        self._snapshots = snapshots
        self._made_ms = 0
        """When the last record of the journal was made, by this process's clock."""
        self._as_of_ms = 0
        """When the one was made by whose time data is judged."""
        self._verified_ms: int | None = None
        """The partition's time before the end of the data log was asked for."""
        self._data_end: int | None = None
        """What came back."""

    def claim(self, owner: bytes, now_ms: int) -> bytes:
        """The owner's CLAIM; its time will be the partition's."""
        head = self._fold.head
        identity = head.identity
        ids = (identity.incarnation, identity.data_topic_id, identity.journal_topic_id)
        self._made_ms = self._as_of_ms = now_ms
        return encode_claim(Claim(head.epoch + 1, owner, FOLD_VERSION, *ids, head.clean))

    def late(self, now_ms: int) -> bool:
        """The partition's time is too old for data to be judged by it."""
        return now_ms - self._as_of_ms > TIME_LAG_MS_MAX

    def due(self, now_ms: int) -> bool:
        """It is time for a commit, whether there is something to say or not; a snapshot begins with one."""
        silent_ms = now_ms - self._made_ms
        late = silent_ms > self._alive_every_ms or now_ms - self._as_of_ms > TIME_LAG_MS_MAX // 2
        return late or self._snapshots.overdue(now_ms) or self._rings(silent_ms)

    def _rings(self, silent_ms: int) -> bool:
        """A timer or a lifetime is due. The first commit tells the time, the one after it fires."""
        time_ms = self._fold.head.now_ms
        next_ms = self._fold.state.clocks.next_ms(time_ms)
        if next_ms is None or next_ms <= time_ms:
            return next_ms is not None
        return next_ms <= time_ms + silent_ms and silent_ms >= TIMER_PAUSE_MS

    def commits(self, operations: Operations, now_ms: int) -> None:
        """A commit is made: with it a PRUNE, if one may be (rule 4)."""
        self._as_of_ms, self._made_ms = self._made_ms, now_ms
        if self._data_end is not None and self._fold.state.ingest_to >= self._data_end:
            assert self._verified_ms is not None
            operations.rare.append(Prune(self._verified_ms - WRITER_HORIZON_MS))
            self._verified_ms = self._data_end = None

    def go_on(self) -> list[Effect]:
        """Ask what a PRUNE must have seen, when one is due. Whoever wrote before it is heard before it, then."""
        now_ms, floor_ms = self._fold.head.now_ms, self._fold.state.floor_ms
        if self._verified_ms is not None or now_ms - floor_ms < WRITER_HORIZON_MS + PRUNE_EVERY_MS:
            return []
        self._verified_ms = now_ms
        return [ReadDataEnd()]

    def data_end(self, event: DataEnd) -> list[Effect]:
        """The end of the data log; None when it cannot be known now."""
        self._data_end = event.offset
        if event.offset is None:
            self._verified_ms = None
        return []
