"""What a partition remembers of a conversation: the endpoint, its group, its writers and their lanes.

A thousand conversations cost a megabyte at most, so everything here has slots, shares what repeats, and keeps nothing
that can be derived.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from konverse.schemas.catalog import DIALOG_TIMER, END_DIALOG
from konverse.schemas.groups import own_group
from konverse.schemas.journal import TOOK_ERROR, TOOK_TIMER
from konverse.schemas.priorities import DEFAULT_LEVEL
from konverse.schemas.records import NO_SEQUENCE, Origin, Role
from konverse.schemas.varint import LOW_MASK, SMALL, high_part, low_table, varint

from .states import State

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .clock import Clock
    from .finishing import Finished
    from .outbox import Stream
    from .transaction import Transaction


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

_UNNUMBERED: Final = [varint(NO_SEQUENCE)] * (LOW_MASK + 1)


def bytes_of(entries: Iterable[Entry]) -> int:
    """Bytes of the bodies."""
    return sum([len(entry[2]) for entry in entries if entry[2]])  # a list is faster than a generator here


def system_bit(entry: Entry) -> int:
    """What a receive position says when this message that overtakes was consumed."""
    return TOOK_TIMER if entry[1] == DIALOG_TIMER else TOOK_ERROR


def timestamp_ms(stamp: Stamp) -> int:
    """Log-append time."""
    return stamp if isinstance(stamp, int) else stamp[0]


Heir = tuple[bytes, int]
"""Who sends again what a closed writer sent in vain, and the counter of its CLOSE_WRITER, behind which that stands.

-1 where it does not come again: the heir goes on, and believes that it was received.
"""

NOBODY: Final[Heir] = (bytes(16), -1)
"""Nobody ever will: the writer said goodbye, or somebody has asked what was received."""


class Hole(NamedTuple):
    """Counters of a writer whose records were deleted before the partition ingested them (`dialog.holes`)."""

    start: int
    end: int
    """The counter behind the last one."""
    told: int
    """Records from this counter on, should they come late, were not answered yet; MERGED: some were received."""


MERGED: Final = -1

CHANGED: Final = -1
"""In place of the counter that the last PRUNE noted: the writer was closed since, or is new."""


class Terms:
    """Who talks to whom under which contract, seen from one side; shared by all endpoints that have the same."""

    __slots__ = ("contract", "far_service", "service", "uses")

    def __init__(self, service: str, far_service: str, contract: str) -> None:
        self.service = service
        self.far_service = far_service
        self.contract = contract
        self.uses = 0
        """Endpoints of the partition that have them: with the last one they go."""


class Writer:
    """A sender's place in this partition: the counter that is accepted next (invariant I4).

    `low` and `high` hold the bytes of that counter, so that the usual record is recognised by comparison alone.
    """

    __slots__ = ("closed_at", "heir", "high", "holes", "id", "lanes", "low", "next", "noted", "noted_ms")

    def __init__(self, identifier: bytes) -> None:
        self.id = identifier
        self.next = 0
        self.closed_at: int | None = None
        self.heir: Heir | None = None
        """None as long as it was closed by no record."""
        self.holes: tuple[Hole, ...] = ()
        """Which counters below `next` were passed over, in their order."""
        self.lanes = 0
        """Of living endpoints."""
        self.noted = CHANGED
        """`next` at the last PRUNE."""
        self.noted_ms = 0
        """Time of the PRUNE that found it changed."""
        self.low = SMALL
        self.high = b""

    def advance(self) -> None:
        """Accept the next counter."""
        self.next = n = self.next + 1
        if not n & LOW_MASK:
            self.carry()

    def go_on_at(self, counter: int) -> None:
        """Accept this counter next; those before it are gone."""
        self.next = counter
        self.carry()

    def carry(self) -> None:
        """Renew the predicted bytes; needed whenever the low part of the counter starts again."""
        self.low = low_table(self.next)
        self.high = high_part(self.next)

    def close(self) -> int:
        """Accept nothing more; the first call decides where (protocol.md section 5, rule 3)."""
        if self.closed_at is None:
            self.closed_at = self.next
            self.noted = CHANGED
        return self.closed_at


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
        self.ending: Transaction | None = None
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
