"""Runs cases and judges their rows."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final

from tests.bench.bounds import BOUNDS, Bound
from tests.bench.child import RunFailed, fresh
from tests.bench.model import Case, Figures, Load, Place, Row, Run, Unwritten

PAUSE_S: Final = 1.0
"""Pause between runs. A broker still writes after a run with transactions, and the next run would pay for it."""


@dataclass(slots=True)
class Measured:
    """Figures of a case. The sides ran in turn, so equal indexes form a pair."""

    product: list[Figures] = field(default_factory=list)
    raw: list[Figures] = field(default_factory=list)
    problem: str = ""
    """Why runs are missing."""


@dataclass(frozen=True, slots=True)
class Result:
    """A row with its figures. `value` is None without figures of the product; then no bound holds."""

    row: Row
    bound: Bound
    command: str
    values: tuple[float, ...]
    raw: tuple[float, ...]
    problem: str

    @property
    def value(self) -> float | None:
        """Median of the product's runs."""
        return median(self.values) if self.values and not self.problem else None

    @property
    def ratio(self) -> float | None:
        """Median of the pairs' ratios: a disturbance slows both runs of a pair."""
        pairs = list(zip(self.values, self.raw, strict=False))
        return median(ours / raw for ours, raw in pairs) if pairs and not self.problem else None

    @property
    def holds(self) -> bool:
        """Whether the bound was measured and kept."""
        return self.value is not None and self.bound.holds(self.value, self.ratio)

    def record(self) -> dict[str, Any]:
        """The row's record in `build/bench.json`."""
        return {
            "name": self.row.name,
            "value": self.value,
            "unit": self.row.unit,
            "ratio": self.ratio,
            "bound": self.bound.text,
            "holds": self.holds,
            "command": self.command,
        }


@dataclass(slots=True)
class Runner:
    """Runs every case in turn with its raw counterpart."""

    bootstrap: str
    redis_url: str
    token: str
    """Part of the name of everything that the runs create."""
    say: Callable[[str], None]
    """Called before each run with its description."""
    forget: Callable[[str], None]
    """Called after each run with the name in its topics, to delete them."""
    call: Callable[[Callable[[Place, Load], Figures], Place, Load], Figures] = fresh
    pause_s: float = PAUSE_S
    runs: int = 0

    def measure(self, case: Case) -> Measured:
        """All rounds of a case. A failing side ends the case; for an unwritten product, the raw side still runs."""
        measured = Measured()
        for number in range(1, case.rounds + 1):
            for side, run in (("raw", case.raw), ("product", case.product)):
                if run is None or (side == "product" and measured.problem):
                    continue
                self.say(f"{case.rows[0].name}: {side} {number} of {case.rounds}")
                figures = measured.raw if side == "raw" else measured.product
                try:
                    figures.append(self.run(run))
                except Unwritten:
                    measured.problem = "not written yet"
                except RunFailed as error:
                    measured.problem = str(error)
                    return measured
        return measured

    def run(self, run: Run) -> Figures:
        """Prepare a run, run it, and clean up."""
        self.runs += 1
        place = Place(self.bootstrap, self.redis_url, f"bench{self.token}x{self.runs}x")
        try:
            if run.prepare:
                self.call(run.prepare, place, run.load)
            return self.call(run.function, place, run.load)
        finally:
            self.forget(place.name)
            time.sleep(self.pause_s)


def judge(case: Case, measured: Measured, quick: bool) -> list[Result]:
    """The rows of a case."""
    return [
        Result(
            row,
            BOUNDS[row.name],
            command(row, quick),
            tuple(figures[row.figure] for figures in measured.product),
            tuple(figures[row.figure] for figures in measured.raw),
            measured.problem,
        )
        for row in case.rows
    ]


def command(row: Row, quick: bool) -> str:
    """The command that repeats this row."""
    python = Path(sys.executable)
    here = Path.cwd()
    words: Sequence[str] = (
        str(python.relative_to(here) if python.is_relative_to(here) else python),
        *("-m", "tests.bench", "--only", row.name),
        *(["--quick"] if quick else []),
    )
    return shlex.join(words)
