"""The fold of one partition: consumes the journal and the data log, and holds the state. Owners and followers share it.

The journal is the total order. A COMMIT that counts says "ingest the data log up to x, then apply these operations".
The fold waits for that data and then does both. It asks its driver for the data that it lacks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from konverse.dialog.rules.accepted_loss import AcceptedLoss
from konverse.dialog.rules.attempts import claimed
from konverse.dialog.rules.loss import lost_by
from konverse.dialog.rules.timers import settle
from konverse.dialog.state.partition import Partition
from konverse.dialog.state.recent import RecordColumns, alarm_of, alarm_of_loss, alarm_of_session, alarm_of_unknown
from konverse.schemas.identifiers import LogIdentity
from konverse.schemas.wire.journal import Claim, Commit

from .apply import apply
from .ingest import ingest
from .journal import Decided, JournalFeed, JournalHead, JournalRecord


class Overtaken(Exception):
    """The next records were deleted, or a LOST took back folded COMMITs: recover again, with an empty fold."""


class Fold:
    """The journal head and the state after all records that were fed and folded."""

    def __init__(self, identity: LogIdentity) -> None:
        self.head = JournalHead(identity)
        self.state = Partition(identity)
        self.journal = JournalFeed(self.head.where)
        self.waiting: deque[Decided] = deque()
        self.data: deque[RecordColumns] = deque()
        """Data that was read and is not ingested yet."""
        self.given_up: AcceptedLoss | None = None
        """Set when an operator accepted a loss of data. Until the owner leads, COMMITs are then judged but no longer
        folded."""
        self._has_said_unknown = False
        self._missed_to = 0
        """End of the range that a consumer skipped; not above `data_to` when nothing is missing."""

    @property
    def data_to(self) -> int:
        """Data offset below which every record was read."""
        return self.data[-1].next_offset if self.data else self.state.ingest_to

    def feed_journal(self, records: Sequence[JournalRecord]) -> None:
        """Take records of the journal, in offset order, each once."""
        self.waiting += self.journal.decisions(records)

    def feed_data(self, columns: RecordColumns) -> list[tuple[int, int]]:
        """Take records of the data log from `data_to` on. Records below `data_to` are dropped.

        Returns the ranges that the driver must read again: at most one. A range is missing when `columns` begins after
        `data_to`, and stays missing until reads have delivered all of it (M12).
        """
        if columns.start > self.data_to:
            self._missed_to = max(self._missed_to, columns.next_offset)
        elif columns.next_offset > self.data_to:
            self.data.append(columns.before(self.data_to)[1])
        return [(self.data_to, self._missed_to)] if self.data_to < self._missed_to else []

    def advance(self) -> int | None:
        """Fold as many journal records as the data that was read allows.

        Returns None when all journal records that were fed are folded, else the data offset up to which data is needed.
        Raises Overtaken when a LOST takes back COMMITs that this fold has applied.
        """
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
                        raise Overtaken(f"an operator has accepted the loss of data of {self.head.where}")
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

    def give_up(self, acceptance: AcceptedLoss) -> None:
        """Stop folding COMMITs: data that they ingested is gone. `acceptance` collects the facts that need no data."""
        self.data.clear()
        self._missed_to = 0
        acceptance.first_offset = self.state.ingest_to
        self.given_up = acceptance

    def skip_given_up(self) -> int:
        """Move the state to the end of the journal, past the COMMITs that were not folded.

        Returns the data offset up to which those COMMITs had ingested; 0 when there were none.
        """
        acceptance, self.given_up = self.given_up, None
        if acceptance is None:
            return 0
        acceptance.settle(self.state)
        return acceptance.ingested_to

    def _needed(self) -> int:
        """Data offset up to which the waiting COMMITs ingest, no further than the first LOST among them."""
        needed = 0
        for _, decision in self.waiting:
            if isinstance(decision, Commit):
                lost = lost_by(decision)
                needed = max(needed, decision.ingest_to if lost is None else lost.start)
                if lost is not None:
                    break
        return needed

    def apply(self, commit: Commit) -> None:
        """Apply a COMMIT whose data is ingested, before the head moves past it.

        An owner applies its own COMMIT before it knows the COMMIT's time. So every fold judges the data after a COMMIT
        by the partition's time before that COMMIT.
        """
        self.state.now_ms = self.head.now_ms
        apply(self.state, commit)

    def ingest_to(self, offset: int) -> None:
        """Ingest the data below `offset`."""
        while self.data and self.state.ingest_to < offset:
            columns = self.data.popleft()
            if columns.next_offset > offset:
                columns, rest = columns.before(offset)
                self.data.appendleft(rest)
            self._ingest(columns)

    def pass_over(self, offset: int) -> None:
        """Skip the data below `offset` that was not ingested: it is lost."""
        while self.data and self.data[0].next_offset <= offset:
            self.data.popleft()
        if self.data:
            self.data[0] = self.data[0].before(offset)[1]
        self.state.ingest_to = max(self.state.ingest_to, offset)

    def ingest_some(self, records_max: int, bytes_max: int) -> int:
        """Ingest whole reads: about `records_max` records, or until `bytes_max` bytes wait. Returns the count."""
        count = 0
        while self.data and count < records_max and self.state.unread_bytes < bytes_max:
            columns = self.data.popleft()
            count += len(columns.offsets)
            self._ingest(columns)
        return count

    def _ingest(self, columns: RecordColumns) -> None:
        ingest(self.state, columns)
        recent, where = self.state.recent, self.head.where
        while recent.found:
            self.journal.alarms.append(alarm_of(recent.found.popleft(), where))
        while recent.losses:
            self.journal.alarms.append(alarm_of_loss(recent.losses.popleft(), where))
        while recent.told:
            self.journal.alarms.append(alarm_of_session(recent.told.popleft()))
        if recent.unknown_at is not None and not self._has_said_unknown:
            self._has_said_unknown = True
            self.journal.alarms.append(alarm_of_unknown(recent.unknown_at, where))
