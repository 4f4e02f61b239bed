"""What a partition remembers of queries that write in batches: rows that wait for a decision, and what it decided."""

from __future__ import annotations

from typing import NamedTuple

from konverse.schemas.limits import QUERY_ENTRIES_MAX
from konverse.schemas.records import Role

from .endpoint import Stamp

UNDECIDED = -1
"""In place of a batch's number where none was decided yet."""

Attempt = tuple[int, bytes]
"""Batch, and one execution of one of its tasks."""


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


class Track:
    """Rows of one query in this partition: its BEGINs, or its messages."""

    __slots__ = ("attempts", "decided", "vetoed")

    def __init__(self) -> None:
        self.decided = UNDECIDED
        """Highest batch that was decided: rows at or below it are void."""
        self.attempts: dict[Attempt, dict[int, Row]] = {}
        """Rows by their number; those of an attempt may come doubled and in any order."""
        self.vetoed: dict[Attempt, None] = {}
        """Attempts for which there is no room; their rows wait until the judge of the query has said so too."""


class PendingRows:
    """All rows that wait in a partition."""

    __slots__ = ("rows", "size_bytes", "tracks")

    def __init__(self) -> None:
        self.tracks: dict[tuple[bytes, bool], Track] = {}
        """By query, and whether they are BEGINs."""
        self.rows = 0
        self.size_bytes = 0
        """Of their bodies."""

    def track(self, query: bytes, *, begins: bool) -> Track:
        """The rows of a query; when too many queries are known, one that waits for nothing is forgotten."""
        track = self.tracks.get((query, begins))
        if track is None:
            if len(self.tracks) >= QUERY_ENTRIES_MAX:
                idle = next((key for key, known in self.tracks.items() if not known.attempts), None)
                if idle is not None:
                    del self.tracks[idle]
            track = self.tracks[query, begins] = Track()
        return track

    def put(self, track: Track, attempt: Attempt, number: int, row: Row) -> None:
        """A row waits."""
        track.attempts.setdefault(attempt, {})[number] = row
        self.rows += 1
        self.size_bytes += len(row.body or b"")

    def drop(self, track: Track, attempt: Attempt) -> dict[int, Row]:
        """The rows of an attempt wait no more; what they were."""
        rows = track.attempts.pop(attempt, {})
        track.vetoed.pop(attempt, None)
        self.rows -= len(rows)
        self.size_bytes -= sum(len(row.body or b"") for row in rows.values())
        return rows

    def oldest(self) -> int | None:
        """Lowest offset of a row that waits."""
        offsets = (row.offset for t in self.tracks.values() for rows in t.attempts.values() for row in rows.values())
        return min(offsets, default=None)


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
