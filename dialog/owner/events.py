"""Events, effects and phases of an owner; `dialog.owner` shows how the phases follow each other.

A driver feeds events to `Owner.step`, carries out the effects that it returns, and reports each outcome as an event.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from konverse.dialog.fold.journal import JournalRecord
from konverse.dialog.state.recent import RecordColumns
from konverse.schemas.identifiers import Address

from .emitter import Emit
from .view import Show


# ---------------------------------------------------------------------------------------------------------- events
class Recover(NamedTuple):
    """Event: recover and claim the partition. Gives the first offsets of its logs, and their ends."""

    journal_start: int
    journal_end: int
    data_start: int = 0
    snapshots_start: int = 0
    snapshots_end: int = 0
    data_end: int = 0


class Follow(NamedTuple):
    """Event: fold up to the journal's end without a claim. A further Follow continues; `Recover` takes the partition.

    The driver sends either of them only when no read is outstanding.
    """

    bounds: Recover


class SnapshotsRead(NamedTuple):
    """Event: requested records of the snapshot topic, up to `next_offset`."""

    records: list[tuple[int, bytes]]
    """Offset and value."""
    next_offset: int


class SnapshotWritten(NamedTuple):
    """Event: all records of the snapshot are in its topic, from `first_offset` on; None: that is not certain."""

    first_offset: int | None


class JournalRead(NamedTuple):
    """Event: requested records of the journal, up to `next_offset`."""

    records: list[JournalRecord]
    next_offset: int


class DataRead(NamedTuple):
    """Event: records of the data log that were requested, or that the consumer delivered."""

    columns: RecordColumns


class DataGone(NamedTuple):
    """Event: the records that come next in the data log were deleted; the log begins at `data_start`."""

    data_start: int


class SnapshotsHeld(NamedTuple):
    """Event: start and end of the snapshot topic. `newest`: `SnapshotMaker.newest` at the time of the request."""

    newest: int
    start: int
    end: int


class Appended(NamedTuple):
    """Event: outcome of an append to the journal. The offset is None when the outcome is unknown."""

    offset: int | None
    """Offset of the last record."""
    timestamp_ms: int = 0
    together: bool = True
    """Whether the records of the append follow each other directly, in order."""


class Drained(NamedTuple):
    """Event: the producer has delivered everything that was emitted to these destinations, without a failure."""

    addresses: list[Address]


class ProducerReplaced(NamedTuple):
    """Event: the producer of outputs failed and was replaced; `refused` is the destination that refused, if one did."""

    refused: Address | None = None


class OutOfRange(NamedTuple):
    """Event: the log does not hold the requested range."""

    beginning: bool
    """True: the log begins after the start of the range. False: the log ends before the end of the range."""


class ViewLost(NamedTuple):
    """Event: Redis has no header of this view."""


class DataEnd(NamedTuple):
    """Event: end of the data log when it was asked for; None when Kafka did not answer."""

    offset: int | None


class Tick(NamedTuple):
    """Event: time passes."""


# --------------------------------------------------------------------------------------------------------- effects
class ReadJournal(NamedTuple):
    """Effect: read the journal from `start` up to before `end`."""

    start: int
    end: int


class ReadData(NamedTuple):
    """Effect: read the data log from `start` up to before `end`."""

    start: int
    end: int


class ReadSnapshots(NamedTuple):
    """Effect: read the snapshot topic from `start` up to before `end`."""

    start: int
    end: int


class ReadDataEnd(NamedTuple):
    """Effect: find out where the data log ends."""


class AppendSnapshot(NamedTuple):
    """Effect: append these records to the snapshot topic. With `last` the snapshot is complete: report the outcome."""

    records: list[bytes]
    last: bool


class Truncate(NamedTuple):
    """Effect: the records before these offsets may be deleted; the state of this partition does not need them."""

    journal: int
    data: int
    snapshots: int


class Append(NamedTuple):
    """Effect: append these records to the journal, one after the other. One Append is outstanding at a time."""

    records: list[bytes]


class Leading(NamedTuple):
    """Effect: this owner leads the partition. Feed data from `data_from` on."""

    data_from: int


class Feed(NamedTuple):
    """Effect: feed data from the fold's `data_to` on, whatever was fed before."""


class Stopped(NamedTuple):
    """Effect: this owner does not own the partition any more; `clean` when it gave the partition back."""

    reason: str
    clean: bool = False
    fenced: bool = False
    """Whether another process claimed the partition."""


class Halted(NamedTuple):
    """Effect: the logs contradict each other. Raise an alarm and write nothing."""

    reason: str
    mistake: Exception | None = None
    """The exception, when konverse is at fault and not the log."""


Effect = (
    ReadJournal
    | ReadData
    | ReadSnapshots
    | ReadDataEnd
    | Append
    | AppendSnapshot
    | Truncate
    | Emit
    | Show
    | Leading
    | Feed
    | Stopped
    | Halted
)


class Phase(Enum):
    """Phase of an owner; the head of `dialog.owner` has the picture and PHASE_TRANSITIONS every change."""

    FOLLOWING = "following"
    RECOVERING = "recovering"
    CLAIMING = "claiming"
    READING_BACK = "reading back"
    LEADING = "leading"
    STOPPED = "stopped"
    HALTED = "halted"


class PhaseEvent(Enum):
    """An event that changes the phase of an owner."""

    FOLLOW = "the driver wants it to follow the journal without claiming the partition"
    RECOVER = "the driver wants it to recover the partition and claim it"
    FOLDED = "the journal is read to its end, and the CLAIM goes out"
    CLAIMED = "Kafka has acknowledged the CLAIM"
    LED = "the CLAIM is read back and counts"
    STOP = "it was overtaken, gave the partition back, or does not know an outcome"
    HALT = "the logs contradict each other, or konverse has a bug"


_AT_WORK: Final = [phase for phase in Phase if phase not in (Phase.STOPPED, Phase.HALTED)]

PHASE_TRANSITIONS: Final[dict[tuple[Phase, PhaseEvent], Phase]] = {
    (Phase.RECOVERING, PhaseEvent.FOLLOW): Phase.FOLLOWING,
    (Phase.FOLLOWING, PhaseEvent.FOLLOW): Phase.FOLLOWING,
    (Phase.RECOVERING, PhaseEvent.RECOVER): Phase.RECOVERING,
    (Phase.FOLLOWING, PhaseEvent.RECOVER): Phase.RECOVERING,
    (Phase.RECOVERING, PhaseEvent.FOLDED): Phase.CLAIMING,
    (Phase.CLAIMING, PhaseEvent.CLAIMED): Phase.READING_BACK,
    (Phase.READING_BACK, PhaseEvent.LED): Phase.LEADING,
    **{(phase, PhaseEvent.STOP): Phase.STOPPED for phase in _AT_WORK},
    **{(phase, PhaseEvent.HALT): Phase.HALTED for phase in _AT_WORK},
}
"""Every change of the phase of an owner."""

LEADING: Final = Phase.LEADING
"""Compared for every transaction. A constant is faster than looking the enum member up."""
