"""What an owner does when it hears that data which it was to ingest next was deleted (protocol.md section 7.7).

Only one whose CLAIM counts can say so. One that was overtaken sees its data truncated as well, by the owner that came
after it; what it says then counts for nothing.
"""

from __future__ import annotations

from konverse.schemas.operations import Lost

from .fold import Fold
from .snapshotting import Snapshotting


class Losing:
    """Where the data log of one owner begins, as far as it has heard."""

    def __init__(self, fold: Fold, snapshots: Snapshotting) -> None:
        self._fold = fold
        self._snapshots = snapshots
        self._data_start = 0

    def heard(self, data_start: int) -> None:
        """The data log begins there."""
        self._data_start = max(self._data_start, data_start)

    @property
    def gone(self) -> bool:
        """Something that was to be read next is not there."""
        return self._data_start > self._fold.data_to

    def lose(self) -> Lost:
        """Ingest what was read, and pass over what is gone; the next commit has to say it, and to begin a snapshot.

        Who recovers from an older snapshot would miss what the commits behind it ingested.
        """
        fold, start = self._fold, self._fold.data_to
        lost = Lost(start, self._data_start)
        fold.ingest_to(start)
        fold.pass_over(lost.end)
        self._snapshots.needed_from = lost.end
        fold.journal.alarms.append(
            f"LOST: the records {lost.start} to {lost.end - 1} of {fold.head.where} were deleted before they were "
            "received; the conversations that live there get an Error, on both sides. Find out who deletes, and "
            "compare both ends of what was open"
        )
        return lost
