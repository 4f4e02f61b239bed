"""Groups with something to receive, by priority level: the order in which an owner hands them out."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from itertools import chain
from operator import attrgetter
from typing import ClassVar, Final

from konverse.schemas.levels import DEFAULT_LEVEL, HIGHEST, LOWEST

from .endpoint import Endpoint

NOTHING_READY: Final = LOWEST - 1
"""In place of the level of a group, when there is none."""
_LEVEL: Final = attrgetter("level")


class Ranked:
    """Endpoints that have something to receive: those of the highest level first, else whoever came first."""

    __slots__ = ("_rows",)

    made: ClassVar[bool] = False
    """There was one in this process: in most there never is, and nobody looks at levels."""

    def __init__(self, endpoints: Iterable[Endpoint]) -> None:
        self._rows: dict[int, OrderedDict[Endpoint, None]] = {
            level: OrderedDict() for level in range(HIGHEST, LOWEST - 1, -1)
        }
        """Each endpoint once: a low one may come again and again before it is its turn."""
        self.extend(endpoints)
        Ranked.made = True

    def append(self, endpoint: Endpoint) -> None:
        """Put it behind those of its level, unless it waits among them already."""
        self._rows[endpoint.level].setdefault(endpoint)

    def extend(self, endpoints: Iterable[Endpoint]) -> None:
        """Put each behind those of its level."""
        for endpoint in endpoints:
            self.append(endpoint)

    def popleft(self) -> Endpoint:
        """Take the first one."""
        return next(row for row in self._rows.values() if row).popitem(last=False)[0]

    def clear(self) -> None:
        """Nothing is ready."""
        for row in self._rows.values():
            row.clear()

    def counts(self) -> dict[int, int]:
        """How many there are of each level."""
        return {level: len(row) for level, row in self._rows.items()}

    def __iter__(self) -> Iterator[Endpoint]:
        return chain.from_iterable(self._rows.values())

    def __getitem__(self, place: int) -> Endpoint:
        return [*self][place] if place else next(iter(self))

    def __len__(self) -> int:
        return sum(map(len, self._rows.values()))

    def __bool__(self) -> bool:
        return any(self._rows.values())


Ready = deque[Endpoint] | Ranked
"""Ranked from the first side on whose level is not the default."""


def counts_of(ready: Ready) -> dict[int, int]:
    """How many there are of each level."""
    return ready.counts() if isinstance(ready, Ranked) else {DEFAULT_LEVEL: len(ready)}


def by_level(members: list[Endpoint]) -> list[Endpoint]:
    """The conversations of a group, the highest level first (behaviour 67)."""
    return sorted(members, key=_LEVEL, reverse=True) if Ranked.made else members.copy()
