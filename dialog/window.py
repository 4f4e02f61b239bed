"""When a record counts as acknowledged: shared by sessions and owners (protocol.md section 5).

A writer's records to one destination are numbered. Kafka's acknowledgement of one says nothing of those before it, and
two acknowledgements whose offsets fall say that the records stand in the wrong order. So a record counts in one of two
ways: the producer, idempotent and with every failure reported, ran empty after it (`drained`); or its acknowledgement
came, those of all before it came, and the offsets rise (`delivered`). After any failure everything from the first
record that does not count is handed over again with the same counters; the destination drops what it has.
"""

from __future__ import annotations

from collections.abc import Iterable


class Window:
    """Counters of one writer at one destination: acked <= sent <= limit."""

    __slots__ = ("_early", "_offset", "acked", "limit", "sent")

    def __init__(self, acked: int = 0) -> None:
        self.acked = acked
        """Every counter below it counts as acknowledged."""
        self.sent = acked
        """Next counter to hand over."""
        self.limit = acked
        """Counters below it exist and may be handed over."""
        self._offset = -1
        self._early: dict[int, int] = {}

    def drained(self) -> None:
        """The producer ran empty and reported no failure: what was handed over is in the log, in order."""
        self.acked = self.sent

    def delivered(self, counter: int, offset: int) -> bool:
        """One record is in the log at `offset`; nothing is known of the others. False: hand over again."""
        if counter < self.acked:
            return True
        self._early[counter] = offset
        while self.acked in self._early:
            offset = self._early.pop(self.acked)
            if offset <= self._offset or any(later < offset for later in self._early.values()):
                return False  # a later record arrived before this one, so the destination did not take it
            self._offset = offset
            self.acked += 1
        return True

    def restart(self) -> None:
        """A new producer: hand over again from the first record that does not count."""
        self.sent = self.acked
        self._early.clear()
        self._offset = -1

    @property
    def outstanding(self) -> int:
        """Records handed over that do not count yet."""
        return self.sent - self.acked


def allow(limits: Iterable[tuple[Window, int]]) -> None:
    """What stands below these counters may be handed over."""
    for window, limit in limits:
        window.limit = limit
