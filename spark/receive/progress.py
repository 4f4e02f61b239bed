"""The progress line of a long job: one line that is rewritten on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Final

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from konverse.routing.routed import Routed
from konverse.schemas.counting import counted

PLAIN_EVERY_S: Final = 10.0
"""Interval between plain lines."""

Shown = Callable[[Routed], object]


@contextmanager
def showing(
    *, progress: Shown | bool, stream: IO[str] | None = None, clock: Callable[[], float] = time.monotonic
) -> Iterator[Shown]:
    """A function to call with the counts so far. It shows them on the stream (by default stderr), or is `progress`."""
    if callable(progress):
        yield progress
        return
    if not progress:
        yield lambda routed: routed
        return
    console = Console(file=stream or sys.stderr)
    began_s = clock()
    if not console.is_terminal:
        yield _Lines(console.file, clock, began_s)
        return
    with Progress(SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(), console=console) as line:
        task = line.add_task("Routing")
        yield lambda routed: line.update(task, description=progress_line(routed, clock() - began_s))


class _Lines:
    def __init__(self, stream: IO[str], clock: Callable[[], float], began_s: float) -> None:
        self._stream = stream
        self._clock = clock
        self._began_s = self._told_s = began_s

    def __call__(self, routed: Routed) -> None:
        now_s = self._clock()
        if now_s - self._told_s >= PLAIN_EVERY_S:
            self._told_s = now_s
            print(progress_line(routed, now_s - self._began_s), file=self._stream, flush=True)


def progress_line(routed: Routed, seconds: float) -> str:
    """The counts as a line of text."""
    counts = {
        "forwarded": routed.forwarded,
        "followed": routed.followed,
        "replied": routed.replied,
        "redirected": routed.redirected,
        "rejected": routed.rejected,
        "ended": routed.ended,
        "failed": routed.failed,
    }
    each = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)
    rate = routed.messages / max(seconds, 0.001)
    return f"Routed {counted(routed.messages, 'message')}, {rate:,.0f}/s: {each or 'none yet'}"
