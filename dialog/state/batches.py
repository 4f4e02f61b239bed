"""Queries that write in batches: rows that wait for the decision about their batch, and decisions (protocol.md 9b)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from konverse.schemas.identifiers import Address, Role
from konverse.schemas.limits import QUERY_ENTRIES_MAX

from .endpoint import Stamp

UNDECIDED = -1
"""Stands for the number of the last decided batch when none was decided yet."""

Track = tuple[bytes, bool, bytes]
"""Rows of one query in this partition: query id, True for its BEGINs and False for its messages, and the writer of the
decisions about them."""

Attempt = tuple[Track, int, bytes]
"""One execution of a Spark task: track of its rows, number of its batch, id of the attempt."""


class PendingRow(NamedTuple):
    """A message or BEGIN that is void until its batch is decided."""

    offset: int
    flags: int
    role: Role
    conversation: bytes
    suffix: bytes
    """End of the header with which the row is accepted."""
    body: bytes | None
    stamp: Stamp
    contested: tuple[PendingRow, ...] = ()
    """Rows with other content that came under the same number."""

    @property
    def content(self) -> tuple[object, ...]:
        """Everything that the executions of a task could write differently."""
        return self.flags, self.role, self.conversation, self.suffix, self.body

    @property
    def all(self) -> tuple[PendingRow, ...]:
        """The row, and those with other content under its number."""
        return self, *self.contested


class PendingRows:
    """All rows of undecided batches in a partition."""

    __slots__ = ("attempts", "contents", "decided", "live", "rows", "size_bytes")

    def __init__(self) -> None:
        self.decided: dict[Track, int] = {}
        """Highest decided batch: rows of this and earlier batches are void."""
        self.attempts: dict[Attempt, dict[int, PendingRow]] = {}
        """Attempt -> rows by number, the oldest attempt first. Rows may arrive repeated and in any order."""
        self.contents: dict[Attempt, dict[int, set[tuple[object, ...]]]] = {}
        """Attempt -> contents of the rows of each number that came more than once. Derived, so not state."""
        self.live: dict[Attempt, Address] = {}
        """Attempt that was not vetoed -> partition that decides its batch.

        The rows of a vetoed attempt stay in `attempts` until that partition answers.
        """
        self.rows = 0
        """Number of rows of live attempts."""
        self.size_bytes = 0
        """Bytes of the bodies of these rows."""

    def last_decided(self, track: Track) -> int:
        """Highest decided batch of a track; when there are too many tracks, one without waiting rows is forgotten."""
        if track not in self.decided:
            if len(self.decided) >= QUERY_ENTRIES_MAX:
                busy = {waiting for waiting, _, _ in self.attempts}
                idle = next((known for known in self.decided if known not in busy), None)
                if idle is not None:
                    del self.decided[idle]
            self.decided[track] = UNDECIDED
        return self.decided[track]

    def decide(self, track: Track, batch: int) -> None:
        """Record a decided batch. The track without a decision for the longest time is forgotten first."""
        self.decided.pop(track, None)
        self.decided[track] = batch

    def meet(self, attempt: Attempt, judge: Address) -> None:
        """Register an attempt whose rows arrive, with the partition that decides its batch."""
        if attempt not in self.attempts:
            self.attempts[attempt] = {}
            self.live[attempt] = judge

    def has(self, attempt: Attempt, number: int, row: PendingRow) -> bool:
        """Whether a row with this number and this content waits."""
        before = self.attempts.get(attempt, {}).get(number)
        if before is None:
            return False
        contents = self.contents.setdefault(attempt, {}).get(number)
        if contents is None:
            contents = self.contents[attempt][number] = {one.content for one in before.all}
        return row.content in contents

    def put(self, attempt: Attempt, number: int, row: PendingRow) -> None:
        """Keep a row of a registered attempt, beside those that came under its number before."""
        rows = self.attempts[attempt]
        before = rows.get(number)
        if before is not None and number in self.contents.get(attempt, {}):
            self.contents[attempt][number].add(row.content)
        rows[number] = row if before is None else before._replace(contested=(*before.contested, row))
        if attempt in self.live:
            self.rows += 1
            self.size_bytes += len(row.body or b"")

    def veto(self, attempt: Attempt) -> Address:
        """Veto an attempt: its rows no longer count against a bound. Returns the partition that decides its batch."""
        count, size = self.weight(attempt)
        self.rows -= count
        self.size_bytes -= size
        return self.live.pop(attempt)

    def weight(self, attempt: Attempt) -> tuple[int, int]:
        """Number of waiting rows of an attempt, and bytes of their bodies."""
        rows = [*self.rows_of(attempt)]
        return len(rows), sum(len(row.body or b"") for row in rows)

    def rows_of(self, attempt: Attempt) -> Iterator[PendingRow]:
        """All waiting rows of an attempt."""
        return (row for one in self.attempts[attempt].values() for row in one.all)

    def drop(self, attempt: Attempt) -> dict[int, PendingRow]:
        """Remove the rows of an attempt and return them."""
        if attempt in self.live:
            self.veto(attempt)
        self.contents.pop(attempt, None)
        return self.attempts.pop(attempt, {})

    def oldest(self) -> int | None:
        """Lowest data offset of a waiting row; None when there is none."""
        return min((row.offset for attempt in self.attempts for row in self.rows_of(attempt)), default=None)


class Judgement:
    """Decisions about the batches of one query, in the partition that makes them."""

    __slots__ = ("by", "decided", "vetoed")

    def __init__(self) -> None:
        self.decided = UNDECIDED
        """Highest decided batch."""
        self.by = b""
        """Writer of the BATCH that decided it."""
        self.vetoed: dict[bytes, int] = {}
        """Attempt that must not win -> its batch; forgotten when that batch is decided."""

    def decide(self, batch: int, by: bytes) -> None:
        """Record the decision: the first BATCH of this number counts."""
        self.decided, self.by = batch, by
        self.vetoed = {attempt: number for attempt, number in self.vetoed.items() if number > batch}
