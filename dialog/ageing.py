"""When a session must take a new id (protocol.md section 5, rule 5), as a machine that is told the time.

Whoever was silent for long may have been forgotten somewhere. So a session's records follow one another within half a
day, and an acknowledgement that comes a day after its record was made counts for nothing. Nothing is noted when a
message is sent. The driver looks now and then, with a clock that also runs while the machine sleeps, and what lies
between two looks is taken for as old as it may be.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from heapq import heapify, heappop, heappush
from typing import Final

from konverse.schemas.identifiers import Address
from konverse.schemas.limits import SESSION_ANSWER_MS_MAX, SESSION_IDLE_MS_MAX, SESSION_LOOK_MS_MAX
from konverse.schemas.records import FOR_EVER

from .lane import DialogState, Lane, SessionDialog

_OVER: Final = (DialogState.ENDED, DialogState.NOT_BEGUN)

LOOK_EVERY_MS: Final = 60_000
"""Looking more often than this finds nothing new."""


class Age(IntEnum):
    """What a session has to do about its id."""

    FRESH = 0
    OLD = 1
    """Another id, before anything more is handed over."""
    DOUBTFUL = 2
    """Another one at once: what is on its way may have been handed over too late."""


class _Seen:
    """A lane as it was looked at."""

    __slots__ = ("last_ms", "mark", "mark_ms", "next", "since_ms")

    def __init__(self, opened_ms: int) -> None:
        self.next = 0
        self.last_ms = opened_ms
        """Its last record was made after this; without any, the id."""
        self.mark = 0
        self.mark_ms = opened_ms
        """The records before `mark` were made before this, the others after it."""
        self.since_ms = opened_ms
        """The oldest one that does not count was made after this."""


class Ageing:
    """The clock of a session's present id."""

    def __init__(self, opened_ms: int) -> None:
        self._opened_ms = opened_ms
        """Before the id was asked for."""
        self._looked_ms = opened_ms
        self._lanes: dict[Address, _Seen] = {}
        self.age = Age.FRESH

    def look(self, lanes: Mapping[Address, Lane], now_ms: int) -> Age:
        """What to do now. To be asked before acknowledgements are counted."""
        before_ms = self._looked_ms
        if now_ms - before_ms < LOOK_EVERY_MS or self.age is Age.DOUBTFUL:
            return self.age
        self._looked_ms = now_ms
        early_ms = SESSION_IDLE_MS_MAX - SESSION_LOOK_MS_MAX
        age = Age.OLD if now_ms - self._opened_ms > early_ms else Age.FRESH
        for address, lane in lanes.items():
            seen = self._lanes.get(address)
            if seen is None:
                seen = self._lanes[address] = _Seen(self._opened_ms)
            age = max(age, self._look_at(seen, lane, before_ms, now_ms))
        self.age = age
        return age

    @staticmethod
    def _look_at(seen: _Seen, lane: Lane, before_ms: int, now_ms: int) -> Age:
        waiting = lane.window.acked < lane.next
        if lane.window.acked >= seen.mark:
            seen.since_ms = seen.mark_ms
            seen.mark, seen.mark_ms = lane.next, now_ms
        doubtful = waiting and now_ms - seen.since_ms > SESSION_ANSWER_MS_MAX
        if lane.next > seen.next:
            doubtful |= waiting and now_ms - seen.last_ms > SESSION_IDLE_MS_MAX
            seen.next, seen.last_ms = lane.next, before_ms
        if doubtful:
            return Age.DOUBTFUL
        return Age.OLD if now_ms - seen.last_ms > SESSION_IDLE_MS_MAX - SESSION_LOOK_MS_MAX else Age.FRESH


_ENDED_ENTRIES_MAX: Final = 1_000
"""Kept beside as many as live."""


class Lifetimes:
    """Dialogs of a session that were begun for a while: it sends nothing on them when that is over, whatever it hears.

    Home and target count by the log; this clock is the session's own, and counts from when it was looked at first.
    """

    def __init__(self) -> None:
        self._new: list[SessionDialog] = []
        self._heap: list[tuple[int, int, SessionDialog]] = []
        """When each is over, and a number that no two have."""
        self._counted = 0
        self._room = _ENDED_ENTRIES_MAX

    def begun(self, dialog: SessionDialog) -> None:
        """Count from now on."""
        if dialog.begin.lifetime_ms != FOR_EVER:
            self._new.append(dialog)

    def over(self, now_ms: int) -> list[SessionDialog]:
        """Those whose lifetime is over; what was ended before is forgotten."""
        new, self._new = self._new, []
        for dialog in new:
            self._counted += 1
            heappush(self._heap, (now_ms + dialog.begin.lifetime_ms, self._counted, dialog))
        if len(self._heap) > self._room:
            self._heap = [entry for entry in self._heap if entry[2].state not in _OVER]
            heapify(self._heap)
            self._room = 2 * len(self._heap) + _ENDED_ENTRIES_MAX
        found = []
        while self._heap and self._heap[0][0] <= now_ms:
            found.append(heappop(self._heap)[2])
        return found
