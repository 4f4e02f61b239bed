"""Messages of sessions that bounced back to their home partition (protocol.md section 3, Bounces)."""

from __future__ import annotations

from typing import NamedTuple

from konverse.schemas.limits import MAILBOX_BYTES_MAX, MAILBOX_ENTRIES_MAX
from konverse.schemas.wire.records import Bounce, BounceId, BounceReason


class Bounced(NamedTuple):
    """A message that bounced, with everything that a REDIRECT needs to send it again."""

    session: bytes
    """Session that owns the message: the record's writer, or the session for which an owner wrote the record."""
    bounce: Bounce
    conversation: bytes
    sequence: int
    """Sequence number in its conversation; NO_SEQUENCE when its sender had none."""
    message_type: str
    body: bytes | None
    key: bytes | None = None
    """Kafka key of its conversation. A pool that takes over uses it to find the group of an ended conversation.

    None when the conversation was over before the message came back, or had no key.
    """

    @property
    def id(self) -> BounceId:
        """Writer, counter and place of the record that bounced: no other record has the same three."""
        return BounceId(*self.bounce[:3])


class Mailbox:
    """The bounced messages at one home, in the order in which they came back."""

    __slots__ = ("_bytes", "entries")

    def __init__(self) -> None:
        self.entries: dict[BounceId, Bounced] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self.entries)

    def keep(self, bounced: Bounced) -> int:
        """Add a bounced message; returns the number of older ones that were dropped to make room.

        A REDIRECTED note is dropped only when nothing else is left: the messages after it need it to find their
        recipient.
        """
        key, entries = bounced.id, self.entries
        if key in entries:
            return 0
        gone = 0
        self._bytes += len(bounced.body or b"")
        while entries and (len(entries) >= MAILBOX_ENTRIES_MAX or self._bytes > MAILBOX_BYTES_MAX):
            self.take(self._first_to_go())
            gone += 1
        entries[key] = bounced
        return gone

    def _first_to_go(self) -> BounceId:
        messages = (key for key, one in self.entries.items() if one.bounce.reason is not BounceReason.REDIRECTED)
        return next(messages, next(iter(self.entries)))

    def take(self, key: BounceId) -> Bounced | None:
        """Remove a message and return it; None when it is not in the mailbox."""
        bounced = self.entries.pop(key, None)
        if bounced is not None:
            self._bytes -= len(bounced.body or b"")
        return bounced
