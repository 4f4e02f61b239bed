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
        self._accepted = False
        """An operator has given up what is gone, with commits that rested on it."""

    def lead(self, data_start: int) -> None:
        """The partition is ours: the data log began there, or what an operator has given up ends behind that."""
        given_up = self._fold.go_on_behind()
        self._accepted = given_up > 0
        self.heard(max(data_start, given_up))

    def heard(self, data_start: int) -> None:
        """The data log begins there. What is gone of it was ingested by us, and nobody could recover without that."""
        self._data_start = max(self._data_start, data_start)
        self._snapshots.needed_from = max(
            self._snapshots.needed_from, min(self._data_start, self._fold.state.ingest_to)
        )

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
        how = "deleted before they were received"
        if self._accepted:
            how = "deleted, or are of no use without what was, and an operator has given them up"
        fold.journal.alarms.append(
            f"LOST: the records {lost.start} to {lost.end - 1} of {fold.head.where} were {how}. The conversations that "
            "live there get an Error, on both sides; so does the home of one that a session began in these records, "
            "when its next message comes. Of what stood alone in them nobody is told: compare both ends. Find out who "
            "deletes"
        )
        return lost
