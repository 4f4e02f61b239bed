"""What a router has done, counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Routed:
    """Counts of what a router has done."""

    forwarded: int = 0
    """Conversations that were classified and passed on: their first messages."""
    followed: int = 0
    """Later messages of such conversations, which went where the first had gone."""
    replied: int = 0
    """Messages that came back from the services and were passed to those who had asked."""
    redirected: int = 0
    """Conversations whose initiator was told where to go."""
    rejected: int = 0
    """Conversations that ended with Error 1: no service is known for them."""
    ended: int = 0
    """Ends and Errors that were passed on, either way."""
    dropped: int = 0
    """Messages that came when the conversation was over on the other side, or behind a redirection or Error 1."""
    failed: int = 0
    """Transactions that were rolled back, each time."""
    targets: Mapping[str, int] = field(default_factory=dict)
    """Messages passed on to each service; of redirections, conversations."""

    def plus(self, other: Routed) -> Routed:
        """Both together."""
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
        """Messages of applications that were received and dealt with."""
        first = self.forwarded + self.redirected + self.rejected
        return first + self.followed + self.replied + self.dropped


class Tally:
    """Adds up what a router does, a step at a time. Not for several threads at once."""

    def __init__(self) -> None:
        self._counts = Counter[str]()
        self._targets = Counter[str]()

    def add(self, counts: Mapping[str, int], service: str = "", to: int = 0) -> None:
        """Count this too: as in `Routed`, of which `to` went to the service."""
        for name, count in counts.items():
            self._counts[name] += count
        if to:
            self._targets[service] += to

    @property
    def routed(self) -> Routed:
        """All so far."""
        return Routed(**self._counts, targets=dict(self._targets))


class Failure(NamedTuple):
    """What a router could not do, or has refused with Error 1."""

    at: datetime
    """UTC."""
    conversation: UUID
    """The one that came in."""
    message_id: str
    message_type: str
    text: str
