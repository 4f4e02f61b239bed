"""The fold of one partition: journal and data log in, state out. Owners and followers run this same code.

The journal is the total order. A COMMIT that counts says "ingest the data log up to x, then apply these operations";
the fold waits for that data and then does so. It asks the driver for what it lacks and never guesses.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from konverse.dialog.rules.accepted_loss import Acceptance
from konverse.dialog.rules.attempts import claimed
from konverse.dialog.rules.loss import lost_by
from konverse.dialog.rules.timers import settle
from konverse.dialog.state.partition import Partition
from konverse.dialog.state.recent import Columns, alarm_of, alarm_of_session, alarm_of_unknown
from konverse.schemas.identifiers import LogIdentity
from konverse.schemas.wire.journal import Claim, Commit

from .apply import apply
from .ingest import ingest
from .journal import Decided, JournalFeed, JournalHead, JournalRecord


class Overtaken(Exception):
    """What comes next was truncated or taken back, behind a snapshot: recover again, with an empty fold."""


class Fold:
    """State and head after the records that were fed so far."""

    def __init__(self, identity: LogIdentity) -> None:
        self.head = JournalHead(identity)
        self.state = Partition(identity)
        self.journal = JournalFeed(self.head.where)
        self.waiting: deque[Decided] = deque()
        self.data: deque[Columns] = deque()
        """Data that was read and not yet ingested."""
        self.given_up: Acceptance | None = None
        """Commits cannot be folded any more: only the journal is judged, until the owner says LOST."""
        self._has_said_unknown = False
        self._missed_to = 0
        """Data offset below which something was passed over, unless it was read since."""

    @property
    def data_to(self) -> int:
        """Data offset below which everything was read."""
        return self.data[-1].next_offset if self.data else self.state.ingest_to

    def feed_journal(self, records: Sequence[JournalRecord]) -> None:
        """Records of the journal, in offset order, each once."""
        self.waiting += self.journal.decisions(records)

    def feed_data(self, columns: Columns) -> list[tuple[int, int]]:
        """Records of the data log from `data_to` on; what stands before is dropped.

        Returns which span has to be read instead, if any: that is so where something may be missing before them, and
        as long as a shorter answer has not brought all of it.
        """
        if columns.start > self.data_to:
            self._missed_to = max(self._missed_to, columns.next_offset)
        elif columns.next_offset > self.data_to:
            self.data.append(columns.before(self.data_to)[1])
        return [(self.data_to, self._missed_to)] if self.data_to < self._missed_to else []

    def advance(self) -> int | None:
        """Fold what can be folded. None when the journal fed so far is folded, else the data offset that it needs."""
        while self.waiting:
            record, decision = self.waiting[0]
            if not self.head.accepts(decision):
                self.head.skip(record.offset)
            else:
                if self.given_up is not None:
                    self.given_up.pass_over(decision)
                elif isinstance(decision, Commit):
                    lost = lost_by(decision)
                    if lost is not None and lost.start < self.state.ingest_to:
                        raise Overtaken(f"an operator has accepted that data of {self.head.where} are lost")
                    needed = decision.ingest_to if lost is None else lost.start
                    if needed > self.data_to:
                        return self._needed()
                    self.state.rejected = dict(decision.rejected)
                    self.state.recent.contested = dict.fromkeys(decision.contested)
                    self.ingest_to(needed)
                    if lost is not None:
                        self.pass_over(lost.end)
                    self.apply(decision)
                else:
                    settle(self.state, self.head.now_ms)
                    claimed(self.state, clean=self.head.clean)
                self.head.take(decision, record.data, record.offset, record.timestamp_ms)
                if isinstance(decision, Claim):
                    self.state.now_ms = self.head.now_ms
            self.waiting.popleft()
        return None

    def give_up(self, acceptance: Acceptance) -> None:
        """Data are gone that the commits from here on have ingested: those are not folded."""
        self.data.clear()
        self._missed_to = 0
        acceptance.first_offset = self.state.ingest_to
        self.given_up = acceptance

    def go_on_behind(self) -> int:
        """Take the journal's end for the place of the state; how far the commits that were not folded have ingested."""
        acceptance, self.given_up = self.given_up, None
        if acceptance is None:
            return 0
        acceptance.settle(self.state)
        return acceptance.ingested_to

    def _needed(self) -> int:
        """How far the commits that wait reach in the data log, up to the first that says that some of it is gone."""
        needed = 0
        for _, decision in self.waiting:
            if isinstance(decision, Commit):
                lost = lost_by(decision)
                needed = max(needed, decision.ingest_to if lost is None else lost.start)
                if lost is not None:
                    break
        return needed

    def apply(self, commit: Commit) -> None:
        """Apply a commit whose data was ingested, before the head moves past it.

        An owner does so before it can know the time of its commit. So the data behind it is judged by the time before.
        """
        self.state.now_ms = self.head.now_ms
        apply(self.state, commit)

    def ingest_to(self, offset: int) -> None:
        """Ingest the data that stands before `offset`."""
        while self.data and self.state.ingest_to < offset:
            columns = self.data.popleft()
            if columns.next_offset > offset:
                columns, rest = columns.before(offset)
                self.data.appendleft(rest)
            self._ingest(columns)

    def pass_over(self, offset: int) -> None:
        """What stands before `offset` and was not ingested is gone."""
        while self.data and self.data[0].next_offset <= offset:
            self.data.popleft()
        if self.data:
            self.data[0] = self.data[0].before(offset)[1]
        self.state.ingest_to = max(self.state.ingest_to, offset)

    def ingest_some(self, records_max: int, bytes_max: int) -> int:
        """Ingest whole reads until about `records_max` records, or until so many bytes wait; how many records."""
        count = 0
        while self.data and count < records_max and self.state.unread_bytes < bytes_max:
            columns = self.data.popleft()
            count += len(columns.offsets)
            self._ingest(columns)
        return count

    def _ingest(self, columns: Columns) -> None:
        ingest(self.state, columns)
        recent, where = self.state.recent, self.head.where
        while recent.found:
            self.journal.alarms.append(alarm_of(recent.found.popleft(), where))
        while recent.told:
            self.journal.alarms.append(alarm_of_session(recent.told.popleft()))
        if recent.unknown_at is not None and not self._has_said_unknown:
            self._has_said_unknown = True
            self.journal.alarms.append(alarm_of_unknown(recent.unknown_at, where))
