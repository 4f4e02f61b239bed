"""Holes: counters that a partition passed over because their records are lost (protocol.md 7.7).

They were deleted unread (LOST), or the log lacks them although Kafka had acknowledged them (M291).

    counters   0 1 2 [3 4 5] 6 7 8     3 to 5 were in the lost data; 6 is the first counter ingested after it

Kafka keeps the order of a writer's records in a partition. So a counter that is missing after a LOST belongs to a
record in the lost range, and the writer continues after it. The records of a hole were not received, and the partition
reports so when asked. Such a record may still arrive late, if it was never acknowledged and its writer sent it again.
By then records that should follow it have been received, so it never is (`loss.on_late`).

Copies of records from before the hole may arrive after it as well. So a writer's first record after a LOST does not
prove that no other record of the writer is missing: gaps are passed over wherever they appear.
"""

from __future__ import annotations

from collections.abc import Iterable

from konverse.dialog.state.partition import Partition
from konverse.dialog.state.writer import MERGED, Hole, Writer
from konverse.schemas.identifiers import time_of_writer
from konverse.schemas.limits import WRITER_HOLE_ENTRIES_MAX, WRITER_HOLE_RECORDS_MAX
from konverse.schemas.wire.records import ACKED, Envelope


def vouches(state: Partition, envelope: Envelope, expected: int) -> bool:
    """Whether a record behind a gap tells that Kafka had acknowledged the records in it, so that they are lost.

    After a LOST a gap in an owner's counters is taken for a part of that loss: every conversation has failed already.
    """
    explained = state.lost_to and time_of_writer(envelope.writer) is None
    return bool(envelope.flags & ACKED and not explained) and envelope.counter - expected <= WRITER_HOLE_RECORDS_MAX


def skips_gap(state: Partition, writer: Writer, counter: int) -> bool:
    """Whether a gap is passed over, because data was lost here; then the counters before `counter` become a hole."""
    if not may_lack(state, counter - writer.next):
        return False
    if writer.closed_at is None:
        pass_over(writer, counter)
    else:  # a closed writer gets no hole: its heir resends from where it was closed
        writer.go_on_at(counter)
    return True


def may_lack(state: Partition, count: int) -> bool:
    """Whether so many records may be lost with data that was deleted here: each of them had an offset of its own."""
    return 0 < count <= state.lost_to


def pass_over(writer: Writer, counter: int) -> None:
    """Expect this counter next, and remember the counters before it as a hole."""
    writer.holes = _bounded((*writer.holes, Hole(writer.next, counter, writer.next)))
    writer.go_on_at(counter)


def _bounded(holes: tuple[Hole, ...]) -> tuple[Hole, ...]:
    if len(holes) <= WRITER_HOLE_ENTRIES_MAX:
        return holes
    first, second, *others = holes
    return (Hole(first.start, second.end, MERGED), *others)


def hole_at(holes: Iterable[Hole], counter: int) -> Hole | None:
    """The hole that contains this counter; None when there is none."""
    return next((hole for hole in holes if hole.start <= counter < hole.end), None)


def comes_late(writer: Writer, counter: int) -> bool:
    """Whether a record with a counter below `next` lay in a hole and has to be answered now, for the first time."""
    hole = hole_at(writer.holes, counter)
    if hole is None or hole.answered_to == MERGED or counter < hole.answered_to:
        return False
    answered: tuple[Hole, ...] = (hole._replace(answered_to=counter + 1),)
    if counter > hole.answered_to:  # the records before it may still come
        answered = (Hole(hole.start, counter, hole.answered_to), Hole(counter, hole.end, counter + 1))
    at = writer.holes.index(hole)
    writer.holes = _bounded((*writer.holes[:at], *answered, *writer.holes[at + 1 :]))
    return True
