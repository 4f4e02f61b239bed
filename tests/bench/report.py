"""Output of the benchmark: a progress line, one table, `build/bench.json`."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Final

import confluent_kafka
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from tests.bench.child import ROOT
from tests.bench.runner import Result

FILE: Final = ROOT / "build" / "bench.json"


class ProgressLine:
    """A live line on a terminal, else a line for each run. Written to standard error, so that `--json` stays clean."""

    def __init__(self, runs: int) -> None:
        self.console = Console(stderr=True)
        self.progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self.console,
            transient=True,
            disable=not self.console.is_terminal,
        )
        self.task = self.progress.add_task("starting the servers", total=runs)
        self.started = -1

    def say(self, what: str) -> None:
        """Announce the next run."""
        self.started += 1
        self.progress.update(self.task, description=what, completed=self.started)
        if not self.console.is_terminal:
            self.console.print(what, highlight=False)

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show the line while the block runs."""
        with self.progress:
            yield


def table(results: Sequence[Result]) -> Table:
    """The results as a table."""
    shown = Table(title="Medians; runs alternate with those of the raw counterpart", caption=machine())
    for name in ("row", "value", "unit", "min to max", "raw", "ratio", "bound", "holds"):
        numeric = name in {"value", "min to max", "raw", "ratio"}
        shown.add_column(name, justify="right" if numeric else "left", no_wrap=True)
    for result in results:
        shown.add_row(
            result.row.name,
            _figure(result.value),
            result.row.unit,
            f"{_figure(min(result.values))} to {_figure(max(result.values))}" if result.values else "",
            _figure(median(result.raw)) if result.raw else "",
            "" if result.ratio is None else f"{result.ratio:,.2f}",
            result.bound.text,
            _verdict(result),
        )
    return shown


def problems(results: Sequence[Result]) -> list[str]:
    """The failed bounds and unmeasured rows, and how to repeat them."""
    return [
        f"{result.row.name}: {result.problem or f'{result.bound.text} does not hold. {result.bound.reason}'}\n"
        f"    {result.command}"
        for result in results
        if not result.holds
    ]


def machine() -> str:
    """The machine and the versions of the measurement."""
    return (
        f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, "
        f"confluent-kafka {confluent_kafka.__version__}, servers and clients on this machine, "
        f"load average {os.getloadavg()[0]:.1f}"
    )


def write(results: Sequence[Result], file: Path = FILE) -> str:
    """Write the file and return its text."""
    text = json.dumps([result.record() for result in results], indent=2)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text + "\n", encoding="utf-8")
    return text


def _figure(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.2f}"


def _verdict(result: Result) -> str:
    if result.value is None:
        return "[red]not measured[/]"
    return "[green]yes[/]" if result.holds else "[red]NO[/]"
