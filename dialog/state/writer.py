"""Writer entries: which counter a partition accepts next, or where the writer was closed (protocol.md section 5)."""

from __future__ import annotations

from typing import Final, NamedTuple

from konverse.schemas.identifiers import NO_WRITER
from konverse.schemas.wire.varint import LOW_MASK, SMALL, high_part, low_table

Heir = tuple[bytes, int]
"""Heir of a closed writer, and the counter of its CLOSE_WRITER; the heir's resent records follow directly after that.

The counter is -1 if the heir resends nothing, because it believes that everything was received.
"""
MERGED: Final = -1
"""Value of `Hole.answered_to` for a hole that was merged from several."""
NO_HEIR: Final[Heir] = (NO_WRITER, -1)
"""No heir, ever: the writer closed itself, or was closed to find out the outcome of its messages."""
CHANGED: Final = -1
"""Value of `noted` for a writer that is new, or was closed since the last PRUNE."""


class Writer:
    """The entry of a sender in a partition: the counter that is accepted next (invariant I4).

    `low` and `high` hold the encoded bytes of that counter, so that `ingest` recognises the usual record by comparison.
    """

    __slots__ = ("closed_at", "heir", "high", "holes", "id", "lanes", "low", "next", "noted", "noted_ms")

    def __init__(self, identifier: bytes) -> None:
        self.id = identifier
        self.next = 0
        self.closed_at: int | None = None
        self.heir: Heir | None = None
        """None until the first CLOSE_WRITER that names the writer. PRUNE closes a writer and leaves this None."""
        self.holes: tuple[Hole, ...] = ()
        """Counters below `next` that were passed over, in ascending order."""
        self.lanes = 0
        """Number of lanes of living endpoints that this writer has."""
        self.noted = CHANGED
        """`next` at the last PRUNE."""
        self.noted_ms = 0
        """Time of the last PRUNE that found `next` changed."""
        self.low = SMALL
        self.high = b""

    def advance(self) -> None:
        """Count one record: the next counter is expected from here on."""
        self.next = n = self.next + 1
        if not n & LOW_MASK:
            self.carry()

    def go_on_at(self, counter: int) -> None:
        """Expect this counter next; the records before it are gone."""
        self.next = counter
        self.carry()

    def carry(self) -> None:
        """Recompute the predicted bytes; needed whenever the low part of the counter wraps."""
        self.low = low_table(self.next)
        self.high = high_part(self.next)

    def close(self) -> int:
        """Close the writer and return where; only the first call decides that (protocol.md section 5, rule 3)."""
        if self.closed_at is None:
            self.closed_at = self.next
            self.noted = CHANGED
        return self.closed_at


class Hole(NamedTuple):
    """Range of counters whose records were deleted or lost before they were ingested (`dialog.rules.holes`)."""

    start: int
    end: int
    """The counter after the last one of the hole."""
    answered_to: int
    """First counter that still gets an answer, should its record arrive late.

    MERGED: the hole was merged from several, and some counters in it were received.
    """
