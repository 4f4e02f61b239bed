"""Endpoints with something to receive, by priority level: the order in which an owner delivers their groups."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from itertools import chain
from operator import attrgetter
from typing import ClassVar, Final

from konverse.schemas.levels import DEFAULT_LEVEL, HIGHEST, LOWEST

from .endpoint import Endpoint

NOTHING_READY: Final = LOWEST - 1
"""Level of no group: returned when none is ready."""
_LEVEL: Final = attrgetter("level")


class Ranked:
    """Endpoints with something to receive, highest level first, and within a level in the order of arrival."""

    __slots__ = ("_rows",)

    made: ClassVar[bool] = False
    """Whether this process ever made a Ranked. Most processes never do, and then `by_level` skips the sort."""

    def __init__(self, endpoints: Iterable[Endpoint]) -> None:
        self._rows: dict[int, OrderedDict[Endpoint, None]] = {
            level: OrderedDict() for level in range(HIGHEST, LOWEST - 1, -1)
        }
        """Level -> endpoints, each once: one of a low level may be appended many times before its turn."""
        self.extend(endpoints)
        Ranked.made = True

    def append(self, endpoint: Endpoint) -> None:
        """Append an endpoint to its level, unless it waits there already."""
        self._rows[endpoint.level].setdefault(endpoint)

    def extend(self, endpoints: Iterable[Endpoint]) -> None:
        """Append each endpoint to its level."""
        for endpoint in endpoints:
            self.append(endpoint)

    def popleft(self) -> Endpoint:
        """Remove and return the first endpoint."""
        return next(row for row in self._rows.values() if row).popitem(last=False)[0]

    def clear(self) -> None:
        """Remove all endpoints."""
        for row in self._rows.values():
            row.clear()

    def counts(self) -> dict[int, int]:
        """Number of endpoints by level."""
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
"""A plain deque until the first side has another level than the default, then Ranked."""


def counts_of(ready: Ready) -> dict[int, int]:
    """Number of ready endpoints by level."""
    return ready.counts() if isinstance(ready, Ranked) else {DEFAULT_LEVEL: len(ready)}


def by_level(members: list[Endpoint]) -> list[Endpoint]:
    """The members of a group, highest level first (behaviour 67)."""
    return sorted(members, key=_LEVEL, reverse=True) if Ranked.made else members.copy()
