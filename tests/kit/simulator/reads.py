"""Reads of an owner's process: the answers to its questions, and the data that it is fed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from konverse.dialog.owner.events import (
    DataGone,
    DataRead,
    OutOfRange,
    ReadData,
    ReadJournal,
    ReadSnapshots,
    SnapshotsRead,
)

from .kafka import Log
from .places import Place, columns, journal_read

if TYPE_CHECKING:
    from .world import World


def answer(world: World, place: Place, question: Any) -> Any:
    """The event that answers an owner's question."""
    log = _LOGS[type(question)](place)
    if question.start < log.start:
        world.sometimes.happened("truncated under a reader")
        return OutOfRange(beginning=True)
    read = world.kafka.read(log, question.start, question.end)
    if isinstance(question, ReadJournal):
        return journal_read(read)
    if isinstance(question, ReadData):
        return DataRead(columns(read, question.start))
    return SnapshotsRead([(r.offset, r.body or b"") for r in read.records], read.next_offset)


def poll(world: World, place: Place, position: int) -> tuple[DataRead | DataGone, int]:
    """A poll of the data consumer: the event, and the consumer's next position. Sometimes records are repeated.

    Sometimes the consumer passes over records. It cannot know what is before its first record.
    """
    start, log = position, place.data
    if start < log.start:
        world.sometimes.happened("truncated under a reader")
        return DataGone(log.start), position
    if start and not world.kafka.calm and world.choices.chance(world.swarm.doubled_reads):
        start = max(log.start, start - 1 - world.choices.choose(start))
        world.sometimes.happened("read twice")
    elif not world.kafka.calm and world.choices.chance(world.swarm.passed_over):
        start += world.choices.choose(log.stable - start)
        world.sometimes.happened("passed over", bool(log.between(position, start)))
    read = world.kafka.read(log, start, log.stable)
    known_from = read.records[0].offset if read.records else start
    return DataRead(columns(read, known_from)), max(position, read.next_offset)


_LOGS: Final[dict[type, Callable[[Place], Log]]] = {
    ReadJournal: lambda place: place.journal,
    ReadData: lambda place: place.data,
    ReadSnapshots: lambda place: place.snapshots,
}
