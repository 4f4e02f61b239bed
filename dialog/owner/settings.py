"""Whose turn it is to have a TRY open, of the partitions that one process owns (protocol.md section 7.1).

A process dies with all of its partitions. If only one of them has a TRY open, the death is counted against whom that
one has handed out, and against nobody who was merely in the same process.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from konverse.schemas.limits import TIME_LAG_MS_MAX, TRY_GROUPS_MAX, UNCOMMITTED_MS_MAX

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


@dataclass(frozen=True, slots=True)
class OwnerSettings:
    """What a user may choose, and what the owners of a process share."""

    batch: int = 100
    """Conversation groups that share one commit, at most."""
    max_messages: int | None = None
    """Messages of one conversation that a transaction gets, at most (RECEIVE TOP n)."""
    view_interval_ms: int | None = 100
    """The view is written at most this often; None: there is none."""
    alive_every_ms: int = TIME_LAG_MS_MAX // 2
    """The journal never stands still for longer."""
    turns: Turns = field(default_factory=Turns)
    """Of all owners of the process."""
    uncommitted_ms: int = UNCOMMITTED_MS_MAX
    """What came in and what arrived elsewhere is committed within that, also when no handler has done anything."""
    handlers: int = TRY_GROUPS_MAX
    """So many run at a time here, as far as that is known."""
    hands_out: bool = True
    """Groups are handed out here; an owner that only looks after a partition announces none of them by TRY."""
