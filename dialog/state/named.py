"""Conversations whose id the caller chose: which of them live, and how the others ended (protocol.md 9e).

An id that konverse makes never comes again. An id that an application derives, from an order number say, may be begun
again by a process that does not know of the end. So each side remembers its ended conversations in the partition where
it began: at its home and at its target. A BEGIN with such an id makes no endpoint and a FIRST bounces, unless the
caller asks for a new conversation (ANEW). A new conversation has to wait until each side has received the end of the
other one; before that, a late message of the old conversation would pass for one of the new one. Nor does ANEW lead
into a conversation that lives and was begun without it. Records that sessions still write for another conversation with
the id, one that is over or one that was refused, name its opener and are recognised by that (protocol.md 9g).
"""

from __future__ import annotations

from datetime import UTC, datetime
from enum import IntEnum
from typing import Final, NamedTuple
from uuid import UUID

from konverse.schemas.identifiers import Role
from konverse.schemas.limits import NAMED_OPENER_ENTRIES_MAX, NAMED_OVER_ENTRIES_MAX

Key = tuple[Role, bytes]
"""One side of a conversation."""


class How(IntEnum):
    """How a side ended."""

    ENDED = 0
    FAILED = 1
    """WITH ERROR."""
    BEHIND_PEER = 2
    """The other side had ended before."""
    BEHIND_ERROR = 3
    """An Error had arrived before."""
    CLEANED_UP = 4
    """WITH CLEANUP."""
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

    __slots__ = ("former", "heard", "living", "openers", "over")

    def __init__(self) -> None:
        self.living: dict[Key, bool] = {}
        """Sides that began here and have not ended, and whether they were begun ANEW; some may have moved away."""
        self.over: dict[Key, Over] = {}
        """Sides that have ended, oldest first."""
        self.heard: set[Key] = set()
        """Sides that have received the end of the other side."""
        self.openers: dict[Key, tuple[bytes, ...]] = {}
        """Openers of the conversation that lives, or lived last: the latest sessions that began it."""
        self.former: dict[Key, tuple[bytes, ...]] = {}
        """Openers of conversations that had the id before it was begun anew, and refused openers: the latest ones."""

    def begin(self, key: Key, opener: bytes, *, anew: bool) -> None:
        """Record that a side begins; the openers of an ended one with the same id become former openers."""
        self.heard.discard(key)
        if self.over.pop(key, None) is not None:
            self.former[key] = (*self.former.get(key, ()), *self.openers.get(key, ()))
        self.openers.pop(key, None)
        self.living[key] = anew
        self.join(key, opener)

    def join(self, key: Key, opener: bytes) -> None:
        """Record that a session began a conversation that lives already: its records count from here on."""
        if key not in self.living:
            return
        others = [one for one in self.openers.get(key, ()) if one != opener]
        self.openers[key] = (*others, opener)[-NAMED_OPENER_ENTRIES_MAX:]
        former = [one for one in self.former.pop(key, ()) if one != opener][-NAMED_OPENER_ENTRIES_MAX:]
        if former:
            self.former[key] = (*former,)

    def refuse(self, key: Key, opener: bytes) -> None:
        """Record that a session may not begin a conversation with this id: its further records have no effect.

        If it has begun the conversation with the id itself, it has no part in it from here on.
        """
        if key in self.living or key in self.over:
            others = tuple(one for one in self.openers.pop(key, ()) if one != opener)
            if others:
                self.openers[key] = others
            known = [one for one in self.former.get(key, ()) if one != opener]
            self.former[key] = (*known, opener)[-NAMED_OPENER_ENTRIES_MAX:]

    def knows(self, key: Key, opener: bytes) -> bool:
        """Whether this session is an opener of the present conversation or of a former one, or was refused."""
        return opener in self.openers.get(key, ()) or opener in self.former.get(key, ())

    def end(self, key: Key, how: How, now_ms: int) -> None:
        """Record that a side has ended. Nothing is remembered of a conversation whose id konverse made."""
        if key in self.living:
            del self.living[key]
            self.remember(key, Over(how, now_ms))

    def hear(self, key: Key) -> None:
        """Record that the end of the other side has reached this one: no message of that conversation can follow."""
        if key in self.living or key in self.over:
            self.heard.add(key)

    def remember(self, key: Key, over: Over) -> None:
        """Remember an ended side. The first end counts; when the table is full, the oldest entry goes."""
        if key in self.over:
            return
        if len(self.over) >= NAMED_OVER_ENTRIES_MAX:
            self._forget(next(iter(self.over)))
        self.over[key] = over

    def prune(self, floor_ms: int) -> None:
        """Forget the sides that ended before `floor_ms`."""
        for key in [key for key, over in self.over.items() if over.at_ms < floor_ms]:
            self._forget(key)

    def _forget(self, key: Key) -> None:
        del self.over[key]
        self.openers.pop(key, None)
        self.former.pop(key, None)
        self.heard.discard(key)


def told(conversation: bytes, over: Over) -> str:
    """Say in words which conversation has ended, how and when."""
    when = datetime.fromtimestamp(over.at_ms / 1_000, UTC).isoformat(timespec="milliseconds")
    return f"conversation {UUID(bytes=conversation)} is over: {_HOW[over.how]}, at {when} by Kafka's time"


def in_use(conversation: bytes) -> str:
    """Say in words that a conversation lives, for a caller that asked for a new one with its id."""
    return (
        f"conversation {UUID(bytes=conversation)} is still open and was begun without `anew`. End it and wait until "
        "the other side has ended, or begin without `anew` to join it"
    )


_HOW: Final = {
    How.ENDED: "this side ended it",
    How.FAILED: "this side ended it WITH ERROR",
    How.BEHIND_PEER: "the other side ended it, and then this one",
    How.BEHIND_ERROR: "it failed with an Error, and this side ended it",
    How.CLEANED_UP: "this side was ended WITH CLEANUP",
    How.MOVED: "it ended in another partition, to which it had moved",
    How.NEVER_BEGUN: "the initiator ended it before anything came",
}
"""How the conversation ended, as seen from the side that is asked about."""
