"""Gaps in the second fold: which counters of each writer were lost with deleted data (protocol.md 7.7)."""

from __future__ import annotations

from dataclasses import dataclass, field

from konverse.schemas.limits import WRITER_HOLE_ENTRIES_MAX


@dataclass(slots=True)
class Missed:
    """A gap: counters of one writer that were passed over together, each of them listed."""

    counters: list[int]
    unanswered: list[int] | None
    """The counters of the gap whose records are answered if they come late; None for a gap merged from several."""


@dataclass(slots=True)
class SecondLosses:
    """The LOST records of a partition, and the gaps of its writers."""

    count: int = 0
    unsaid: int = 0
    """Gaps of acknowledged records without a LOST."""
    hole: tuple[int, int] = (0, 0)
    """Start and end of the last LOST, in the data log."""
    missed: dict[bytes, list[Missed]] = field(default_factory=dict)

    @property
    def any(self) -> bool:
        """Whether records are known to be lost."""
        return bool(self.count or self.unsaid)

    def skip(self, writer: bytes, first: int, following: int) -> None:
        """Pass over counters of a writer, from `first` to the one before `following`."""
        gaps = self.missed.setdefault(writer, [])
        counters = [*range(first, following)]
        gaps.append(Missed(counters, list(counters)))
        _put_together(gaps)

    def answers(self, writer: bytes, counter: int) -> bool:
        """Whether a record from a gap comes late and must be answered; if so, note that it was."""
        gaps = self.missed.get(writer, [])
        for place, gap in enumerate(gaps):
            if gap.unanswered is None or counter not in gap.unanswered:
                continue
            if gap.unanswered[0] == counter:
                del gap.unanswered[0]
            else:
                parts = [one for one in gap.counters if one < counter], [one for one in gap.counters if one >= counter]
                waiting = (
                    [one for one in gap.unanswered if one < counter],
                    [one for one in gap.unanswered if one > counter],
                )
                gaps[place : place + 1] = map(Missed, parts, waiting)
                _put_together(gaps)
            return True
        return False

    def facts(self, writer: bytes) -> list[tuple[int, int, int]]:
        """A writer's gaps as a snapshot has them: first counter, last counter + 1, next counter to be answered."""
        return [(gap.counters[0], gap.counters[-1] + 1, _told(gap)) for gap in self.missed.get(writer, ())]


def _put_together(gaps: list[Missed]) -> None:
    """Merge the two oldest gaps when there are too many."""
    if len(gaps) > WRITER_HOLE_ENTRIES_MAX:
        older, old = gaps[:2]
        gaps[:2] = [Missed([*range(older.counters[0], old.counters[-1] + 1)], None)]


def _told(gap: Missed) -> int:
    if gap.unanswered is None:
        return -1
    return gap.unanswered[0] if gap.unanswered else gap.counters[-1] + 1
