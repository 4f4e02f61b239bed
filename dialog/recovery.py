"""Brings a fold up to the end of its journal: from the newest intact snapshot, then record by record.

Source: protocol.md section 4, `recover`. Each method returns what is to be read next, and nothing when the journal is
folded up to the end that was named. Started again with a further end it goes on where it stands: so one follows.
"""

from __future__ import annotations

from typing import Final, NoReturn

from konverse.schemas.errors import PartitionHalted

from .accepting import Acceptance, command
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
from .fold import Fold, Overtaken
from .snapshot import restore
from .snapshot_search import Found, SnapshotSearch

WAY_ON: Final = (
    "Restore the topic; or give its conversations up: drop the queue with force=True, create it again, and end the far "
    "sides WITH CLEANUP"
)
"""What an operator can do about a log that the state cannot be had from any more."""


class Recovery:
    """The reading of one partition's logs."""

    def __init__(self, fold: Fold) -> None:
        self.restored: Found | None = None
        """The snapshot that the state was restored from."""
        self.acceptance: Acceptance | None = None
        """What an operator gives up where data are gone that commits have ingested; None: the partition halts there."""
        self._fold = fold
        self._found = False
        """The search for a snapshot is over: the fold stands somewhere in its journal."""
        self._search: SnapshotSearch | None = None
        self._goes_on = False
        """It was started again, and stands behind the snapshots that it has seen."""
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
        """Begin with the snapshots, or go on; Overtaken when that is not possible."""
        self._bounds = event
        self._end = event.journal_end
        self._goes_on = self._found
        if self._found:
            if event.journal_start > self._fold.head.offset + 1:
                raise Overtaken(f"what comes next in the journal of {self._fold.head.where} was truncated")
            return self.read_on(event.journal_end)
        self._search = SnapshotSearch(self._fold.head.identity, event)
        return self._search_on(self._search)

    def snapshots_read(self, event: SnapshotsRead) -> list[Effect]:
        """Records of the snapshot topic."""
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
            held = "no intact snapshot" if found is None else f"no intact snapshot behind {fold.head.offset}"
            raise PartitionHalted(
                f"the journal of {fold.head.where} begins at {self._bounds.journal_start} and there is {held}: "
                f"its beginning was deleted. {WAY_ON}"
            )
        return self.read_on(self._end)

    def read_on(self, end: int) -> list[Effect]:
        """Fold up to a further end of the journal."""
        self._end = end
        self._resume_at = max(self._resume_at, self._fold.head.offset + 1)
        return self._fold_on()

    def journal_read(self, event: JournalRead) -> list[Effect]:
        """Records of the journal."""
        self._fold.feed_journal(event.records)
        self._resume_at = event.next_offset
        return self._fold_on()

    def data_read(self, event: DataRead) -> list[Effect]:
        """Records of the data log."""
        self._fold.feed_data(event.columns)
        return self._fold_on()

    def out_of_range(self, event: OutOfRange) -> NoReturn:
        """Something that is asked for is gone: Overtaken, or PartitionHalted when it is the end of a log."""
        if event.beginning:
            raise Overtaken(f"a log of {self._fold.head.where} was truncated while it was read")
        raise self._end_missing()

    def _end_missing(self) -> PartitionHalted:
        where = self._fold.head.where
        return PartitionHalted(
            f"a log of {where} ends before what was read of it or counted on: its end was deleted. {WAY_ON}"
        )

    def _data_missing(self) -> Overtaken | PartitionHalted:
        """Commits have ingested what the data log does not hold. There may be a snapshot of somebody who had it."""
        where, offset, identity = self._fold.head.where, self._fold.data_to, self._fold.head.identity
        if self._goes_on:
            return Overtaken(f"what comes next in the data log of {where} was truncated")
        return PartitionHalted(
            f"the data log of {where} does not hold offset {offset} any more, which its journal has ingested: "
            f"its beginning was deleted. {WAY_ON}. To give up only what is lost of it: "
            f"{command(identity.data_topic, identity.partition)}"
        )

    def _fold_on(self) -> list[Effect]:
        fold = self._fold
        try:
            needed = fold.advance()
        except Overtaken as error:
            if self._goes_on:
                raise
            raise PartitionHalted(f"{error}, and there is no intact snapshot behind that. {WAY_ON}") from None
        fold.state.look_away()
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
