"""Conversations whose id the caller chose: which of them live, and how the others ended (protocol.md 9e).

konverse never makes an id twice. An id that an application derives, for example from an order number, may be begun
again by a process that does not know of the end. So each side remembers its ended conversations in the partition where
it began: at its home and at its target. A BEGIN with such an id makes no endpoint, and a FIRST bounces.
"""

from __future__ import annotations

from datetime import UTC, datetime
from enum import IntEnum
from typing import Final, NamedTuple
from uuid import UUID

from konverse.schemas.errors import ConversationOver
from konverse.schemas.identifiers import Role
from konverse.schemas.limits import NAMED_OVER_ENTRIES_MAX
from konverse.schemas.system_messages import ANOTHER_ID

Key = tuple[Role, bytes]
"""One side of a conversation: role and conversation id."""


class How(IntEnum):
    """How a side ended."""

    ENDED = 0
    FAILED = 1
    """It ended WITH ERROR."""
    AFTER_PEER = 2
    """It ended after its peer had ended."""
    AFTER_ERROR = 3
    """It ended after an Error had arrived."""
    CLEANED_UP = 4
    """It ended WITH CLEANUP."""
    MOVED = 5
    """It had moved to another partition, and ended there."""
    NEVER_BEGUN = 6
    """A target that never lived: its initiator ended before anything arrived."""


class Over(NamedTuple):
    """How and when a side ended."""

    how: How
    at_ms: int
    """By the partition's time."""


class NamedSides:
    """Sides with ids of the caller's choice that began in one partition."""

    __slots__ = ("living", "over")

    def __init__(self) -> None:
        self.living: dict[Key, bool] = {}
        """Side that began here and has not ended -> whether several sessions have begun it. Some have moved away."""
        self.over: dict[Key, Over] = {}
        """Sides that have ended, oldest first."""

    def begin(self, key: Key) -> None:
        """Record that a side begins."""
        self.living[key] = False

    def share(self, key: Key) -> None:
        """Record that another session has begun the conversation as well."""
        if key in self.living:
            self.living[key] = True

    def end(self, key: Key, how: How, now_ms: int) -> None:
        """Record that a side has ended. Nothing is remembered of a conversation whose id konverse made."""
        if key in self.living:
            del self.living[key]
            self.remember(key, Over(how, now_ms))

    def remember(self, key: Key, over: Over) -> None:
        """Remember an ended side. The first end counts; when the table is full, the oldest entry goes."""
        if key in self.over:
            return
        if len(self.over) >= NAMED_OVER_ENTRIES_MAX:
            del self.over[next(iter(self.over))]
        self.over[key] = over

    def prune(self, floor_ms: int) -> None:
        """Forget the sides that ended before `floor_ms`."""
        for key in [key for key, over in self.over.items() if over.at_ms < floor_ms]:
            del self.over[key]

    def refusal(self, conversation: bytes) -> ConversationOver | None:
        """Error for a caller that begins this conversation at its home; None unless its end is remembered here."""
        over = self.over.get((Role.INITIATOR, conversation))
        return None if over is None else ConversationOver(f"{describe_end(conversation, over)}. {ANOTHER_ID}")


def describe_end(conversation: bytes, over: Over) -> str:
    """Say in words which conversation has ended, how and when."""
    when = datetime.fromtimestamp(over.at_ms / 1_000, UTC).isoformat(timespec="milliseconds")
    return f"conversation {UUID(bytes=conversation)} is over: {_HOW[over.how]}, at {when} by Kafka's time"


_HOW: Final = {
    How.ENDED: "this side ended it",
    How.FAILED: "this side ended it WITH ERROR",
    How.AFTER_PEER: "the other side ended it, and then this one",
    How.AFTER_ERROR: "it failed with an Error, and this side ended it",
    How.CLEANED_UP: "this side was ended WITH CLEANUP",
    How.MOVED: "it ended in another partition, to which it had moved",
    How.NEVER_BEGUN: "the initiator ended it before anything arrived",
}
"""How the conversation ended, as seen from the remembered side."""
