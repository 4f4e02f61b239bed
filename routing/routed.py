"""Counts of a router's work, and its failures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Routed:
    """Counts of a router's work."""

    forwarded: int = 0
    """Conversations that were classified and forwarded: their first messages."""
    followed: int = 0
    """Later messages of these conversations, which followed the first."""
    replied: int = 0
    """Messages from services that were passed back to the initiators."""
    redirected: int = 0
    """Conversations whose initiator was redirected."""
    rejected: int = 0
    """Conversations that ended with Error 1: no service is known for them."""
    ended: int = 0
    """Ends and Errors that were passed on, in either direction."""
    dropped: int = 0
    """Messages that came after the other side had ended, or after a redirection or Error 1."""
    failed: int = 0
    """Transactions that were rolled back, each attempt counted."""
    targets: Mapping[str, int] = field(default_factory=dict)
    """Service -> messages passed on to it, or conversations redirected to it."""

    def plus(self, other: Routed) -> Routed:
        """The sum of both."""
        targets = dict(self.targets)
        for service, count in other.targets.items():
            targets[service] = targets.get(service, 0) + count
        return Routed(
            self.forwarded + other.forwarded,
            self.followed + other.followed,
            self.replied + other.replied,
            self.redirected + other.redirected,
            self.rejected + other.rejected,
            self.ended + other.ended,
            self.dropped + other.dropped,
            self.failed + other.failed,
            targets,
        )

    @property
    def messages(self) -> int:
        """Application messages that were received and handled."""
        first = self.forwarded + self.redirected + self.rejected
        return first + self.followed + self.replied + self.dropped


class Tally:
    """Adds up the counts of a router's steps. Not thread-safe."""

    def __init__(self) -> None:
        self._counts = Counter[str]()
        self._targets = Counter[str]()

    def add(self, counts: Mapping[str, int], service: str = "", to: int = 0) -> None:
        """Add counts by field name of `Routed`; `to` of them went to `service`."""
        for name, count in counts.items():
            self._counts[name] += count
        if to:
            self._targets[service] += to

    @property
    def routed(self) -> Routed:
        """The sum so far."""
        return Routed(**self._counts, targets=dict(self._targets))


class Failure(NamedTuple):
    """A failed transaction of a router, or a conversation that it refused with Error 1."""

    at: datetime
    """UTC."""
    conversation: UUID
    """The inbound conversation."""
    message_id: str
    message_type: str
    text: str
