"""Filters on partition, offset, time and conversation, turned into what is read and made at all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from math import floor
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
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

from .ingest import Rows

CONVERSATION_BYTES: Final = 16

OFFSET_END: Final = 1 << 63
"""Behind every offset."""

_TIME_END: Final = 1 << 62
"""Behind every time."""


class Conversations(frozenset[bytes]):
    """Some conversations, 16 bytes each: rows of others are not made."""

    def among(self, rows: Rows) -> NDArray[np.bool_]:
        """Which rows are of them."""
        identifiers = rows.frame.conversation
        if not self:
            return np.zeros(len(identifiers), np.bool_)
        wanted = np.frombuffer(b"".join(sorted(self)), identifiers.dtype)
        return np.isin(identifiers, wanted) & rows.decoded


@dataclass(frozen=True, slots=True)
class Selection:
    """The partitions, offsets, times and conversations that a query asks for."""

    partitions: frozenset[int] | None = None
    """None: every partition."""
    first: int = 0
    end: int = OFFSET_END
    """Offsets from `first` up to, not including, `end`."""
    since_ms: int = 0
    before_ms: int = _TIME_END
    """Times that nothing outside of is wanted; Spark looks at each row itself, to the microsecond."""
    conversations: Conversations | None = None
    """None: every conversation."""

    def of(self, values: Iterable[bytes]) -> Selection:
        """Narrowed to some conversations; what is no 16 bytes long is none."""
        wanted = Conversations(bytes(value) for value in values if len(value) == CONVERSATION_BYTES)
        both = wanted if self.conversations is None else Conversations(self.conversations & wanted)
        return replace(self, conversations=both)

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
    GreaterThan: lambda value: (value + 1, OFFSET_END),
    GreaterThanOrEqual: lambda value: (value, OFFSET_END),
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
    if column[0] == "conversation":
        return _conversations(selection, pushed)
    if isinstance(pushed, In):
        whole = all(_is_whole(item) for item in value)
        return selection.among(column[0], value) if whole else None
    if not _is_whole(value):
        return None
    if isinstance(pushed, EqualTo | EqualNullSafe):
        return selection.among(column[0], (value,))
    bounds = _RANGES.get(type(pushed))
    return None if bounds is None else selection.within(column[0], *bounds(value))


def _conversations(selection: Selection, pushed: Filter) -> Selection | None:
    value: Any = getattr(pushed, "value", None)
    values = value if isinstance(pushed, In) else (value,) if isinstance(pushed, EqualTo | EqualNullSafe) else None
    known = values is not None and all(isinstance(one, bytes | bytearray) for one in values)
    return selection.of(values) if known and values is not None else None


def _in_time(selection: Selection, pushed: Filter) -> Selection:
    """The selection without what a filter on `timestamp` leaves out; whole milliseconds, so a little too much."""
    value: Any = getattr(pushed, "value", None)
    if getattr(pushed, "attribute", ()) != ("timestamp",) or not isinstance(value, datetime) or value.tzinfo is None:
        return selection
    time_ms = floor(value.timestamp() * 1000)
    if isinstance(pushed, EqualTo | EqualNullSafe | GreaterThan | GreaterThanOrEqual):
        selection = replace(selection, since_ms=max(selection.since_ms, time_ms))
    if isinstance(pushed, EqualTo | EqualNullSafe | LessThan | LessThanOrEqual):
        selection = replace(selection, before_ms=min(selection.before_ms, time_ms + 1))
    return selection


def select(selection: Selection, filters: Iterable[Filter]) -> tuple[Selection, Iterator[Filter]]:
    """The selection under all filters, and those that are left to Spark."""
    rest = []
    for pushed in filters:
        narrower = narrowed(selection, pushed)
        if narrower is None:
            selection = _in_time(selection, pushed)
            rest.append(pushed)
        else:
            selection = narrower
    return selection, iter(rest)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
