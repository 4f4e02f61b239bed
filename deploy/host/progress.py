"""The display while the stack downloads and starts: a rich one on a terminal, else plain lines."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import IO, Protocol

Advance = Callable[[str], None]
"""Called with the name of each piece of a step when it is done."""


class Reporter(Protocol):
    """Shows the steps of a long operation."""

    def step(self, text: str, pieces: int | None = None) -> AbstractContextManager[Advance]:
        """Show a step while the block runs; `pieces`, if known, is about how many pieces it has."""
        ...


class Silence:
    """Shows nothing."""

    @contextmanager
    def step(self, text: str, pieces: int | None = None) -> Iterator[Advance]:  # noqa: ARG002 - the protocol's
        """Show nothing."""
        yield lambda _: None


class PlainLines:
    """A line when a step begins, and another one if it took long; for logs and pipes."""

    _WORTH_TELLING_S = 2.0

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    @contextmanager
    def step(self, text: str, pieces: int | None = None) -> Iterator[Advance]:  # noqa: ARG002 - the protocol's
        """Write the step's name, and how long it took if that was long."""
        began_s = time.monotonic()
        print(f"{text} ...", file=self._stream, flush=True)
        yield lambda _: None
        took_s = time.monotonic() - began_s
        if took_s > self._WORTH_TELLING_S:
            print(f"{text}: {took_s:.1f} s", file=self._stream, flush=True)


class Display:
    """A spinner, the time, and a bar if the number of pieces is known; for terminals."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    @contextmanager
    def step(self, text: str, pieces: int | None = None) -> Iterator[Advance]:
        """Show the step until the block ends, then clear it from the screen."""
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = [SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn()]
        done_of_all = "{task.completed:.0f}/{task.total:.0f} {task.fields[piece]}"
        counted = [BarColumn(), TextColumn(done_of_all, markup=False)]  # markup replaces names such as :key:, too
        with Progress(
            *columns, *(counted if pieces else []), console=Console(file=self._stream), transient=True
        ) as progress:
            task = progress.add_task(text, total=pieces, piece="")

            def advance(piece: str) -> None:
                done = progress.tasks[0].completed + 1
                progress.update(task, completed=done, total=max(done, pieces or 0), piece=piece)

            yield advance


def reporter_for(stream: IO[str]) -> Reporter:
    """Choose the display for a stream."""
    return Display(stream) if stream.isatty() else PlainLines(stream)
