"""Finds offsets of a log at which a record was deleted, between records that are still there.

    offsets   4 5 6 [7] 8 9 [10] 11     5 is a foreign record: 7 may mark the end of its transaction, 10 may not

konverse writes without transactions, so each of its offsets holds a record until the beginning of the log is deleted.
Compaction, however, deletes records in the middle, and the topic's settings may not show it any more.

An offset without a record can also hold the marker with which Kafka ends another program's transaction; consumers never
see it. The records of an aborted transaction are hidden as well. So each foreign record explains one later offset
without a record: at most as many deletions as there are foreign records go unnoticed here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from .records import Record


class Gap(NamedTuple):
    """Offsets without a record, from `start` up to but not including `end`."""

    start: int
    end: int


def noting_gaps(records: Iterable[Record], start: int, end: int, gaps: list[Gap]) -> Iterator[Record]:
    """Pass on the records of a log from `start` to `end`, and append the gaps between them to `gaps`."""
    at = start
    for record in records:
        if record.offset > at:
            gaps.append(Gap(at, record.offset))
        at = record.offset + 1
        yield record
    if at < end:
        gaps.append(Gap(at, end))


def unexplained(
    gaps: Iterable[Gap], records: Iterable[Record], is_ours: Callable[[Record], bool], start: int = 0, since: int = 0
) -> list[Gap]:
    """The gaps in which more offsets are missing than the transactions of foreign producers explain.

    `records` are all records of the log from `start` on, in order, including those of aborted transactions, which lie
    in gaps. `gaps` are the gaps from `since` on. Records before `since` count too, because the marker of their
    transaction may come later.
    """
    found: list[Gap] = []
    waiting = deque(gaps)
    marks = hidden = 0
    at = start

    def leave_gap() -> None:
        nonlocal marks, hidden
        gap = waiting.popleft()
        missing = gap.end - gap.start - hidden
        if missing > marks:
            found.append(gap)
        marks, hidden = max(0, marks - missing), 0

    for record in records:
        if at < since:
            marks = max(0, marks - (min(record.offset, since) - at))
            at = record.offset + 1
        while waiting and waiting[0].end <= record.offset:
            leave_gap()
        aborted = bool(waiting) and waiting[0].start <= record.offset
        hidden += aborted
        marks += aborted or not is_ours(record)
    while waiting:
        leave_gap()
    return found


def describe_gaps(log: str, gaps: list[Gap]) -> str:
    """Text of a finding about gaps in a log."""
    first, count = gaps[0], sum(gap.end - gap.start for gap in gaps)
    return (
        f"offsets without a record in the {log}: {count}, the first of them {first.start} to {first.end - 1}. No "
        "transaction of another program explains them, so records were deleted there, as `cleanup.policy=compact` does"
    )
