"""What the second fold keeps of messages that came back (protocol.md section 3, bounces), and of those that wait."""

from __future__ import annotations

from typing import NamedTuple

from konverse.schemas.identifiers import Address
from konverse.schemas.records import BounceReason


class Letter(NamedTuple):
    """A message that came back to its home."""

    session: bytes
    conversation: bytes
    sequence: int
    reason: BounceReason
    type: str
    body: bytes
    weight: int
    """Bytes of the body as it was."""


class Fate(NamedTuple):
    """How a message left the mailbox."""

    how: str
    """"confirmed", "redirected" or "let go"."""
    conversation: bytes = b""
    """To which it was redirected."""
    to: Address | None = None
    """Where the redirected message must come to stand,"""
    counter: int = -1
    """as this output."""


class SecondGate(NamedTuple):
    """The outputs to an address from `first` on wait until another one has `needs` outputs."""

    to: Address
    first: int
    behind: Address
    needs: int
