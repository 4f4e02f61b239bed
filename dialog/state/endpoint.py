"""One side of a conversation in a partition: the endpoint, its group, its writers and their lanes.

A thousand conversations cost a megabyte at most. So everything here has slots, shares values that repeat, and keeps
nothing that can be derived.
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
    """Stamp of a record that was first written to another partition: its conversation has moved here."""

    timestamp_ms: int
    headers: list[tuple[str, bytes]]
    origin: Origin


Stamp = int | tuple[int, list[tuple[str, bytes]]] | FarStamp
"""Log-append time in milliseconds; with the user's own headers where a record has any."""
Record = tuple[bytes | None, Stamp]
"""A record without offset and header: body and stamp."""
Entry = tuple[int, str, bytes | None, Stamp]
"""A waiting message: offset, message type, body, stamp. One flat tuple, because many wait and are read cache-cold."""
NOTHING: Final[list[Entry]] = []
"""The queue of every endpoint without waiting messages: one shared list, never filled."""


def bytes_of(entries: Iterable[Entry]) -> int:
    """Total bytes of the bodies."""
    return sum([len(entry[2]) for entry in entries if entry[2]])  # a list is faster than a generator here


def system_bit(message_type: str) -> int:
    """Bit of a receive position that says that the DialogTimer, or the Error, was consumed."""
    return TOOK_TIMER if message_type == DIALOG_TIMER else TOOK_ERROR


def timestamp_ms(stamp: Stamp) -> int:
    """Log-append time of the record, in milliseconds."""
    return stamp if isinstance(stamp, int) else stamp[0]


class Terms:
    """Own service, far service and contract of an endpoint; one object for all endpoints with the same three names."""

    __slots__ = ("contract", "far_service", "service", "uses")

    def __init__(self, service: str, far_service: str, contract: str) -> None:
        self.service = service
        self.far_service = far_service
        self.contract = contract
        self.uses = 0
        """Number of endpoints of the partition that have these terms; unused terms are dropped."""


class HeaderPrediction:
    """A lane: one writer on one conversation, found by the first 39 bytes of a header.

    It predicts the remaining bytes of the next header, so that `ingest` accepts the usual record by comparing bytes.
    """

    __slots__ = ("behind", "endpoint", "last", "low", "message_type", "numbered", "prefix", "suffix", "tail", "writer")

    def __init__(self, prefix: bytes, writer: Writer, endpoint: Endpoint) -> None:
        self.prefix = prefix
        self.writer = writer
        writer.lanes += 1
        self.endpoint = endpoint
        self.behind = endpoint.lane
        """Next older lane of the endpoint: a linked list, because nearly all endpoints have a single lane."""
        self.last = -1
        """Highest counter of the writer that was accepted on the conversation."""
        self.message_type = ""
        self.suffix = b""
        self.numbered = True
        self.low = SMALL
        self.tail = b""

    def expect(self, message_type: str, suffix: bytes, *, numbered: bool) -> None:
        """Predict that the next header ends like the last one."""
        self.message_type = message_type
        self.suffix = suffix
        self.numbered = numbered
        self.carry()

    def carry(self) -> None:
        """Recompute the predicted bytes."""
        if self.numbered:
            self.low = low_table(self.endpoint.received)
            self.tail = high_part(self.endpoint.received) + self.suffix
        else:
            self.low = _UNNUMBERED
            self.tail = self.suffix


class Group:
    """A conversation group with several members, locked and received as one. An endpoint alone has no Group object."""

    __slots__ = ("id", "members")

    def __init__(self, identifier: bytes) -> None:
        self.id = identifier
        self.members: list[Endpoint] = []


class FailedAttempts:
    """Failed attempts at an endpoint's group, and its suspension (protocol.md section 7.1)."""

    __slots__ = ("attempts", "reason", "since_ms", "suspended")

    def __init__(self, attempts: int = 0, *, suspended: bool = False, reason: str = "", since_ms: int = 0) -> None:
        self.attempts = attempts
        """Number of failed attempts in a row."""
        self.suspended = suspended
        """Whether the group waits for an operator."""
        self.reason = reason
        """Why it is suspended: the failure of its handler, or the operator's words."""
        self.since_ms = since_ms
        """When it was suspended, by the time of the journal."""


class EndingTransaction(Protocol):
    """A transaction that ends dialogs and is not committed yet."""

    def over(self, dialog: Endpoint) -> State | None:
        """The state to which the transaction takes this side; None when it does not end the side."""


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
        """State according to the logs, without uncommitted work."""
        self.ending: EndingTransaction | None = None
        """The open transaction that ends this side, until it is committed; else None."""
        self.terms = terms
        self.stream = stream
        self.index = 0
        self.opener = b""
        """Id of the writer that began the conversation. Its home, or a later id of the writer, may send FIRST."""
        self.group: Group | None = None
        self.key: bytes | None = None
        self.received = 0
        self.consumed = 0
        self.sent = 0
        """Sequence number of the next message of this side; -1 where a session numbers them."""
        self.queue: list[Entry] = NOTHING
        self.urgent: tuple[Entry, ...] = ()
        """Waiting system messages that overtake the queue: at most one DialogTimer, then at most one Error."""
        self.clock: Clock | None = None
        """Timer and lifetime; None for nearly all endpoints."""
        self.lane: HeaderPrediction | None = None
        self.finished: Finished | None = None
        """Directions that FIN has closed; None for nearly all endpoints."""
        self.changed = False
        """Whether the partition's `changed` list holds this endpoint."""
        self.level = DEFAULT_LEVEL
        """Priority level, 1 (low) to 10; fixed when the side begins."""
        self.held = False
        """Whether the group is locked: by a transaction that runs or waits for its commit, or by a suspension."""
        self.trouble: FailedAttempts | None = None

    @property
    def id(self) -> UUID:
        """Conversation id, the same on both sides."""
        return UUID(bytes=self.conversation)

    @property
    def state(self) -> State:
        """State of this side; a transaction that ends this side sees the end at once."""
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
        """Id of the conversation group; an unrelated conversation is a group of its own."""
        return self.group.id if self.group else own_group(self.role, self.conversation)

    @property
    def attempts(self) -> int:
        """Number of handler attempts in a row that failed."""
        return self.trouble.attempts if self.trouble is not None else 0

    @property
    def suspended(self) -> bool:
        """Whether the group is suspended: its messages wait until an operator resumes, skips or ends it."""
        return self.trouble is not None and self.trouble.suspended

    @property
    def waits(self) -> bool:
        """Whether something can be received."""
        return bool(self.queue or self.urgent)

    @property
    def first(self) -> Entry | None:
        """The entry that is received next; None when nothing waits."""
        return self.urgent[0] if self.urgent else self.queue[0] if self.queue else None

    @property
    def rings(self) -> bool:
        """Whether a DialogTimer waits to be received."""
        return bool(self.urgent) and self.urgent[0][1] == DIALOG_TIMER

    @property
    def error(self) -> Entry | None:
        """The Error that waits to be received; None when there is none."""
        return self.urgent[-1] if self.urgent and self.urgent[-1][1] != DIALOG_TIMER else None

    @property
    def ends_next(self) -> bool:
        """Whether the next entry ends the conversation: an Error, or EndDialog."""
        if self.urgent:
            return not self.rings
        return bool(self.queue) and self.queue[0][1] == END_DIALOG

    @property
    def members(self) -> list[Endpoint]:
        """All endpoints of the group, this one included."""
        return self.group.members if self.group else [self]

    def lanes(self) -> list[HeaderPrediction]:
        """Lanes of the writers that were accepted on this conversation, latest first."""
        out = []
        lane = self.lane
        while lane is not None:
            out.append(lane)
            lane = lane.behind
        return out

    def carry(self) -> None:
        """Recompute the predictions of all lanes; needed whenever the low part of the sequence number wraps."""
        for lane in self.lanes():
            lane.carry()

    def __repr__(self) -> str:
        return f"<Endpoint {self.id} {self.role.name} {self.state.code} of {self.terms.service}>"


def far_lane(endpoint: Endpoint, writer: bytes) -> HeaderPrediction:
    """The lane of a writer whose records another partition counts, because the endpoint has moved here."""
    lane = next((known for known in endpoint.lanes() if known.writer.id == writer), None)
    if lane is None:
        lane = endpoint.lane = HeaderPrediction(b"", Writer(writer), endpoint)
    return lane


class Clock(NamedTuple):
    """Timer and lifetime of an endpoint, in milliseconds since 1970; NO_TIME where there is none."""

    timer_ms: int = NO_TIME
    expires_ms: int = NO_TIME
    timer_after_ms: int = NO_TIME
    """Span of a timer set by the last commit: due this long after that commit."""
    expires_after_ms: int = NO_TIME
    """Span of a lifetime that began with the last commit: over this long after that commit."""
    end_of_stream: str | None = None
    """Message type that a pool's home sends to the target when the timer rings. It stays set after that timer."""

    @property
    def times(self) -> tuple[int, int]:
        """When the timer is due, and when the lifetime ends."""
        return self.timer_ms, self.expires_ms

    @property
    def lifetime(self) -> Clock | None:
        """The lifetime alone, for a side that has ended; None when there is none."""
        clock = Clock(expires_ms=self.expires_ms, expires_after_ms=self.expires_after_ms)
        return None if clock == NOTHING_EXPECTED else clock

    @property
    def unsettled(self) -> bool:
        """Whether a span is still without a time."""
        return self.timer_after_ms != NO_TIME or self.expires_after_ms != NO_TIME

    def settled(self, now_ms: int) -> Clock:
        """This clock with its spans turned into times; `now_ms` is the time of the commit that set them."""
        timer_ms, expires_ms, timer_after_ms, expires_after_ms, end_of_stream = self
        return Clock(
            timer_ms if timer_after_ms == NO_TIME else now_ms + timer_after_ms,
            expires_ms if expires_after_ms == NO_TIME else now_ms + expires_after_ms,
            end_of_stream=end_of_stream,
        )


NOTHING_EXPECTED: Final = Clock()


class Finished(NamedTuple):
    """Directions of a conversation that FIN has closed, seen from one side."""

    own: bool = False
    """This side sends nothing more."""
    peer: bool = False
    """The other side sends no further message; its END and Error are still accepted."""
    answer: tuple[tuple[bytes, int], ...] | None = None
    """Highest accepted counter of each writer of this side; None before the peer has answered."""
    askers: tuple[bytes, ...] = ()
    """Latest sessions and owners whose FIN the peer has answered: all their records have a verdict."""


OPEN: Final = Finished()
"""No direction is closed: the shared value of nearly every endpoint."""
