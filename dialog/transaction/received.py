"""Received messages, and the types of the rules by which a handler works."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final, NamedTuple
from uuid import UUID

from konverse.dialog.state.endpoint import NO_TIME, Endpoint, FarStamp, Stamp, timestamp_ms
from konverse.schemas.identifiers import Address, Role
from konverse.schemas.system_messages import DIALOG_TIMER
from konverse.schemas.wire.records import FOR_EVER, Begin

Rule = Callable[[str, Role, str], None]
"""`rule(contract, role, message type)` raises when the side may not send the type."""

SYSTEM_SEQUENCE: Final = -1
"""Sequence number of a DialogTimer and of an Error. They overtake the queue and are not counted."""


class Clauses(NamedTuple):
    """Clauses of a BEGIN DIALOG in a handler."""

    from_service: str
    to_service: str
    contract: str
    group: bytes | None
    """Conversation group to join; None: a group of its own."""
    key: bytes | None
    lifetime_ms: int = FOR_EVER
    hops: int = 0
    """Routers that the conversation has passed when it arrives (`konverse.routing.loops`)."""


class GroupPlace(NamedTuple):
    """The partition of this queue in which a conversation group lives, or to which it is on its way."""

    address: Address
    service: str


BeginRule = Callable[[Clauses], tuple[bytes, Begin]]
"""Returns the id of the new conversation and its BEGIN. Raises when a check against the catalog fails."""


def _not_validated(_message_type: str) -> str:
    return "N"


class MessageContext(NamedTuple):
    """Data that all messages of a partition share."""

    incarnation: bytes
    partition: int
    now_ms: Callable[[], int] = int
    """Returns the partition's time."""
    validation: Callable[[str], str] = _not_validated
    """Returns the letter of a message type's validation (`Validation.letter`): E, N, X, J or A."""


class Message(NamedTuple):
    """A received message. A named tuple, because one is made for every message of every queue."""

    type: str
    """Name of the message type."""
    body: bytes
    """The sender's bytes, untouched; empty when none were sent."""
    sequence: int
    """0, 1, 2 … within its direction of the conversation; -1 for a DialogTimer and an Error."""
    dialog: Endpoint
    """The endpoint that received it: pass it to the transaction's `send` and `end`."""
    offset: int
    """Offset in the data log of its queue; for a message that moved with its conversation, the offset of the move."""
    stamp: Stamp
    """Kafka's timestamp and the sender's headers, raw: `timestamp` and `headers` derive from it."""
    context: MessageContext

    @property
    def validation(self) -> str:
        """How its message type validates bodies: E (empty), N (none), X (XML), J (JSON), A (Avro) (behaviour 10)."""
        return self.context.validation(self.type)

    @property
    def priority(self) -> int:
        """Priority of the conversation on this side, 1 (low) to 10 (behaviour 216)."""
        return self.dialog.level

    @property
    def timestamp(self) -> datetime:
        """Kafka's time of the record, in UTC; for a Spark row of its decision; for a timer or lifetime the due time."""
        return datetime.fromtimestamp(timestamp_ms(self.stamp) / 1000, UTC)

    @property
    def headers(self) -> list[tuple[str, bytes]]:
        """The sender's own Kafka headers, without konverse's."""
        return [] if isinstance(self.stamp, int) else list(self.stamp[1])

    @property
    def lifetime_left(self) -> float | None:
        """Seconds left of the conversation's lifetime, above 0; None when it has no lifetime."""
        clock = self.dialog.clock
        if clock is None or clock.expires_ms == NO_TIME:
            return None
        return max(1, clock.expires_ms - self.context.now_ms()) / 1_000

    @property
    def id(self) -> str:
        """Key for effects outside of konverse: equal at each redelivery, and unique for all time (section 5)."""
        context, stamp = self.context, self.stamp
        place = (context.incarnation, context.partition, self.offset)
        if isinstance(stamp, FarStamp):
            place = (stamp.origin.incarnation, stamp.origin.partition, stamp.origin.offset)
        name = f"{UUID(bytes=place[0])}/{place[1]}/{place[2]}"
        if self.sequence >= 0:
            return name
        # several sides may fail by one record, and a timer has no record of its own
        kind = "timer" if self.type == DIALOG_TIMER else "error"
        return f"{name}/{self.dialog.id}/{self.dialog.role.name.lower()}/{kind}/{timestamp_ms(stamp)}"

    def __repr__(self) -> str:
        return f"<Message {self.type} #{self.sequence} of {self.dialog.id}, {len(self.body)} bytes>"
