"""What a partition remembers of a conversation: the endpoint, its group, its writers and their lanes.

A thousand conversations cost a megabyte at most, so everything here has slots, shares what repeats, and keeps nothing
that can be derived.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol
from uuid import UUID

from konverse.schemas.groups import own_group
from konverse.schemas.identifiers import Role
from konverse.schemas.levels import DEFAULT_LEVEL
from konverse.schemas.system_messages import DIALOG_TIMER, END_DIALOG
from konverse.schemas.wire.journal import TOOK_ERROR, TOOK_TIMER
from konverse.schemas.wire.records import NO_SEQUENCE, Origin
from konverse.schemas.wire.varint import LOW_MASK, SMALL, high_part, low_table, varint

from .transitions import State
from .writer import Writer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .outbox import Stream

_UNNUMBERED: Final = [varint(NO_SEQUENCE)] * (LOW_MASK + 1)
NO_TIME: Final = -1


class FarStamp(NamedTuple):
    """Stamp of a record that was written elsewhere first: its conversation has moved."""

    timestamp_ms: int
    headers: list[tuple[str, bytes]]
    origin: Origin


Stamp = int | tuple[int, list[tuple[str, bytes]]] | FarStamp
"""Timestamp in milliseconds; with the user's own headers where a record has any."""
Record = tuple[bytes | None, Stamp]
"""What the driver took from Kafka beside offset and header: body and stamp."""
Entry = tuple[int, str, bytes | None, Stamp]
"""A message that waits: offset, message type, body, stamp. One flat tuple: many wait, and are looked at cold."""
NOTHING: Final[list[Entry]] = []
"""The queue of an endpoint where nothing waits: one for all, never filled."""


def bytes_of(entries: Iterable[Entry]) -> int:
    """Bytes of the bodies."""
    return sum([len(entry[2]) for entry in entries if entry[2]])  # a list is faster than a generator here


def system_bit(entry: Entry) -> int:
    """What a receive position says when this message that overtakes was consumed."""
    return TOOK_TIMER if entry[1] == DIALOG_TIMER else TOOK_ERROR


def timestamp_ms(stamp: Stamp) -> int:
    """Log-append time."""
    return stamp if isinstance(stamp, int) else stamp[0]


class Terms:
    """Who talks to whom under which contract, seen from one side; shared by all endpoints that have the same."""

    __slots__ = ("contract", "far_service", "service", "uses")

    def __init__(self, service: str, far_service: str, contract: str) -> None:
        self.service = service
        self.far_service = far_service
        self.contract = contract
        self.uses = 0
        """Endpoints of the partition that have them: with the last one they go."""


class Lane:
    """One writer on one conversation: what a header's first 39 bytes lead to, resolved once."""

    __slots__ = ("behind", "endpoint", "last", "low", "message_type", "numbered", "prefix", "suffix", "tail", "writer")

    def __init__(self, prefix: bytes, writer: Writer, endpoint: Endpoint) -> None:
        self.prefix = prefix
        self.writer = writer
        writer.lanes += 1
        self.endpoint = endpoint
        self.behind = endpoint.lane
        """The lane that the endpoint had before: a chain, because nearly all endpoints have one."""
        self.last = -1
        """Highest counter of the writer that was accepted on the conversation."""
        self.message_type = ""
        self.suffix = b""
        self.numbered = True
        self.low = SMALL
        self.tail = b""

    def expect(self, message_type: str, suffix: bytes, *, numbered: bool) -> None:
        """Predict that the next record ends like the last one."""
        self.message_type = message_type
        self.suffix = suffix
        self.numbered = numbered
        self.carry()

    def carry(self) -> None:
        """Renew the predicted bytes."""
        if self.numbered:
            self.low = low_table(self.endpoint.received)
            self.tail = high_part(self.endpoint.received) + self.suffix
        else:
            self.low = _UNNUMBERED
            self.tail = self.suffix


class Group:
    """A conversation group of several conversations: locked and received as one. A lone endpoint is its own group."""

    __slots__ = ("id", "members")

    def __init__(self, identifier: bytes) -> None:
        self.id = identifier
        self.members: list[Endpoint] = []


class Trouble:
    """Attempts at an endpoint's group that failed (protocol.md section 7.1)."""

    __slots__ = ("attempts", "reason", "since_ms", "suspended")

    def __init__(self, attempts: int = 0, *, suspended: bool = False, reason: str = "", since_ms: int = 0) -> None:
        self.attempts = attempts
        """In a row."""
        self.suspended = suspended
        """The group waits for an operator."""
        self.reason = reason
        """Why it is suspended: what its handler failed with, or what the operator said."""
        self.since_ms = since_ms
        """When it was suspended, by the time of the journal."""


class Ending(Protocol):
    """A transaction in which a handler has ended this side, before it is committed."""

    def over(self, dialog: Endpoint) -> State | None:
        """The state of a side that it ends; None when it does not."""


class Endpoint:
    """One side of a conversation in the partition where it lives."""

    __slots__ = (
        "changed",
        "clock",
        "committed",
        "consumed",
        "conversation",
        "ending",
        "finished",
        "group",
        "held",
        "index",
        "key",
        "lane",
        "level",
        "opener",
        "queue",
        "received",
        "role",
        "sent",
        "stream",
        "terms",
        "trouble",
        "urgent",
    )

    def __init__(self, conversation: bytes, role: Role, state: State, terms: Terms, stream: Stream) -> None:
        self.conversation = conversation
        self.role = role
        self.committed = state
        """Its state, as the logs say it is."""
        self.ending: Ending | None = None
        """The transaction that has the group and ends this side, as long as that is not committed."""
        self.terms = terms
        self.stream = stream
        self.index = 0
        self.opener = b""
        """Writer that sent (or will send) FIRST."""
        self.group: Group | None = None
        self.key: bytes | None = None
        self.received = 0
        self.consumed = 0
        self.sent = 0
        """Sequence number of the next message of this side, or -1 where a session numbers them."""
        self.queue: list[Entry] = NOTHING
        self.urgent: tuple[Entry, ...] = ()
        """What overtakes the queue: the DialogTimer, then the Error; each of them waits once at most."""
        self.clock: Clock | None = None
        """Its timer and its lifetime; None for nearly all."""
        self.lane: Lane | None = None
        self.finished: Finished | None = None
        """What FIN has finished; None for nearly all."""
        self.changed = False
        """Already in the partition's list of what the view has to learn."""
        self.level = DEFAULT_LEVEL
        """Its priority, from its beginning on: 1 (low) to 10."""
        self.held = False
        """A transaction has the group, or one of its finished ones waits for the commit, or it is suspended."""
        self.trouble: Trouble | None = None

    @property
    def id(self) -> UUID:
        """Conversation id, shared by both sides."""
        return UUID(bytes=self.conversation)

    @property
    def state(self) -> State:
        """Its state; to a transaction that ends this side it is over at once."""
        over = None if self.ending is None else self.ending.over(self)
        return self.committed if over is None else over

    @property
    def is_initiator(self) -> bool:
        """Whether this side began the conversation."""
        return self.role is Role.INITIATOR

    @property
    def service(self) -> str:
        """Service of this side."""
        return self.terms.service

    @property
    def far_service(self) -> str:
        """Service of the other side."""
        return self.terms.far_service

    @property
    def contract(self) -> str:
        """Contract of the conversation."""
        return self.terms.contract

    @property
    def group_id(self) -> bytes:
        """Conversation group; an unrelated conversation is a group of its own."""
        return self.group.id if self.group else own_group(self.role, self.conversation)

    @property
    def attempts(self) -> int:
        """Attempts at its messages in a row that failed."""
        return self.trouble.attempts if self.trouble is not None else 0

    @property
    def suspended(self) -> bool:
        """Whether its group failed too often: its messages wait until an operator resumes, skips or ends it."""
        return self.trouble is not None and self.trouble.suspended

    @property
    def waits(self) -> bool:
        """Something can be received."""
        return bool(self.queue or self.urgent)

    @property
    def first(self) -> Entry | None:
        """What is received next."""
        return self.urgent[0] if self.urgent else self.queue[0] if self.queue else None

    @property
    def rings(self) -> bool:
        """A DialogTimer waits to be received."""
        return bool(self.urgent) and self.urgent[0][1] == DIALOG_TIMER

    @property
    def error(self) -> Entry | None:
        """The Error that waits to be received."""
        return self.urgent[-1] if self.urgent and self.urgent[-1][1] != DIALOG_TIMER else None

    @property
    def ends_next(self) -> bool:
        """What is received next tells that the conversation is over: an Error, or EndDialog."""
        if self.urgent:
            return not self.rings
        return bool(self.queue) and self.queue[0][1] == END_DIALOG

    @property
    def members(self) -> list[Endpoint]:
        """All endpoints of the group."""
        return self.group.members if self.group else [self]

    def lanes(self) -> list[Lane]:
        """The writers that were accepted on this conversation, latest first."""
        out = []
        lane = self.lane
        while lane is not None:
            out.append(lane)
            lane = lane.behind
        return out

    def carry(self) -> None:
        """Renew what all lanes predict; needed whenever the low part of the sequence number starts again."""
        for lane in self.lanes():
            lane.carry()

    def __repr__(self) -> str:
        return f"<Endpoint {self.id} {self.role.name} {self.state.code} of {self.terms.service}>"


def far_lane(endpoint: Endpoint, writer: bytes) -> Lane:
    """The lane of a writer that counts at another partition: the endpoint has moved."""
    lane = next((known for known in endpoint.lanes() if known.writer.id == writer), None)
    if lane is None:
        lane = endpoint.lane = Lane(b"", Writer(writer), endpoint)
    return lane


class Clock(NamedTuple):
    """What an endpoint expects of time, in milliseconds since 1970; NO_TIME where it expects nothing."""

    timer_ms: int = NO_TIME
    expires_ms: int = NO_TIME
    timer_after_ms: int = NO_TIME
    """The timer was set by the last commit: due so long after it."""
    expires_after_ms: int = NO_TIME
    """It was begun by the last commit: its lifetime ends so long after it."""
    end_of_stream: str | None = None
    """Of a conversation of a pool: what its target is told when the timer rings. It outlasts that timer."""

    @property
    def times(self) -> tuple[int, int]:
        """When its timer is due, and when its lifetime ends."""
        return self.timer_ms, self.expires_ms

    @property
    def lifetime(self) -> Clock | None:
        """What a side still expects that has ended itself; None: nothing."""
        clock = Clock(expires_ms=self.expires_ms, expires_after_ms=self.expires_after_ms)
        return None if clock == NOTHING_EXPECTED else clock

    @property
    def unsettled(self) -> bool:
        """Some of it has no time yet."""
        return self.timer_after_ms != NO_TIME or self.expires_after_ms != NO_TIME

    def settled(self, now_ms: int) -> Clock:
        """With times, as of the commit that set it."""
        timer_ms, expires_ms, timer_after_ms, expires_after_ms, end_of_stream = self
        return Clock(
            timer_ms if timer_after_ms == NO_TIME else now_ms + timer_after_ms,
            expires_ms if expires_after_ms == NO_TIME else now_ms + expires_after_ms,
            end_of_stream=end_of_stream,
        )


NOTHING_EXPECTED: Final = Clock()


class Finished(NamedTuple):
    """Which directions of a conversation are finished, seen from one side."""

    own: bool = False
    """This side has said that nothing more comes from it."""
    peer: bool = False
    """The other side has: its messages are accepted no more, its END and Error are."""
    answer: tuple[tuple[bytes, int], ...] | None = None
    """Per writer of this side, the highest counter that was accepted; None before the peer has answered."""
    askers: tuple[bytes, ...] = ()
    """Sessions and owners whose FIN the peer has answered, the latest of them: all that they sent has a verdict."""


OPEN: Final = Finished()
"""Nobody has finished: what nearly every endpoint has, one for all."""
