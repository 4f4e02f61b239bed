"""Filters on partition and offset, turned into what is read at all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

_OFFSET_END: Final = 1 << 63
"""Behind every offset."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The partitions and offsets that a query asks for."""

    partitions: frozenset[int] | None = None
    """None: every partition."""
    first: int = 0
    end: int = _OFFSET_END
    """Offsets from `first` up to, not including, `end`."""

    def within(self, column: str, first: int, end: int) -> Selection | None:
        """Narrowed to values from `first` up to `end` of the column; None when it says nothing of that column."""
        if column == "offset":
            return replace(self, first=max(self.first, first), end=min(self.end, end))
        return None

    def among(self, column: str, values: Iterable[int]) -> Selection | None:
        """Narrowed to some values of the column; None when it cannot be."""
        wanted = frozenset(values)
        if column == "partition":
            return replace(self, partitions=wanted if self.partitions is None else self.partitions & wanted)
        if column == "offset" and len(wanted) == 1:
            return self.within(column, min(wanted), min(wanted) + 1)
        return None


_NEVER_NULL: Final = ("partition", "offset")

_RANGES: Final[dict[type[Filter], Callable[[int], tuple[int, int]]]] = {
    GreaterThan: lambda value: (value + 1, _OFFSET_END),
    GreaterThanOrEqual: lambda value: (value, _OFFSET_END),
    LessThan: lambda value: (0, value),
    LessThanOrEqual: lambda value: (0, value + 1),
}


def narrowed(selection: Selection, pushed: Filter) -> Selection | None:
    """The selection under one more filter; None when Spark has to apply the filter itself."""
    value: Any = getattr(pushed, "value", None)
    column: tuple[str, ...] = getattr(pushed, "attribute", ())
    if len(column) != 1:
        return None
    if isinstance(pushed, IsNotNull) and column[0] in _NEVER_NULL:
        return selection
    if isinstance(pushed, In):
        whole = all(_is_whole(item) for item in value)
        return selection.among(column[0], value) if whole else None
    if not _is_whole(value):
        return None
    if isinstance(pushed, EqualTo | EqualNullSafe):
        return selection.among(column[0], (value,))
    bounds = _RANGES.get(type(pushed))
    return None if bounds is None else selection.within(column[0], *bounds(value))


def select(selection: Selection, filters: Iterable[Filter]) -> tuple[Selection, Iterator[Filter]]:
    """The selection under all filters, and those that are left to Spark."""
    rest = []
    for pushed in filters:
        narrower = narrowed(selection, pushed)
        if narrower is None:
            rest.append(pushed)
        else:
            selection = narrower
    return selection, iter(rest)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
