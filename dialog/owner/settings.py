"""Settings of an owner, and the turns that the owners of one process take after a crash (protocol.md section 7.1).

A process dies with all of its partitions. Only one of them has a TRY open at a time. So a death is counted against the
groups in that TRY, and not against groups that merely ran in the same process.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from konverse.schemas.limits import TIME_LAG_MS_MAX, TRY_GROUPS_MAX, UNCOMMITTED_MS_MAX

TURN_MS: Final = 10_000
"""A turn ends after this time, so that a slow handler does not keep other partitions waiting forever."""
PASS_MS: Final = 100
"""For this time after its turn an owner gives way to the others, if one of them waits."""


class Turns:
    """The turns of the owners of one process. An owner identifies itself by any object."""

    __slots__ = ("_holder", "_last", "_passed_ms", "_since_ms", "_wanted")

    def __init__(self) -> None:
        self._holder: object = None
        self._since_ms = 0
        self._wanted = False
        """Whether another owner has asked during this turn."""
        self._last: object = None
        """The owner that gave its turn back while another one waited."""
        self._passed_ms = 0

    def may(self, owner: object, now_ms: int) -> bool:
        """Whether `owner` may have the next turn: not right after its own turn while another owner waits."""
        if self._holder is not None and self._holder is not owner and now_ms - self._since_ms < TURN_MS:
            self._wanted = True
            return False
        return owner is not self._last or now_ms - self._passed_ms >= PASS_MS

    def take(self, owner: object, now_ms: int) -> None:
        """Start the turn of `owner`."""
        self._holder, self._since_ms, self._wanted, self._last = owner, now_ms, False, None

    def give_back(self, owner: object, now_ms: int) -> None:
        """End the turn of `owner`: its groups came back, or no longer belong to it."""
        if self._holder is owner:
            self._holder, self._last, self._passed_ms = None, owner if self._wanted else None, now_ms


@dataclass(frozen=True, slots=True)
class OwnerSettings:
    """Choices of the user, and objects that the owners of a process share."""

    batch: int = 100
    """Maximum number of conversation groups that share one COMMIT."""
    max_messages: int | None = None
    """Maximum number of messages of one conversation in a transaction (RECEIVE TOP n); None: no maximum."""
    view_interval_ms: int | None = 100
    """Minimum time between two writes of the view; None: there is no view."""
    alive_every_ms: int = TIME_LAG_MS_MAX // 2
    """Maximum time between two records of the journal."""
    turns: Turns = field(default_factory=Turns)
    """Shared by all owners of the process."""
    uncommitted_ms: int = UNCOMMITTED_MS_MAX
    """Ingested data and arrived outputs are committed within this time, even when no handler finishes."""
    handlers: int = TRY_GROUPS_MAX
    """Number of handlers that run at a time, as far as it is known."""
    hands_out: bool = True
    """False for an owner that only looks after a partition. It announces no groups by TRY."""
