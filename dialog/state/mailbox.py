"""Messages of sessions that came back to their home, each with all that sends it again (protocol.md section 3)."""

from __future__ import annotations

from typing import NamedTuple

from konverse.schemas.limits import MAILBOX_BYTES_MAX, MAILBOX_ENTRIES_MAX
from konverse.schemas.wire.records import Bounce, BounceId, BounceReason


class Bounced(NamedTuple):
    """A message that came back."""

    session: bytes
    """Whose it is: the writer of the record, or the session for which an owner wrote it."""
    bounce: Bounce
    conversation: bytes
    sequence: int
    """In its conversation; NO_SEQUENCE when its sender did not know."""
    message_type: str
    body: bytes | None
    key: bytes | None = None
    """Kafka key of the records of its conversation: whose it is when that is over. None: it was over already."""

    @property
    def id(self) -> BounceId:
        """The record that came back; no other one has its writer, counter and place."""
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
        """Put a message into it, behind the others; returns how many of the oldest had to go.

        What says for whom others are goes when nothing else is left: those behind it wait for somebody who can tell.
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
        """Take a message out; None when it is not there."""
        bounced = self.entries.pop(key, None)
        if bounced is not None:
            self._bytes -= len(bounced.body or b"")
        return bounced
