"""The state of a pool: its places and conversations, and the effects that `dialog.pool.pool` asks for."""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple, TypeVar

from konverse.dialog.state.mailbox import Bounced
from konverse.dialog.state.transitions import next_state
from konverse.schemas.catalog.table_entries import Target
from konverse.schemas.limits import POOL_ASTRAY_MS, POOL_KEY_ENTRIES_MAX

Kept = TypeVar("Kept")

Way = tuple[Target, ...]
"""Targets to which routers redirected, one after another; messages go to the last one. Empty: no redirection."""


class Stage(Enum):
    """Stage of a pooled conversation; `dialog.pool.pool` explains them and STAGE_TRANSITIONS has their changes."""

    OPEN = "open"
    CLOSING = "closing"
    BROKEN = "broken"
    OVER = "over"


class StageEvent(Enum):
    """An event that changes the stage of a pooled conversation."""

    RECYCLED = "EndOfStream and FIN are sent on it"
    BROKEN = "the target has ended or failed it early, or home has sent EndOfStream by itself"
    JUDGED = "its messages are received or have come back, and the target has still to answer EndOfStream"
    OVER = "this side has ended it, or home does not know it any more"


STAGE_TRANSITIONS: Final = {
    (Stage.OPEN, StageEvent.RECYCLED): Stage.CLOSING,
    (Stage.OPEN, StageEvent.BROKEN): Stage.BROKEN,
    (Stage.OPEN, StageEvent.OVER): Stage.OVER,
    (Stage.CLOSING, StageEvent.BROKEN): Stage.BROKEN,
    (Stage.CLOSING, StageEvent.OVER): Stage.OVER,
    (Stage.BROKEN, StageEvent.JUDGED): Stage.CLOSING,
    (Stage.BROKEN, StageEvent.OVER): Stage.OVER,
}
"""Every change of the stage of a pooled conversation."""


class PoolPlace:
    """A place for one open conversation: that of a key, of a session, or one of the `size` conversations of a pool."""

    __slots__ = (
        "again_ms", "astray", "awaits", "current", "group", "living", "noticed", "resends_pending", "used_ms", "way",
        "way_ms",
    )  # fmt: skip

    def __init__(self, group: bytes) -> None:
        self.group = group
        """Conversation group of all its conversations."""
        self.current: Pooled | None = None
        self.awaits: list[Pooled] = []
        """Conversations that ended and whose messages go first: one, or several that were redirected together."""
        self.resends_pending = False
        """Bounced messages have to be sent again before anything new."""
        self.living: list[Pooled] = []
        """Its conversations that are not over, oldest first."""
        self.used_ms = 0
        """When it was last found in use."""
        self.noticed = 0
        """Number of messages that its conversation had sent when it was last found in use."""
        self.way: Way = ()
        """Way of the conversations that it begins (behaviour 233)."""
        self.way_ms = 0
        """When `way` was set."""
        self.astray: str | None = None
        """Why its last redirection leads nowhere, so that bounced messages stay in the mailbox; else None."""
        self.again_ms = 0
        """When to try the pool's own service again."""

    def forget_way(self, now_ms: int) -> bool:
        """Drop a way that leads nowhere, if it is older than POOL_ASTRAY_MS. Returns whether it was dropped."""
        old = now_ms - self.way_ms >= POOL_ASTRAY_MS
        if old:
            self.way = ()
        return old

    @property
    def waits(self) -> bool:
        """Whether new messages wait, because earlier ones may have come back and must go first."""
        return self.resends_pending or bool(self.awaits)

    @property
    def has_more(self) -> bool:
        """Whether a conversation is not over, or a bounced message was not sent again."""
        return bool(self.living) or self.resends_pending or self.astray is not None


class Pooled:
    """A pooled conversation."""

    __slots__ = (
        "adopted", "begun_ms", "code", "conversation", "due", "ended", "misled", "place", "resumed", "rings_ms",
        "since_ms", "stage", "unnumbered", "unread", "way",
    )  # fmt: skip

    def __init__(self, conversation: bytes, place: PoolPlace, now_ms: int) -> None:
        self.conversation = conversation
        self.place = place
        self.begun_ms = now_ms
        self.rings_ms = now_ms
        """From this time on its timer may be due and home may have sent FIN; later messages then come back."""
        self.adopted = False
        """Another process began it."""
        self.stage = Stage.OPEN
        """Changed by `on` alone."""
        self.since_ms = now_ms
        """When it entered this stage."""
        self.due = False
        """It should have been recycled, but could not be yet."""
        self.ended = False
        """Its target has ended it."""
        self.unread = False
        """A message waits on this side for the application: this side is not ended before it is received."""
        self.unnumbered = 0
        """Messages sent on it without a sequence number, because bounced messages were redirected to it."""
        self.code: int | None = None
        """Code of the target's Error; None when there was none, or this process has not read it."""
        self.way = place.way
        """The way to its target."""
        self.resumed = False
        """Bounced messages of other conversations were sent on it."""
        self.misled = False
        """Its target redirects it, or will: its messages come back, and then it ends."""

    def on(self, event: StageEvent, now_ms: int) -> None:
        """Change the stage."""
        self.stage = next_state(STAGE_TRANSITIONS, self.stage, event)
        self.since_ms = now_ms

    @property
    def wants_end_of_stream(self) -> bool:
        """Whether its target has not ended it, and does so only after EndOfStream."""
        return not (self.ended or self.misled)


# --------------------------------------------------------------------------------------------------------- effects


class Recycle(NamedTuple):
    """Effect: send EndOfStream and FIN on it, then call `recycled`."""

    pooled: Pooled


class AskVerdict(NamedTuple):
    """Effect: send FIN on it, so that home learns when each of its messages has a verdict.

    EndOfStream goes first when home has sent FIN and the target has not ended the conversation.
    """

    pooled: Pooled


class Resend(NamedTuple):
    """Effect: send these bounced messages on the present conversation of the place, in this order."""

    place: PoolPlace
    bounced: list[Bounced]


class GiveUp(NamedTuple):
    """Effect: these bounced messages may not be sent again: log that, and confirm them."""

    place: PoolPlace
    bounced: list[Bounced]
    code: int


class Drop(NamedTuple):
    """Effect: confirm bounced messages that are not needed: EndOfStream, and notes of redirections."""

    place: PoolPlace
    bounced: list[Bounced]


class MakeRoom(NamedTuple):
    """Effect: the place was given up to make room; the next send for its group needs a new one."""

    place: PoolPlace


class Stray(NamedTuple):
    """Effect: a redirection leads nowhere: log that. The messages stay in the mailbox."""

    place: PoolPlace


class EndSide(NamedTuple):
    """Effect: end this side of it: its undelivered messages have come back, or the time to wait for them is over."""

    pooled: Pooled


class Forget(NamedTuple):
    """Effect: it is over; the session may forget it."""

    pooled: Pooled


Effect = Recycle | AskVerdict | Resend | GiveUp | Drop | MakeRoom | Stray | EndSide | Forget


class HomeSide(NamedTuple):
    """A conversation in the state of its home."""

    over: bool = False
    """Home has no endpoint for it any more, or its BEGIN was lost."""
    ended: bool = False
    """The target has ended it."""
    finished: bool = False
    """This side has ended or sent FIN, perhaps home on its own: the target receives nothing more from it."""
    answered: bool = False
    """The target has answered this session's FIN: each of its messages was received or has come back."""
    code: int | None = None
    """Code of the Error that waits to be received."""
    unread: bool = False
    """A message waits to be received."""


class PoolStatistics(NamedTuple):
    """Counts of a pool's work."""

    begun: int = 0
    """Conversations begun."""
    recycled: int = 0
    """Conversations closed with EndOfStream."""
    replaced: int = 0
    """Conversations that ended while they were in use."""
    resent: int = 0
    """Bounced messages sent again on another conversation."""
    given_up: int = 0
    """Bounced messages not sent again because of the target's Error; each was logged."""
    redirected: int = 0
    """Redirections followed."""


def keep_latest(table: dict[bytes, Kept], conversation: bytes, what: Kept) -> None:
    """Add an entry; the oldest is dropped when there are POOL_KEY_ENTRIES_MAX."""
    if len(table) >= POOL_KEY_ENTRIES_MAX:
        del table[next(iter(table))]
    table[conversation] = what
