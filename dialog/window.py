"""When a record counts as acknowledged: shared by sessions and owners (protocol.md section 5).

A writer's records to one destination are numbered. Kafka's acknowledgement of one says nothing of those before it: they
may be missing, or stand behind it. So a record counts only when the producer, idempotent and with every failure
reported, ran empty after it (`drained`). After any failure everything from the first record that does not count is
handed over again with the same counters; the destination drops what it has.
"""

from __future__ import annotations

from collections.abc import Iterable


class Window:
    """Counters of one writer at one destination: acked <= sent <= limit."""

    __slots__ = ("acked", "limit", "sent")

    def __init__(self, acked: int = 0) -> None:
        self.acked = acked
        """Every counter below it counts as acknowledged."""
        self.sent = acked
        """Next counter to hand over."""
        self.limit = acked
        """Counters below it exist and may be handed over."""

    def drained(self) -> None:
        """The producer ran empty and reported no failure: what was handed over is in the log, in order."""
        self.acked = self.sent

    def restart(self) -> None:
        """A new producer: hand over again from the first record that does not count."""
        self.sent = self.acked

    @property
    def outstanding(self) -> int:
        """Records handed over that do not count yet."""
        return self.sent - self.acked


def allow(limits: Iterable[tuple[Window, int]]) -> None:
    """What stands below these counters may be handed over."""
    for window, limit in limits:
        window.limit = limit
