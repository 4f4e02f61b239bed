"""In which order groups are received: the levels of sides, and what waits by level (behaviours 67, 216 to 219).

A side gets its level when it begins. Its owner asks the catalog then, and says so in the COMMIT with which the side
begins; every fold takes it from there, so later DDL changes nothing. Where all sides have the default nothing is said,
and what waits stands in one plain row.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, ClassVar, Final

from konverse.schemas.operations import Prioritize
from konverse.schemas.priorities import DEFAULT_LEVEL, HIGHEST, LOWEST
from konverse.schemas.records import NO_SEQUENCE, Begin

from .begun import indices
from .endpoint import Endpoint

if TYPE_CHECKING:
    from .owner import Owner
    from .partition import Partition

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


def highest_first(owners: list[Owner]) -> Sequence[Owner]:
    """The owners of a reader in the order in which it asks them for a group (behaviour 219)."""
    if not (Ranked.made and any(isinstance(owner.fold.state.ready, Ranked) for owner in owners)):
        return owners
    return sorted(owners, key=_next_level, reverse=True)


def _next_level(owner: Owner) -> int:
    """The level of the group that an owner hands out next; what is not ready any more is dropped."""
    ready, table = owner.staging.ready, owner.fold.state.table
    while ready:
        endpoint = ready[0]
        if not endpoint.held and endpoint.waits and table[endpoint.index] is endpoint:
            return endpoint.level
        ready.popleft()
    return NOTHING_READY


# ------------------------------------------------------------------------------------------------ a side gets its level


def rank(state: Partition, endpoint: Endpoint, given: int = NO_SEQUENCE) -> None:
    """A side begins: its owner says its level with the next COMMIT: as `given` with its BEGIN, else by the catalog."""
    if state.judge is None:
        return
    terms = endpoint.terms
    level = given
    if not LOWEST <= given <= HIGHEST:
        level = state.judge.level(terms.contract, terms.service, terms.far_service)
    if level != DEFAULT_LEVEL:
        set_level(state, endpoint, level)
        state.unsaid.append(endpoint)


def set_level(state: Partition, endpoint: Endpoint, level: int) -> None:
    """From its beginning on the side has this level."""
    endpoint.level = level
    if level != DEFAULT_LEVEL and not isinstance(state.ready, Ranked):
        state.ready = Ranked(state.ready)


def said(state: Partition, begins: list[tuple[bytes, Begin]]) -> list[Prioritize]:
    """The levels of the sides that begin with the next COMMIT, of its own `begins` too; nothing where all are default.

    Of those that live: the COMMIT itself may end some of them.
    """
    levels = {endpoint.index: endpoint.level for endpoint in state.unsaid if state.table[endpoint.index] is endpoint}
    state.unsaid = []
    if begins and state.judge is not None:
        for index, (_, begin) in zip(indices(state), begins, strict=False):
            level = state.judge.level(begin.contract, begin.from_service, begin.to_service)
            if level != DEFAULT_LEVEL:
                levels[index] = level
    return [Prioritize([*levels], bytes(levels.values()))] if levels else []


def prioritize(state: Partition, operation: Prioritize) -> None:
    """PRIORITIZE: the levels of sides that began with this COMMIT. One that has ended in it has none any more."""
    for index, level in zip(operation.endpoints, operation.levels, strict=True):
        endpoint = state.table[index] if 0 <= index < len(state.table) else None
        if endpoint is not None:
            set_level(state, endpoint, level)
