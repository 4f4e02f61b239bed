"""The terms of the benchmark: a case has a product run and its raw counterpart, and yields rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

Figures = dict[str, float]
"""Figures of one run by name: `rate`, `caller_us`, `process_us`, `commit_p50_ms`, `bytes_each`, ..."""

WARM_UP_BATCHES: Final = 5
"""Batches that a loop handles before the clock starts: producer ids, metadata and groups cost time only once."""

QUICK_DIVISOR: Final = 5
"""`--quick` runs a fifth of the load."""


class Unwritten(NotImplementedError):
    """The product side of this case does not exist yet."""


@dataclass(frozen=True, slots=True)
class Place:
    """Servers and name of a run."""

    bootstrap: str
    redis_url: str
    name: str
    """Unique letters and digits. Every topic with this in its name is deleted afterwards."""


ROUNDS: Final = 3
"""Runs of each side of a case, unless the case gives another number."""


@dataclass(frozen=True, slots=True)
class Load:
    """The load of a run. The sides of a case differ only in `messages`, where one is much slower.

    The case `crowd` differs in `conversations`: it compares two numbers of them.
    """

    messages: int
    batch: int = 1_000
    body_bytes: int = 100
    header_bytes: int = 96
    """Bytes of the one header, as long as the envelopes of these runs."""
    conversations: int = 1_000

    @property
    def with_warm_up(self) -> int:
        """Messages in the topic of a loop: `messages`, and those handled before the clock starts."""
        return self.messages + WARM_UP_BATCHES * self.batch

    def smaller(self) -> Load:
        """The load of `--quick`, in whole batches."""
        batches = max(1, self.messages // self.batch // QUICK_DIVISOR)
        conversations = max(1_000, self.conversations // QUICK_DIVISOR)
        return replace(self, messages=batches * self.batch, conversations=conversations)


@dataclass(frozen=True, slots=True)
class Run:
    """A measured function, always called in a new process."""

    function: Callable[[Place, Load], Figures]
    load: Load
    prepare: Callable[[Place, Load], Figures] | None = None
    """Fills the function's input, in a process of its own and before the clock starts."""

    def smaller(self) -> Run:
        """The same run with the load of `--quick`."""
        return replace(self, load=self.load.smaller())


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table: the median of one figure. The bound has the same name in `bounds`."""

    name: str
    figure: str
    unit: str


@dataclass(frozen=True, slots=True)
class Case:
    """Runs taken in turn, and the rows that they yield."""

    rows: tuple[Row, ...]
    product: Run
    raw: Run | None = None
    redis: bool = False
    """Whether it needs Redis besides Kafka."""
    rounds: int = ROUNDS
    """Runs of each side; more where they are short and vary, one where they are long."""

    def smaller(self) -> Case:
        """The case of `--quick`."""
        return replace(self, product=self.product.smaller(), raw=self.raw and self.raw.smaller())
