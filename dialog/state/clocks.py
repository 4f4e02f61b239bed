"""When endpoints have something to expect of time: timers and lifetimes, and the next of them.

Time is that of the partition's logs. A setting in a data record counts from that record's log-append time. One in a
COMMIT counts from the COMMIT's, which its owner cannot know when it applies it: it is noted as a span, and becomes a
time when the next record of the journal is folded.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Final

from .endpoint import NO_TIME, NOTHING_EXPECTED, Clock, Endpoint

_STALE_ENTRIES_MAX: Final = 64
"""Beside as many as there were when it was last looked."""
_Entry = tuple[int, int, Endpoint]
"""A time, a number that no two have, and whose it is."""


class Clocks:
    """Which endpoint of a partition is the next. Derived from what the endpoints say, so none of it is state."""

    def __init__(self) -> None:
        self._unsettled: list[Endpoint] = []
        """Set by the last commit; some of them may be over, or set anew."""
        self._shortest_ms: int | None = None
        """Of their spans."""
        self._heap: list[_Entry] = []
        """What was set anew since, or is over, is passed over."""
        self._pushed = 0
        self._room = _STALE_ENTRIES_MAX

    def set(self, endpoint: Endpoint, clock: Clock) -> None:
        """This is what the endpoint expects from now on."""
        endpoint.clock = None if clock == NOTHING_EXPECTED else clock
        if clock.unsettled:
            self._unsettled.append(endpoint)
            spans = [span for span in (clock.timer_after_ms, clock.expires_after_ms) if span != NO_TIME]
            self._shortest_ms = min(spans if self._shortest_ms is None else [self._shortest_ms, *spans])
        self.expect(endpoint)

    def expect(self, endpoint: Endpoint) -> None:
        """Look at the endpoint when its times come."""
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
        """Endpoints whose clocks waited for the time of the last commit, which is known now."""
        unsettled, self._unsettled, self._shortest_ms = self._unsettled, [], None
        return unsettled

    def next_ms(self, now_ms: int) -> int | None:
        """When something is to be done; None: nothing is expected. The last commit was at `now_ms`."""
        heap = self._heap
        while heap and not _holds(heap[0]):
            heappop(heap)
        times = [heap[0][0]] if heap else []
        if self._shortest_ms is not None:
            times.append(now_ms + self._shortest_ms)
        return min(times, default=None)

    def due(self, now_ms: int) -> list[Endpoint]:
        """Endpoints whose time has come, each once, in the order of their times."""
        heap, found = self._heap, dict[Endpoint, None]()
        while heap and heap[0][0] <= now_ms:
            entry = heappop(heap)
            if _holds(entry):
                found[entry[2]] = None
        return list(found)


def _holds(entry: _Entry) -> bool:
    """The endpoint still expects something at this time."""
    clock = entry[2].clock
    return clock is not None and entry[0] in clock.times
