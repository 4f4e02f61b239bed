"""What Redis would hold of one partition: rows behind the fence of protocol.md section 8. Nothing reads it but checks."""

from __future__ import annotations

from enum import Enum

from konverse.dialog.view import Show


class Written(Enum):
    """What became of a write."""

    DONE = "done"
    REFUSED = "refused"
    """The view says something newer."""
    LOST = "lost"
    """There is no view: everything has to be written again."""


class RedisView:
    """One header and one row per endpoint."""

    def __init__(self) -> None:
        self.header: tuple[int, int] | None = None
        """Claim offset and journal offset of the newest write."""
        self.rows: dict[bytes, tuple[int, bytes]] = {}
        """Field -> journal offset and packed value."""

    def flush(self) -> None:
        """Redis lost everything."""
        self.header = None
        self.rows.clear()

    def apply(self, show: Show) -> Written:
        """Write unless the view says something newer."""
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
