"""What the second fold knows of batches: rows that wait, in one list, and all that was ever decided."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from konverse.schemas.batches import Batch
from konverse.schemas.identifiers import Address
from konverse.schemas.limits import QUERY_ENTRIES_MAX
from konverse.schemas.records import Envelope

from .records import LogRecord


class Waits(NamedTuple):
    """A row that waits for a decision; the first five are its name, the first four its attempt's."""

    query: bytes
    begins: bool
    batch: int
    attempt: bytes
    number: int
    judge: Address | None
    """None when it is not known: the attempt was vetoed before."""
    envelope: Envelope
    record: LogRecord


class Taken(NamedTuple):
    """A row that a decision has accepted."""

    query: bytes
    begins: bool
    batch: int
    attempt: bytes
    number: int
    offset: int


Track = tuple[bytes, bool]
"""Query, and whether BEGINs."""


@dataclass(slots=True)
class SecondBatches:
    """What a partition ever knew of batches."""

    waiting: list[Waits] = field(default_factory=list)
    there: set[tuple[bytes, bool, int, bytes, int]] = field(default_factory=set)
    """Names of the rows that wait."""
    settled: dict[Track, int] = field(default_factory=dict)
    """Highest batch that was decided; -1 for none. In the order in which the product met them."""
    asked: set[tuple[bytes, bool, int, bytes]] = field(default_factory=set)
    """Attempts that this partition has vetoed, until the answer."""
    taken: list[Taken] = field(default_factory=list)
    told: list[tuple[bytes, bool, int]] = field(default_factory=list)
    """Query, whether BEGINs, and batch of each decision that was heard."""
    judged: dict[bytes, list[tuple[Batch, bytes]]] = field(default_factory=dict)
    """Decided batches of each query that is judged here, and the writers of their BATCHes."""
    excluded: dict[bytes, dict[bytes, int]] = field(default_factory=dict)
    """Query -> attempts that shall not win, and their batch."""
    missing: int = 0
    """Rows that won and were not here."""

    def meet(self, track: Track) -> int:
        """The highest batch decided; whoever meets a query too many forgets one of which nothing waits."""
        if track not in self.settled:
            if len(self.settled) >= QUERY_ENTRIES_MAX:
                busy = {(row.query, row.begins) for row in self.waiting}
                for known in [known for known in self.settled if known not in busy][:1]:
                    del self.settled[known]
            self.settled[track] = -1
        return self.settled[track]

    def wait(self, row: Waits) -> None:
        """A row waits."""
        self.waiting.append(row)
        self.there.add(row[:5])

    def release(self, rows: Iterable[Waits]) -> None:
        """Rows wait no more."""
        names = {row[:5] for row in rows}
        self.waiting = [row for row in self.waiting if row[:5] not in names]
        self.there -= names
        self.asked -= {name[:4] for name in names}

    def knows(self, query: bytes) -> bool:
        """Whether the query is judged here, or may be from now on."""
        if query not in self.judged and len(self.judged) < QUERY_ENTRIES_MAX:
            self.judged[query] = []
            self.excluded[query] = {}
        return query in self.judged

    def end(self, query: bytes) -> None:
        """The query is judged no more."""
        self.judged.pop(query, None)
        self.excluded.pop(query, None)

    def decided(self, query: bytes) -> int:
        """Number of the highest batch that was decided here."""
        return max((batch.number for batch, _ in self.judged[query]), default=-1)
