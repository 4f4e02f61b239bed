"""What a partition remembers of queries that write in batches: rows that wait for a decision, and what it decided."""

from __future__ import annotations

from typing import NamedTuple

from konverse.schemas.identifiers import Address, Role
from konverse.schemas.limits import QUERY_ENTRIES_MAX

from .endpoint import Stamp

UNDECIDED = -1
"""In place of a batch's number where none was decided yet."""

Track = tuple[bytes, bool]
"""Rows of one query in this partition: its BEGINs, or its messages."""

Attempt = tuple[Track, int, bytes]
"""One execution of a task: whose rows, of which batch, and its id."""


class Row(NamedTuple):
    """A message or BEGIN that is void until its batch is decided."""

    offset: int
    flags: int
    role: Role
    conversation: bytes
    suffix: bytes
    """Of the header that it is accepted with."""
    body: bytes | None
    stamp: Stamp


class PendingRows:
    """All rows that wait in a partition."""

    __slots__ = ("attempts", "decided", "live", "rows", "size_bytes")

    def __init__(self) -> None:
        self.decided: dict[Track, int] = {}
        """Highest batch that was decided: rows at or below it are void."""
        self.attempts: dict[Attempt, dict[int, Row]] = {}
        """Rows by their number; those of an attempt may come doubled and in any order. The oldest attempt first."""
        self.live: dict[Attempt, Address] = {}
        """Attempts that were not vetoed, and who judges them. The rows of the others wait for what that one says."""
        self.rows = 0
        """Of live attempts."""
        self.size_bytes = 0
        """Of their bodies."""

    def last_decided(self, track: Track) -> int:
        """The highest batch; of too many queries, one that waits for nothing is forgotten."""
        if track not in self.decided:
            if len(self.decided) >= QUERY_ENTRIES_MAX:
                busy = {waiting for waiting, _, _ in self.attempts}
                idle = next((known for known in self.decided if known not in busy), None)
                if idle is not None:
                    del self.decided[idle]
            self.decided[track] = UNDECIDED
        return self.decided[track]

    def meet(self, attempt: Attempt, judge: Address) -> None:
        """Rows of an attempt come."""
        if attempt not in self.attempts:
            self.attempts[attempt] = {}
            self.live[attempt] = judge

    def put(self, attempt: Attempt, number: int, row: Row) -> None:
        """A row of a known attempt waits."""
        self.attempts[attempt][number] = row
        if attempt in self.live:
            self.rows += 1
            self.size_bytes += len(row.body or b"")

    def veto(self, attempt: Attempt) -> Address:
        """The rows of an attempt are not to stay; returns who judges it."""
        count, size = self.weight(attempt)
        self.rows -= count
        self.size_bytes -= size
        return self.live.pop(attempt)

    def weight(self, attempt: Attempt) -> tuple[int, int]:
        """How many rows of an attempt wait, and the bytes of their bodies."""
        rows = self.attempts[attempt].values()
        return len(rows), sum(len(row.body or b"") for row in rows)

    def drop(self, attempt: Attempt) -> dict[int, Row]:
        """The rows of an attempt wait no more; what they were."""
        if attempt in self.live:
            self.veto(attempt)
        return self.attempts.pop(attempt, {})

    def oldest(self) -> int | None:
        """Lowest offset of a row that waits."""
        return min((row.offset for rows in self.attempts.values() for row in rows.values()), default=None)


class Judgement:
    """What was decided of a query, where its batches are decided."""

    __slots__ = ("by", "decided", "vetoed")

    def __init__(self) -> None:
        self.decided = UNDECIDED
        """Highest batch that was decided."""
        self.by = b""
        """Writer of the BATCH that decided it."""
        self.vetoed: dict[bytes, int] = {}
        """Attempts that cannot win -> their batch; forgotten when that is decided."""

    def decide(self, batch: int, by: bytes) -> None:
        """The first BATCH of this number is here."""
        self.decided, self.by = batch, by
        self.vetoed = {attempt: number for attempt, number in self.vetoed.items() if number > batch}
