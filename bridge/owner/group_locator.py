"""Where a conversation group lives: the state of our partitions says so, and the journals of the others."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from konverse.bridge.kafka.clients import Kafka
from konverse.dialog.owner.relocations import found_in
from konverse.dialog.queries.in_flight import InFlight, arriving, newest, sent
from konverse.dialog.transaction.received import Found
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.limits import FOLLOWED_BYTES_MAX, FOLLOWED_ENTRIES_MAX

from .follower import Following
from .logs import LogReading

if TYPE_CHECKING:
    from konverse.dialog.owner.owner import Owner

PASSES: Final = 3
"""A group that moves from where a search comes later to where it was before is found by the next pass."""


class Here(NamedTuple):
    """What our partitions say about a group that is in none of them."""

    group: bytes
    in_flight: list[InFlight]
    ingested: dict[int, int]
    """Of each: offset of the data log from which on the state has nothing."""


class Groups:
    """The groups of a queue, as a reader of some of its partitions finds them."""

    def __init__(self, kafka: Kafka, queue: Queue, owners: Mapping[int, Owner]) -> None:
        self._kafka = kafka
        self._queue = queue
        self._owners = owners
        self._reading: LogReading | None = None
        self._followed: dict[int, Following] = {}
        """Partitions that are not ours, as far as the last search has read them."""
        self._searching = threading.Lock()
        self._closed = False

    def find_here(self, group: bytes) -> Found | None:
        """A group in the partitions that are ours."""
        here = (found_in(owner.fold.state, group) for owner in self._owners.values())
        return next(filter(None, here), None)

    def look_here(self, group: bytes) -> Here:
        """What our partitions say of a group that is in none of them: `find_away` needs it, as it runs beside them."""
        states = {number: owner.fold.state for number, owner in self._owners.items()}
        in_flight = [one for state in states.values() for one in sent(state, group)]
        return Here(group, in_flight, {number: state.ingest_to for number, state in states.items()})

    def find_away(self, here: Here) -> Found | None:
        """A group in the partitions that are not ours, or on its way to any one; None when there is none.

        The first search reads one journal after the other from its newest snapshot on, which may take seconds; the
        next one reads on from there. Data that nobody has committed yet are looked through, too, as a group that was
        moved may wait there to be taken up. Whether a partition has an owner now makes no difference. Raises what
        `Following.catch_up` raises.
        """
        try:
            with self._searching:
                return self._search(here)
        finally:
            self._let_go()

    def _search(self, here: Here) -> Found | None:
        for number in here.ingested:
            self._leave(number)
        before: list[int] = []
        for _ in range(PASSES):
            found, places = self._pass(here)
            if found is not None or places == before:
                return found
            before = places
        return None

    def _pass(self, here: Here) -> tuple[Found | None, list[int]]:
        """Every partition once: the group, and how far the journals were read that are not ours."""
        in_flight, places = [*here.in_flight], list[int]()
        for number, start in here.ingested.items():
            in_flight += self._arriving(number, start, here.group)
        for number in range(self._queue.partitions):
            if number in here.ingested:
                continue
            following = self._follow(number)
            state = following.catch_up()
            self._keep(number, following)
            found = found_in(state, here.group)
            if found is not None:
                return found, places
            places.append(following.head.offset)
            in_flight += sent(state, here.group)
            in_flight += self._arriving(number, state.ingest_to, here.group)
        return newest(one for one in in_flight if one.found.address.topic == self._queue.topic), places

    def _arriving(self, number: int, start: int, group: bytes) -> Iterator[InFlight]:
        for columns in self._read().data_behind(number, start):
            yield from arriving(columns, self._queue.address(number), group)

    def _read(self) -> LogReading:
        if self._reading is None:
            self._reading = LogReading(self._kafka, self._queue)
        return self._reading

    def _follow(self, number: int) -> Following:
        return self._followed.get(number) or Following(self._kafka, self._queue, number, self._read())

    def _keep(self, number: int, following: Following) -> None:
        """Have the next search read on from here, unless there are too many of them, or it holds too much."""
        others = [one.state.unread_bytes for place, one in self._followed.items() if place != number]
        if len(others) < FOLLOWED_ENTRIES_MAX and sum(others) + following.state.unread_bytes <= FOLLOWED_BYTES_MAX:
            self._followed[number] = following
        else:
            self._leave(number)

    def _leave(self, number: int) -> None:
        self._followed.pop(number, None)

    def close(self) -> None:
        """Close the client; a search that runs closes it behind itself."""
        self._closed = True
        self._let_go()

    def _let_go(self) -> None:
        if self._closed and self._searching.acquire(blocking=False):
            try:
                self._followed.clear()
                if self._reading is not None:
                    self._reading.close()
                    self._reading = None
            finally:
                self._searching.release()
