"""`View`, the result of a view: its rows, and the source of each partition's rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar, overload

from konverse.schemas.counting import counted

Row = TypeVar("Row")


class Source(NamedTuple):
    """The source of one partition's rows."""

    queue: str
    partition: int
    from_redis: bool
    """Read from Redis; False: folded from the logs."""
    reason: str = ""
    """Why Redis was not used; empty when it was, and for views that Redis never holds."""
    unseen: int = 0
    """Offsets at the end of the data log that were not read, because more wait than a view reads (`VIEW_AHEAD_…`)."""


class View(Sequence[Row], Generic[Row]):
    """An immutable sequence of rows, as of the time of the call, and their sources."""

    def __init__(self, rows: list[Row], sources: Sequence[Source] = ()) -> None:
        self._rows = rows
        self.sources = tuple(sources)
        """A `Source` for each partition that was read; empty for a view of the catalog."""

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
        return f"<View of {counted(len(self._rows), 'row')}>"
