"""The view of a partition in Redis: rows guarded by the fence of protocol.md section 8. Only checks read it."""

from __future__ import annotations

from collections import deque
from enum import Enum

from konverse.dialog.owner.view import Show

from .sometimes import Sometimes


class Written(Enum):
    """Result of a write."""

    DONE = "done"
    REFUSED = "refused"
    """The view shows something newer."""
    LOST = "lost"
    """There is no view; the owner must write it whole."""


class RedisView:
    """One header, and one row for each endpoint."""

    def __init__(self) -> None:
        self.header: tuple[int, int] | None = None
        """Claim offset and journal offset of the newest write."""
        self.rows: dict[bytes, tuple[int, bytes]] = {}
        """Field → journal offset and packed value."""

    def flush(self) -> None:
        """Redis lost everything."""
        self.header = None
        self.rows.clear()

    def apply(self, show: Show) -> Written:
        """Write unless the view shows something newer, like `bridge/scripts/show.lua`."""
        fence = (show.claim_offset, show.journal_offset)
        if self.header is not None and fence < self.header:
            return Written.REFUSED
        if not show.whole and (self.header is None or self.header[0] < show.claim_offset):
            return Written.LOST
        self.header = fence
        if show.whole:
            self.rows.clear()
        for field, value in show.rows:
            self.rows[field] = (show.journal_offset, value)
        for field in show.gone:
            self.rows.pop(field, None)
        return Written.DONE


class ViewWriter:
    """An owner's writes on their way to the view, in order."""

    def __init__(self, view: RedisView, sometimes: Sometimes) -> None:
        self.view = view
        self.waiting: deque[Show] = deque()
        self.lost = False
        """The owner must be told to write the whole view."""
        self._sometimes = sometimes

    def write(self) -> None:
        """The next write arrives."""
        written = self.view.apply(self.waiting.popleft())
        self._sometimes.happened("view refused", written is Written.REFUSED)
        self.lost |= written is Written.LOST

    def look(self, claim_offset: int) -> None:
        """Check, as drivers do from time to time, that the header exists and is not a zombie's."""
        self.lost |= self.view.header is None or self.view.header[0] < claim_offset

    def tell(self) -> None:
        """The owner must write the whole view. Waiting writes are stale."""
        self.lost = False
        self.waiting.clear()
        self._sometimes.happened("view lost")

    def drop(self) -> list[tuple[RedisView, Show]]:
        """The owner is gone. Its waiting writes may arrive at any time."""
        late = [(self.view, show) for show in self.waiting]
        self.waiting.clear()
        self.lost = False
        return late
