"""Counters that a partition has passed over, as their records were deleted unread (LOST, protocol.md section 7.7).

    counters   0 1 2 [3 4 5] 6 7 8     3 to 5 lay in the data that LOST names; 6 was the first one heard behind it

Kafka keeps the order of what a writer sends to a partition. So what is missing behind a LOST lay in its hole, and the
writer is heard on. What lay in the hole was not received, and whoever asks is told so. A record of it may come late,
when its writer had no acknowledgement and sent it again. It would stand behind others that followed it, so it is never
received (`loss.hear_late`). Copies of what stood before the hole may come behind it as well: so the first record behind
a LOST does not show that nothing of its writer is missing, and a gap is passed over wherever it shows.
"""

from __future__ import annotations

from collections.abc import Iterable

from konverse.dialog.state.partition import Partition
from konverse.dialog.state.writer import MERGED, Hole, Writer
from konverse.schemas.limits import WRITER_HOLE_ENTRIES_MAX


def goes_on_behind(state: Partition, writer: Writer, counter: int) -> bool:
    """Whether a writer goes on here, as data was lost before; what it said in between is gone."""
    if not state.lost_to:
        return False
    if writer.closed_at is None:
        pass_over(writer, counter)
    else:  # nothing of it was received from there on, and its heir sends that again
        writer.go_on_at(counter)
    return True


def pass_over(writer: Writer, counter: int) -> None:
    """Accept this counter next; those before it are gone."""
    writer.holes = _bounded((*writer.holes, Hole(writer.next, counter, writer.next)))
    writer.go_on_at(counter)


def _bounded(holes: tuple[Hole, ...]) -> tuple[Hole, ...]:
    if len(holes) <= WRITER_HOLE_ENTRIES_MAX:
        return holes
    first, second, *others = holes
    return (Hole(first.start, second.end, MERGED), *others)


def hole_at(holes: Iterable[Hole], counter: int) -> Hole | None:
    """The hole in which the record of this counter lay."""
    return next((hole for hole in holes if hole.start <= counter < hole.end), None)


def comes_late(writer: Writer, counter: int) -> bool:
    """Whether a record that is no news has to be answered: it lay in a hole, and was not answered yet."""
    hole = hole_at(writer.holes, counter)
    if hole is None or hole.told == MERGED or counter < hole.told:
        return False
    answered: tuple[Hole, ...] = (hole._replace(told=counter + 1),)
    if counter > hole.told:  # those before it may still come
        answered = (Hole(hole.start, counter, hole.told), Hole(counter, hole.end, counter + 1))
    at = writer.holes.index(hole)
    writer.holes = _bounded((*writer.holes[:at], *answered, *writer.holes[at + 1 :]))
    return True
