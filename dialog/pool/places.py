"""The conversations of a pool, their places, and what is to be done about them (`dialog.pool.pool` says when)."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple, TypeVar

from konverse.dialog.state.mailbox import Bounced
from konverse.schemas.catalog.table_entries import Target
from konverse.schemas.limits import POOL_ASTRAY_MS, POOL_KEY_ENTRIES_MAX

Kept = TypeVar("Kept")

Way = tuple[Target, ...]
"""Where redirections have led from the pool's own service; its last one is where messages go. Empty: nowhere else."""


class Stage(Enum):
    """Where a conversation of a pool stands."""

    OPEN = "open"
    CLOSING = "closing"
    BROKEN = "broken"
    OVER = "over"


class Place:
    """What has one open conversation: a key, a session, or one of the n of a pool."""

    __slots__ = (
        "again_ms", "astray", "awaits", "behind", "current", "group", "living", "noticed", "used_ms", "way", "way_ms",
    )  # fmt: skip

    def __init__(self, group: bytes) -> None:
        self.group = group
        """Of all conversations that it ever has."""
        self.current: Pooled | None = None
        self.awaits: list[Pooled] = []
        """Conversations that ended, whose messages are to go first: one, or several that were redirected together."""
        self.behind = False
        """Something that came back goes first, and there was no room for it yet."""
        self.living: list[Pooled] = []
        """Its conversations that are not over, as they were begun."""
        self.used_ms = 0
        """When it was last found to be used."""
        self.noticed = 0
        """What its conversation had sent by then."""
        self.way: Way = ()
        """Of the conversations that it begins now (behaviour 233)."""
        self.way_ms = 0
        """Since when."""
        self.astray: str | None = None
        """Why there is nowhere to go, since a redirection that leads nowhere: what came back stays where it is."""
        self.again_ms = 0
        """When the pool's own service is asked again."""

    def forget_way(self, now_ms: int) -> bool:
        """Its way leads nowhere: whether the pool's own service may be asked at once, as that said so long ago."""
        old = now_ms - self.way_ms >= POOL_ASTRAY_MS
        if old:
            self.way = ()
        return old

    @property
    def waits(self) -> bool:
        """Nothing new is sent for it, as something goes first, or may have to."""
        return self.behind or bool(self.awaits)

    @property
    def has_more(self) -> bool:
        """Conversations of it are not over, or something that came back of them has not gone again."""
        return bool(self.living) or self.behind or self.astray is not None


class Pooled:
    """A conversation of a pool."""

    __slots__ = (
        "adopted", "begun_ms", "code", "conversation", "due", "ended", "misled", "place", "resumed", "rings_ms",
        "since_ms", "stage", "unnumbered", "unread", "way",
    )  # fmt: skip

    def __init__(self, conversation: bytes, place: Place, now_ms: int) -> None:
        self.conversation = conversation
        self.place = place
        self.begun_ms = now_ms
        self.rings_ms = now_ms
        """From then on its timer may be due, and its home may say that nothing more comes: what is sent is late."""
        self.adopted = False
        """Another process has begun it."""
        self.stage = Stage.OPEN
        self.since_ms = now_ms
        """In this stage."""
        self.due = False
        """It was to be recycled, and could not be yet."""
        self.ended = False
        """Its target has ended it."""
        self.unread = False
        """Something waits on this side for its application: this side is not ended before that is received."""
        self.unnumbered = 0
        """Messages that were sent on it without a number, as others came before that had come back."""
        self.code: int | None = None
        """Of the target's Error; None when there was none, or nobody here has read it."""
        self.way = place.way
        """At whose end its target is."""
        self.resumed = False
        """What came back of others was sent on it."""
        self.misled = False
        """Its target redirects it, or will: what was sent on it comes back, and then it ends."""

    @property
    def wants_end_of_stream(self) -> bool:
        """Its target has not ended it, and will only when it is told."""
        return not (self.ended or self.misled)


# --------------------------------------------------------------------------------------------------------- effects


class Recycle(NamedTuple):
    """Effect: EndOfStream and FIN on it; `recycled` when that is done."""

    pooled: Pooled


class AskVerdict(NamedTuple):
    """Effect: FIN on it, so that home learns when each of its messages has a verdict.

    Behind EndOfStream, when its home has said that nothing more comes and the target has not ended it.
    """

    pooled: Pooled


class Resend(NamedTuple):
    """Effect: these came back; send them on the present conversation of the place, in this order."""

    place: Place
    bounced: list[Bounced]


class GiveUp(NamedTuple):
    """Effect: these came back and may not be sent again; say so, and let them go."""

    place: Place
    bounced: list[Bounced]
    code: int


class Drop(NamedTuple):
    """Effect: an EndOfStream that came back says nothing to anybody; let it go."""

    place: Place
    bounced: list[Bounced]


class MakeRoom(NamedTuple):
    """Effect: the place is another key's; whoever asks for it again begins anew."""

    place: Place


class Stray(NamedTuple):
    """Effect: a redirection leads nowhere; say so. Its messages stay where they came back to."""

    place: Place


class End(NamedTuple):
    """Effect: end this side of it; everything that it did not deliver is on its way elsewhere."""

    pooled: Pooled


class Forget(NamedTuple):
    """Effect: it is over; the session need not know of it any more."""

    pooled: Pooled


Effect = Recycle | AskVerdict | Resend | GiveUp | Drop | MakeRoom | Stray | End | Forget


class Standing(NamedTuple):
    """What the home of a conversation says of it."""

    over: bool = False
    """Home has heard its BEGIN, and does not know it any more."""
    ended: bool = False
    """The target has ended it."""
    finished: bool = False
    """Nothing more of this side is received there: somebody has finished it, perhaps the home itself."""
    answered: bool = False
    """The target has answered this session's FIN: each of its messages was received, or has come back."""
    code: int | None = None
    """Of the Error that waits to be received."""
    unread: bool = False
    """Something waits to be received."""


class PoolStatistics(NamedTuple):
    """What a pool has done so far."""

    begun: int = 0
    """Conversations."""
    recycled: int = 0
    """Of them, closed with EndOfStream."""
    replaced: int = 0
    """Of them, ended under their senders."""
    resent: int = 0
    """Messages that came back and were sent again on another conversation."""
    given_up: int = 0
    """Messages that came back, and whose Error forbids to send them again; each was logged."""
    redirected: int = 0
    """Redirections that were followed."""


def keep_latest(table: dict[bytes, Kept], conversation: bytes, what: Kept) -> None:
    """The latest of some thousands."""
    if len(table) >= POOL_KEY_ENTRIES_MAX:
        del table[next(iter(table))]
    table[conversation] = what
