"""An entry of a writer: the counter that is expected next, or where the writer was closed (protocol.md section 5)."""

from __future__ import annotations

from typing import Final, NamedTuple

from konverse.schemas.wire.varint import LOW_MASK, SMALL, high_part, low_table

Heir = tuple[bytes, int]
"""Who sends again what a closed writer sent in vain, and the counter of its CLOSE_WRITER, behind which that stands.

-1 where it does not come again: the heir goes on, and believes that it was received.
"""
MERGED: Final = -1
NOBODY: Final[Heir] = (bytes(16), -1)
"""Nobody ever will: the writer said goodbye, or somebody has asked what was received."""
CHANGED: Final = -1
"""In place of the counter that the last PRUNE noted: the writer was closed since, or is new."""


class Writer:
    """A sender's place in this partition: the counter that is accepted next (invariant I4).

    `low` and `high` hold the bytes of that counter, so that the usual record is recognised by comparison alone.
    """

    __slots__ = ("closed_at", "heir", "high", "holes", "id", "lanes", "low", "next", "noted", "noted_ms")

    def __init__(self, identifier: bytes) -> None:
        self.id = identifier
        self.next = 0
        self.closed_at: int | None = None
        self.heir: Heir | None = None
        """None as long as it was closed by no record."""
        self.holes: tuple[Hole, ...] = ()
        """Which counters below `next` were passed over, in their order."""
        self.lanes = 0
        """Of living endpoints."""
        self.noted = CHANGED
        """`next` at the last PRUNE."""
        self.noted_ms = 0
        """Time of the PRUNE that found it changed."""
        self.low = SMALL
        self.high = b""

    def advance(self) -> None:
        """Accept the next counter."""
        self.next = n = self.next + 1
        if not n & LOW_MASK:
            self.carry()

    def go_on_at(self, counter: int) -> None:
        """Accept this counter next; those before it are gone."""
        self.next = counter
        self.carry()

    def carry(self) -> None:
        """Renew the predicted bytes; needed whenever the low part of the counter starts again."""
        self.low = low_table(self.next)
        self.high = high_part(self.next)

    def close(self) -> int:
        """Accept nothing more; the first call decides where (protocol.md section 5, rule 3)."""
        if self.closed_at is None:
            self.closed_at = self.next
            self.noted = CHANGED
        return self.closed_at


class Hole(NamedTuple):
    """Counters of a writer whose records were deleted before the partition ingested them (`dialog.rules.holes`)."""

    start: int
    end: int
    """The counter behind the last one."""
    told: int
    """Records from this counter on, should they come late, were not answered yet; MERGED: some were received."""
