"""Timers and lifetimes of endpoints, and which of them is due next.

Time is that of the partition's logs. A setting in a data record counts from the log-append time of that record. A
setting in a COMMIT counts from the log-append time of the COMMIT, which its owner does not know when it applies it.
Such a setting is kept as a span (unsettled) and becomes a time when the next journal record is folded.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Final

from .endpoint import NO_TIME, NOTHING_EXPECTED, Clock, Endpoint

_STALE_ENTRIES_MAX: Final = 64
"""Heap entries allowed beyond twice the number that was left after the last cleanup."""
_Entry = tuple[int, int, Endpoint]
"""Time in milliseconds, a unique number that breaks ties, and the endpoint."""


class Clocks:
    """Queue of due times. Derived from the `clock` of the endpoints, so none of it is state."""

    def __init__(self) -> None:
        self._unsettled: list[Endpoint] = []
        """Endpoints whose clock the last commit set as a span; some may be over or set again since."""
        self._shortest_ms: int | None = None
        """Shortest span of the unsettled endpoints."""
        self._heap: list[_Entry] = []
        """Entries in order of time. Stale entries (set again, or over) are skipped when they come up."""
        self._pushed = 0
        self._room = _STALE_ENTRIES_MAX

    def set(self, endpoint: Endpoint, clock: Clock) -> None:
        """Give an endpoint a new clock, in place of the one that it has."""
        endpoint.clock = None if clock == NOTHING_EXPECTED else clock
        if clock.unsettled:
            self._unsettled.append(endpoint)
            spans = [span for span in (clock.timer_after_ms, clock.expires_after_ms) if span != NO_TIME]
            self._shortest_ms = min(spans if self._shortest_ms is None else [self._shortest_ms, *spans])
        self.expect(endpoint)

    def expect(self, endpoint: Endpoint) -> None:
        """Enter the times of the endpoint's clock into the queue."""
        if endpoint.clock is None:
            return
        for time_ms in endpoint.clock.times:
            if time_ms != NO_TIME:
                self._pushed += 1
                heappush(self._heap, (time_ms, self._pushed, endpoint))
        if len(self._heap) > self._room:
            self._heap = [*{(entry[0], entry[2]): entry for entry in self._heap if _holds(entry)}.values()]
            heapify(self._heap)
            self._room = 2 * len(self._heap) + _STALE_ENTRIES_MAX

    def take_unsettled(self) -> list[Endpoint]:
        """Take the endpoints whose clocks waited for the time of the last commit."""
        unsettled, self._unsettled, self._shortest_ms = self._unsettled, [], None
        return unsettled

    def next_ms(self, now_ms: int) -> int | None:
        """Next time at which something is due; None when nothing is. `now_ms` is the time of the last commit."""
        heap = self._heap
        while heap and not _holds(heap[0]):
            heappop(heap)
        times = [heap[0][0]] if heap else []
        if self._shortest_ms is not None:
            times.append(now_ms + self._shortest_ms)
        return min(times, default=None)

    def due(self, now_ms: int) -> list[Endpoint]:
        """Take the endpoints whose time has come, each once, in the order of their times.

        Endpoints with one time come in the order of their indices, also after a restore from a snapshot.
        """
        heap, found = self._heap, dict[Endpoint, int]()
        while heap and heap[0][0] <= now_ms:
            entry = heappop(heap)
            if _holds(entry):
                found.setdefault(entry[2], entry[0])
        return sorted(found, key=lambda endpoint: (found[endpoint], endpoint.index))


def _holds(entry: _Entry) -> bool:
    """Whether the endpoint's clock still has this time."""
    clock = entry[2].clock
    return clock is not None and entry[0] in clock.times
