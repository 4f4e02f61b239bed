"""Filters on partition and offset narrow what is read; all others are left to Spark."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
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
    Not,
)

from konverse.spark.filters import Selection, select

OFFSET: Final = ("offset",)
PARTITION: Final = ("partition",)
CONVERSATION: Final = ("conversation",)
TIMESTAMP: Final = ("timestamp",)

MEANING: Final[dict[type[Filter], Callable[[int, int], bool]]] = {
    EqualTo: lambda offset, value: offset == value,
    EqualNullSafe: lambda offset, value: offset == value,
    GreaterThan: lambda offset, value: offset > value,
    GreaterThanOrEqual: lambda offset, value: offset >= value,
    LessThan: lambda offset, value: offset < value,
    LessThanOrEqual: lambda offset, value: offset <= value,
}


@given(st.lists(st.tuples(st.sampled_from(list(MEANING)), st.integers(-3, 20)), max_size=4), st.integers(0, 20))
def test_offsets_are_selected_as_the_filters_say(filters: list[tuple[Any, int]], offset: int) -> None:
    selection, rest = select(Selection(), [kind(OFFSET, value) for kind, value in filters])
    assert list(rest) == []
    expected = all(MEANING[kind](offset, value) for kind, value in filters)
    assert (selection.first <= offset < selection.end) == expected


def test_conversations_are_selected_by_value_and_by_list() -> None:
    one, two, other = b"1" * 16, b"2" * 16, b"3" * 16
    pushed = [In(CONVERSATION, (one, two, b"short")), EqualTo(CONVERSATION, bytearray(two))]
    selection, rest = select(Selection(), pushed)
    assert (selection.conversations, list(rest)) == (frozenset({two}), [])
    nothing, _ = select(selection, [EqualTo(CONVERSATION, other)])
    assert nothing.conversations == frozenset()


def test_times_narrow_what_is_read_and_spark_looks_again() -> None:
    noon = datetime(2026, 1, 31, 12, tzinfo=UTC)
    later = noon + timedelta(microseconds=1_500)
    noon_ms = round(noon.timestamp() * 1000)
    nowhere = noon.replace(tzinfo=None)
    pushed = [GreaterThan(TIMESTAMP, noon), LessThanOrEqual(TIMESTAMP, later), LessThan(TIMESTAMP, nowhere)]
    selection, rest = select(Selection(), pushed)
    assert list(rest) == pushed
    assert (selection.since_ms, selection.before_ms) == (noon_ms, noon_ms + 2)
    assert select(Selection(), [EqualTo(TIMESTAMP, noon)])[0] == Selection(since_ms=noon_ms, before_ms=noon_ms + 1)


def test_partitions_are_selected_by_value_and_by_list() -> None:
    selection, rest = select(Selection(), [In(PARTITION, (1, 2, 3)), EqualTo(PARTITION, 2)])
    assert (selection.partitions, list(rest)) == (frozenset({2}), [])
    assert list(select(selection, [IsNotNull(PARTITION), IsNotNull(OFFSET)])[1]) == []
    nothing, _ = select(selection, [EqualTo(PARTITION, 1)])
    assert nothing.partitions == frozenset()


@pytest.mark.parametrize(
    "pushed",
    [
        EqualTo(("kind",), "MESSAGE"),
        EqualTo(CONVERSATION, None),
        GreaterThan(CONVERSATION, b"1" * 16),
        EqualTo(("sequence",), 1),
        EqualTo(OFFSET, None),
        EqualTo(OFFSET, "1"),
        In(OFFSET, (1, 2)),
        In(PARTITION, (1, None)),
        GreaterThan(PARTITION, 1),
        IsNotNull(("sequence",)),
        Not(EqualTo(OFFSET, 1)),
        EqualTo(("headers", "offset"), 1),
    ],
)
def test_what_cannot_be_selected_is_left_to_spark(pushed: Filter) -> None:
    selection, rest = select(Selection(), [pushed, LessThan(OFFSET, 9)])
    assert selection == Selection(end=9)
    assert list(rest) == [pushed]
