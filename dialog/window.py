"""When a record counts as acknowledged: shared by sessions and owners (protocol.md section 5).

The records of a writer to one destination are numbered. Kafka's acknowledgement of one record proves nothing about the
records before it: they may be missing, or may land after it. So records count as acknowledged only when the idempotent
producer has run empty after them and has reported no failure (`drained`). After a failure the writer hands everything
from the first unacknowledged record to a new producer, with the same counters. The destination drops the duplicates.
"""

from __future__ import annotations

from collections.abc import Iterable


class Window:
    """Counters of one writer at one destination: acked <= sent <= limit."""

    __slots__ = ("acked", "limit", "sent")

    def __init__(self, acked: int = 0) -> None:
        self.acked = acked
        """Every counter below this one counts as acknowledged."""
        self.sent = acked
        """Next counter to hand to the producer."""
        self.limit = acked
        """Counters below this one exist and may be handed to the producer."""

    def drained(self) -> None:
        """The producer ran empty without a failure: every record handed to it is in the log, in order."""
        self.acked = self.sent

    def restart(self) -> None:
        """Start over with a new producer: it gets all records again, from the first unacknowledged one on."""
        self.sent = self.acked

    @property
    def outstanding(self) -> int:
        """Number of records that were handed to the producer and do not count as acknowledged yet."""
        return self.sent - self.acked


def allow(limits: Iterable[tuple[Window, int]]) -> None:
    """Set the limit of each window: counters below it may be handed to the producer."""
    for window, limit in limits:
        window.limit = limit
