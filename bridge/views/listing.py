"""What a view gives: rows, and where they come from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar, overload

Row = TypeVar("Row")


class Source(NamedTuple):
    """Where the rows of one partition come from."""

    queue: str
    partition: int
    from_redis: bool
    """Else folded from the logs."""
    reason: str = ""
    """Why Redis did not do; empty when it did, or does not have this view at all."""
    unseen: int = 0
    """Offsets of the data log that were not read: more than a view takes wait there (`limits.VIEW_AHEAD_…`)."""


class View(Sequence[Row], Generic[Row]):
    """Rows as they stood when the view was asked for, and their sources: a sequence that does not change."""

    def __init__(self, rows: list[Row], sources: Sequence[Source] = ()) -> None:
        self._rows = rows
        self.sources = tuple(sources)
        """A `Source` for each partition that was looked at; empty for a view of the catalog."""

    @overload
    def __getitem__(self, place: int) -> Row: ...

    @overload
    def __getitem__(self, place: slice) -> list[Row]: ...

    def __getitem__(self, place: int | slice) -> Row | list[Row]:
        return self._rows[place]

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows)

    def __repr__(self) -> str:
        return f"<View of {len(self._rows)} rows>"
