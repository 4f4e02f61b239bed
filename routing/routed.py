"""What a router has done, counted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


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
