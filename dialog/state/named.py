"""Conversations whose id the caller has chosen: which live, and how those ended that are over (protocol.md section 6).

An id of our own making never comes again. One that an application derives, from an order say, may be begun again by a
process that knows nothing of the end. So each side remembers what ended where it first lived, at its home and at its
target: a BEGIN of such an id makes no endpoint and a FIRST comes back, unless the caller wants a conversation anew.
A new conversation has to wait until home has heard the end of the old target. Before that, a late reply of the old
target would be taken for a reply of the new one. What sessions still say of the old one is told by its opener.
"""

from __future__ import annotations

from datetime import UTC, datetime
from enum import IntEnum
from typing import Final, NamedTuple
from uuid import UUID

from konverse.schemas.identifiers import Role
from konverse.schemas.limits import NAMED_OPENER_ENTRIES_MAX, NAMED_OVER_ENTRIES_MAX

Key = tuple[Role, bytes]
"""A side of a conversation."""


class How(IntEnum):
    """How a side ended."""

    ENDED = 0
    FAILED = 1
    """WITH ERROR."""
    BEHIND_PEER = 2
    """The other side had ended."""
    BEHIND_ERROR = 3
    """An Error had come."""
    CLEANED_UP = 4
    """WITH CLEANUP."""
    MOVED = 5
    """In another partition, to which it had moved."""
    NEVER_BEGUN = 6
    """A target whose initiator had ended before anything came."""


class Over(NamedTuple):
    """What is remembered of a side that has ended."""

    how: How
    at_ms: int
    """By the partition's time."""


class NamedSides:
    """Those of one partition."""

    __slots__ = ("former", "heard", "living", "openers", "over")

    def __init__(self) -> None:
        self.living: dict[Key, None] = {}
        """Sides that have begun here and have not ended; they may have moved away since."""
        self.over: dict[Key, Over] = {}
        """In the order in which they ended."""
        self.heard: set[bytes] = set()
        """Conversations of which the initiator's side is here and has heard the end of its target."""
        self.openers: dict[Key, tuple[bytes, ...]] = {}
        """Sessions that have begun what lives, or lived last; the latest ones."""
        self.former: dict[Key, tuple[bytes, ...]] = {}
        """Sessions that had begun what was over before it was begun anew; the latest ones."""

    def begin(self, key: Key, opener: bytes) -> None:
        """A side begins."""
        if key[0] is Role.INITIATOR:
            self.heard.discard(key[1])
        if self.over.pop(key, None) is not None:
            self.former[key] = (*self.former.get(key, ()), *self.openers.get(key, ()))
        self.openers[key] = ()
        self.living[key] = None
        self.join(key, opener)

    def join(self, key: Key, opener: bytes) -> None:
        """A session begins what lives: it takes part."""
        if key not in self.living:
            return
        self.openers[key] = (*(one for one in self.openers[key] if one != opener), opener)[-NAMED_OPENER_ENTRIES_MAX:]
        former = [one for one in self.former.pop(key, ()) if one != opener][-NAMED_OPENER_ENTRIES_MAX:]
        if former:
            self.former[key] = (*former,)

    def end(self, key: Key, how: How, now_ms: int) -> None:
        """A side has ended; nothing is remembered of one whose id was not chosen."""
        if key in self.living:
            del self.living[key]
            self.remember(key, Over(how, now_ms))

    def hear(self, conversation: bytes) -> None:
        """The end of the target comes: nothing of it comes behind that."""
        key = Role.INITIATOR, conversation
        if key in self.living or key in self.over:
            self.heard.add(conversation)

    def remember(self, key: Key, over: Over) -> None:
        """The first end counts; the oldest goes when there are too many."""
        if key in self.over:
            return
        if len(self.over) >= NAMED_OVER_ENTRIES_MAX:
            self._forget(next(iter(self.over)))
        self.over[key] = over

    def prune(self, floor_ms: int) -> None:
        """Forget what ended before."""
        for key in [key for key, over in self.over.items() if over.at_ms < floor_ms]:
            self._forget(key)

    def _forget(self, key: Key) -> None:
        del self.over[key]
        self.openers.pop(key, None)
        self.former.pop(key, None)
        if key[0] is Role.INITIATOR:
            self.heard.discard(key[1])


def told(conversation: bytes, over: Over) -> str:
    """Which conversation has ended, how and when, for people."""
    when = datetime.fromtimestamp(over.at_ms / 1_000, UTC).isoformat(timespec="milliseconds")
    return f"conversation {UUID(bytes=conversation)} is over: {_HOW[over.how]}, at {when} by Kafka's time"


_HOW: Final = {
    How.ENDED: "this side ended it",
    How.FAILED: "this side ended it WITH ERROR",
    How.BEHIND_PEER: "the other side ended it, and then this one",
    How.BEHIND_ERROR: "it failed with an Error, and this side ended it",
    How.CLEANED_UP: "this side was ended WITH CLEANUP",
    How.MOVED: "it ended in another partition, to which it had moved",
    How.NEVER_BEGUN: "the initiator ended it before anything came",
}
"""Of a side that asks."""
