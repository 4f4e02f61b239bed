"""Whose turn it is to have a TRY open, of the partitions that one process owns (protocol.md section 7.1).

A process dies with all of its partitions. If only one of them has a TRY open, the death is counted against whom that
one has handed out, and against nobody who was merely in the same process.
"""

from __future__ import annotations

from typing import Final

TURN_MS: Final = 10_000
"""A turn ends after this long: a handler that takes its time keeps no other partition waiting for ever."""

PASS_MS: Final = 100
"""So long the others have to take their turn before somebody has the next one, too."""


class Turns:
    """Shared by the owners of a process. Each of them asks for itself, by whatever object it likes."""

    __slots__ = ("_holder", "_last", "_passed_ms", "_since_ms", "_wanted")

    def __init__(self) -> None:
        self._holder: object = None
        self._since_ms = 0
        self._wanted = False
        """Somebody else has asked meanwhile."""
        self._last: object = None
        """Who has passed the turn on."""
        self._passed_ms = 0

    def may(self, who: object, now_ms: int) -> bool:
        """Whether `who` can have the next turn: not at once when it has just had one and another one waits."""
        if self._holder is not None and self._holder is not who and now_ms - self._since_ms < TURN_MS:
            self._wanted = True
            return False
        return who is not self._last or now_ms - self._passed_ms >= PASS_MS

    def take(self, who: object, now_ms: int) -> None:
        """It is the turn of `who`."""
        self._holder, self._since_ms, self._wanted, self._last = who, now_ms, False, None

    def give_back(self, who: object, now_ms: int) -> None:
        """Everything that `who` has handed out came back, or is no longer its own."""
        if self._holder is who:
            self._holder, self._last, self._passed_ms = None, who if self._wanted else None, now_ms
