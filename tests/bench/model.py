"""The words of the benchmark: a case has a product run and its raw counterpart, and gives rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

Figures = dict[str, float]
"""What one run measured, by name: `rate`, `caller_us`, `process_us`, `commit_p50_ms`, `bytes_each`, ..."""

WARM_UP_BATCHES: Final = 5
"""Batches that a loop handles before the clock starts: producer ids, metadata and groups cost once."""

QUICK_DIVISOR: Final = 5
"""`--quick` runs a fifth of the load."""


class Unwritten(NotImplementedError):
    """The product side of a case that nobody has written yet."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a run works."""

    bootstrap: str
    redis_url: str
    name: str
    """Letters and digits that no other run has. Every topic with it in its name is deleted afterwards."""


ROUNDS: Final = 3
"""Runs of each side of a case, at least."""


@dataclass(frozen=True, slots=True)
class Load:
    """What a run carries. The two sides of a case differ at most in `messages`, where one is slower by far."""

    messages: int
    batch: int = 1_000
    body_bytes: int = 100
    header_bytes: int = 96
    """Value of the one header: what an envelope has in these runs."""
    conversations: int = 1_000

    @property
    def with_warm_up(self) -> int:
        """Messages that a loop finds in its topic: `messages`, and what it handles before the clock starts."""
        return self.messages + WARM_UP_BATCHES * self.batch

    def smaller(self) -> Load:
        """The load of `--quick`, in whole batches."""
        batches = max(1, self.messages // self.batch // QUICK_DIVISOR)
        conversations = max(1_000, self.conversations // QUICK_DIVISOR)
        return replace(self, messages=batches * self.batch, conversations=conversations)


@dataclass(frozen=True, slots=True)
class Run:
    """A function that is measured, always in a fresh process."""

    function: Callable[[Place, Load], Figures]
    load: Load
    prepare: Callable[[Place, Load], Figures] | None = None
    """Fills what the function reads, in a fresh process of its own and outside of every clock."""

    def smaller(self) -> Run:
        """The same with the load of `--quick`."""
        return replace(self, load=self.load.smaller())


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: the median of one figure, held against the bound of the same name in `bounds`."""

    name: str
    figure: str
    unit: str


@dataclass(frozen=True, slots=True)
class Case:
    """Runs that are taken in turn, and the rows that come of them."""

    rows: tuple[Row, ...]
    product: Run
    raw: Run | None = None
    redis: bool = False
    """Whether it needs Redis beside Kafka."""
    rounds: int = ROUNDS
    """Runs of each side; more where they are short and vary."""

    def smaller(self) -> Case:
        """The case of `--quick`."""
        return replace(self, product=self.product.smaller(), raw=self.raw and self.raw.smaller())
