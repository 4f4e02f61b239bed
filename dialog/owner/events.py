"""What an owner is told and what it asks for. Drivers turn effects into calls and outcomes into events.

Where an owner of a partition stands; `dialog.owner` has the picture.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from konverse.dialog.fold.journal import JournalRecord
from konverse.dialog.state.recent import Columns
from konverse.schemas.identifiers import Address

from .emitter import Emit
from .view import Show


# ---------------------------------------------------------------------------------------------------------- events
class Recover(NamedTuple):
    """Event: start; these are the first offsets of the logs and their ends."""

    journal_start: int
    journal_end: int
    data_start: int = 0
    snapshots_start: int = 0
    snapshots_end: int = 0
    data_end: int = 0


class Follow(NamedTuple):
    """Event: fold up to the journal's end and claim nothing. Told again it goes on; `Recover` takes the partition.

    Both come when nothing that was asked for is still to be read.
    """

    bounds: Recover


class SnapshotsRead(NamedTuple):
    """Event: records of the snapshot topic, as asked for, up to `next_offset`."""

    records: list[tuple[int, bytes]]
    """Offset and value."""
    next_offset: int


class SnapshotWritten(NamedTuple):
    """Event: all records of the snapshot are in its topic, the first of them at `first_offset`; None: perhaps not."""

    first_offset: int | None


class JournalRead(NamedTuple):
    """Event: records of the journal, as asked for, up to `next_offset`."""

    records: list[JournalRecord]
    next_offset: int


class DataRead(NamedTuple):
    """Event: records of the data log, as asked for, or as a consumer hands them out."""

    columns: Columns


class DataGone(NamedTuple):
    """Event: what comes next in the data log is no longer there; it begins here now."""

    data_start: int


class Appended(NamedTuple):
    """Event: outcome of the append; offset None means unknown."""

    offset: int | None
    """Of the last record."""
    timestamp_ms: int = 0
    together: bool = True
    """The others, if there are any, stand directly before it, in order."""


class Drained(NamedTuple):
    """Event: the producer had everything that was emitted to these, ran empty and reported no failure."""

    addresses: list[Address]


class ProducerReplaced(NamedTuple):
    """Event: the producer of outputs failed and a new one stands ready; `refused` is who refused, if anyone."""

    refused: Address | None = None


class OutOfRange(NamedTuple):
    """Event: what was asked for is no longer in the log."""

    beginning: bool
    """The log begins later now; else it ends before that."""


class ViewLost(NamedTuple):
    """Event: the view has no header of ours."""


class DataEnd(NamedTuple):
    """Event: the data log ended here when this was asked; None when nobody answers."""

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
    """Effect: ask where the data log ends now."""


class AppendSnapshot(NamedTuple):
    """Effect: append these records to the snapshot topic; with `last` the snapshot is whole, and its fate is wanted."""

    records: list[bytes]
    last: bool


class Truncate(NamedTuple):
    """Effect: nobody needs what stands before these offsets, as far as this partition's state is concerned."""

    journal: int
    data: int
    snapshots: int


class Append(NamedTuple):
    """Effect: append these records to the journal, one after the other; exactly one effect at a time."""

    records: list[bytes]


class Leading(NamedTuple):
    """Effect: the partition is ours; feed data from here on."""

    data_from: int


class Feed(NamedTuple):
    """Effect: feed data from the fold's `data_to` on, whatever was fed before."""


class Stopped(NamedTuple):
    """Effect: the partition is not ours (any more); `clean` when it was given back."""

    reason: str
    clean: bool = False
    fenced: bool = False
    """Another process claimed the partition."""


class Halted(NamedTuple):
    """Effect: the log contradicts itself; raise the alarm and touch nothing."""

    reason: str
    mistake: Exception | None = None
    """It is not the log but konverse that is wrong."""


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
    """Where an owner stands."""

    FOLLOWING = "following"
    RECOVERING = "recovering"
    CLAIMING = "claiming"
    READING_BACK = "reading back"
    LEADING = "leading"
    STOPPED = "stopped"
    HALTED = "halted"


LEADING: Final = Phase.LEADING
"""For what is asked of every transaction: looking the member up takes longer than comparing it."""
