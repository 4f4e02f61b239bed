"""A commit on its way, and what an owner counts."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from konverse.schemas.journal import Commit

from .view import Show
from .window import Window


@dataclass(slots=True)
class Flight:
    """A commit that the journal has been handed."""

    commit: Commit
    data: bytes
    records: int
    """So many it has in the journal."""
    limits: list[tuple[Window, int]]
    show: Show | None


@dataclass(slots=True)
class Counters:
    """What an owner did, for people and benchmarks."""

    claims: int = 0
    """That counted: 0 or 1."""
    commits: int = 0
    transactions: int = 0
    journal_bytes: int = 0
    commit_waits_ms: deque[float] = field(default_factory=lambda: deque(maxlen=10_000))
    """How long the last commits waited for their acknowledgement; the driver keeps it."""
