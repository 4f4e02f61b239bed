"""What a handler receives: messages, and what all transactions of a partition share."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from konverse.dialog.state.endpoint import NO_TIME, Endpoint, FarStamp, Stamp, timestamp_ms
from konverse.schemas.identifiers import Address, Role
from konverse.schemas.system_messages import DIALOG_TIMER
from konverse.schemas.wire.records import FOR_EVER, Begin

if TYPE_CHECKING:
    from .begun import Begun
    from .transaction import Transaction

Rule = Callable[[str, Role, str], None]
"""`rule(contract, role, message type)` raises when the side may not send the type."""

SYSTEM_SEQUENCE: Final = -1
"""Sequence number of a DialogTimer and of an Error: they overtake and are not counted."""


class Clauses(NamedTuple):
    """BEGIN DIALOG in a handler."""

    from_service: str
    to_service: str
    contract: str
    group: bytes | None
    """Conversation group to join; None: a group of its own."""
    key: bytes | None
    lifetime_ms: int = FOR_EVER
    hops: int = 0
    """Routers that the conversation has come through when it arrives (`konverse.routing.loops`)."""


class Found(NamedTuple):
    """A group that lives in another partition of this queue."""

    address: Address
    service: str


LockRule = Callable[["Transaction", "Endpoint | Begun", bytes], Address | None]
"""`lock(transaction, dialog, group)`: locks a group that is here, else says where it is."""

BeginRule = Callable[[Clauses], tuple[bytes, Begin]]
"""The id of a conversation that begins in this partition, and what the catalog makes of its clauses; raises."""


class Message(NamedTuple):
    """A received message. Made for every message of every queue, hence a tuple with names."""

    type: str
    """Name of the message type."""
    body: bytes
    """The sender's bytes, untouched; empty when none were sent."""
    sequence: int
    """0, 1, 2 … in its direction of the conversation; -1 for a DialogTimer and an Error."""
    dialog: Endpoint
    """The conversation endpoint that received it: what `send` and `end` of the transaction take."""
    offset: int
    """Place in the queue's data log; of a message that came with its conversation, the place of that."""
    stamp: Stamp
    """Kafka's timestamp and the sender's headers, raw: `timestamp` and `headers` are made of it."""
    scope: Scope

    @property
    def validation(self) -> str:
        """What its type says of bodies now, as a letter: E for empty, N for anything, X for XML (behaviour 10)."""
        return self.scope.validation(self.type)

    @property
    def priority(self) -> int:
        """The level of its conversation on this side, 1 (low) to 10 (behaviour 216)."""
        return self.dialog.level

    @property
    def timestamp(self) -> datetime:
        """Kafka's time of the record, or of the decision about a row of Spark; what time has made: when due. UTC."""
        return datetime.fromtimestamp(timestamp_ms(self.stamp) / 1000, UTC)

    @property
    def headers(self) -> list[tuple[str, bytes]]:
        """The sender's own Kafka headers, without konverse's."""
        return [] if isinstance(self.stamp, int) else list(self.stamp[1])

    @property
    def lifetime_left(self) -> float | None:
        """Seconds that are left of the lifetime of its conversation, above 0; None when it lives for ever."""
        clock = self.dialog.clock
        if clock is None or clock.expires_ms == NO_TIME:
            return None
        return max(1, clock.expires_ms - self.scope.now_ms()) / 1_000

    @property
    def id(self) -> str:
        """Stable over re-execution, unique for ever: key of effects outside (protocol.md section 5)."""
        scope, stamp = self.scope, self.stamp
        place = (scope.incarnation, scope.partition, self.offset)
        if isinstance(stamp, FarStamp):
            place = (stamp.origin.incarnation, stamp.origin.partition, stamp.origin.offset)
        name = f"{UUID(bytes=place[0])}/{place[1]}/{place[2]}"
        if self.sequence >= 0:
            return name
        # several sides may fail at one place, and what comes of time stands at none of its own
        kind = "timer" if self.type == DIALOG_TIMER else "error"
        return f"{name}/{self.dialog.id}/{self.dialog.role.name.lower()}/{kind}/{timestamp_ms(stamp)}"

    def __repr__(self) -> str:
        return f"<Message {self.type} #{self.sequence} of {self.dialog.id}, {len(self.body)} bytes>"


def _nothing(_of: object) -> None:
    return None


def _lock_nothing(_transaction: Transaction, _dialog: Endpoint | Begun, _group: bytes) -> None:
    return None


def _unknown(_message_type: str) -> str:
    return "N"


class Scope:
    """What all transactions of a partition share."""

    __slots__ = (
        "begin", "done", "further", "incarnation", "lock", "now_ms", "partition", "rule", "validation",
    )  # fmt: skip

    def __init__(self, incarnation: bytes, partition: int, rule: Rule) -> None:
        self.incarnation = incarnation
        self.partition = partition
        self.rule = rule
        self.done: Callable[[Transaction, bool], None] | None = None
        """Called once at the end of a `with` block: with True to commit, False to roll back."""
        self.validation: Callable[[str], str] = _unknown
        """The letter of what a message type says of bodies."""
        self.now_ms: Callable[[], int] = int
        """The partition's time."""
        self.begin: BeginRule | None = None
        """Asked when a handler begins a dialog; nobody: none can."""
        self.lock: LockRule = _lock_nothing
        """Locks the group that a conversation is moved to; raises."""
        self.further: Callable[[Transaction], Transaction | None] = _nothing
        """Hands out another group, as a part of a transaction."""
