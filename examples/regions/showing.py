"""The display of the demonstration: progress bars of shops and services, and below them a picture of the router.

The picture is the one of `konverse router watch`. Without a terminal a line is printed instead, once a second.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from examples.regions.services import ROUTER
from konverse.bridge.cli.router import flow_of, line, picture
from konverse.bridge.router.figures import Figures
from konverse.routing.routed import Routed

LOOK_S: Final = 1.0
"""Interval between reads of the router's figures, which its processes write equally often."""

REFRESHES_PER_S: Final = 8


class Showing:
    """The display, for the time of a `with` block."""

    def __init__(self, console: Console, look: Callable[[], Figures], total: int) -> None:
        """`look` returns the figures of the router; each bar goes up to `total`."""
        self.console = console
        self._look = look
        self._look_at = 0.0
        self._flow = flow_of(None, Figures(0, 0, Routed(), ()))
        self._bars = Progress(
            TextColumn("{task.description:30}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
        )
        names = ("shops: orders sent", "services: orders received", "shops: receipts")
        self._tasks = [self._bars.add_task(name, total=total) for name in names]
        self._live = Live(self, refresh_per_second=REFRESHES_PER_S, console=console)

    def update(self, *counts: int) -> None:
        """Orders sent, orders received and receipts so far."""
        for task, completed in zip(self._tasks, counts, strict=True):
            self._bars.update(task, completed=completed)
        if time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + LOOK_S
        self._flow = flow_of(self._flow.figures, self._look())
        if not self.console.is_terminal:
            self.console.print(line(ROUTER, self._flow), markup=False, highlight=False, soft_wrap=True)

    def __rich__(self) -> Group:
        """The present picture."""
        return Group(self._bars, picture(ROUTER, self._flow, self.console.width))

    def __enter__(self) -> Self:
        self._live.start(refresh=self.console.is_terminal)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()
