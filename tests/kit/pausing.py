"""Pause a process. The kernel stops its threads one by one: on a busy machine, some still run after `os.kill`."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.kit import until

_STOPPED = frozenset("TtZX")
"""States of a thread that does not run: stopped, traced, or ended."""


@contextmanager
def paused(pid: int) -> Iterator[None]:
    """While the block runs, no thread of the process runs."""
    os.kill(pid, signal.SIGSTOP)
    try:
        until(lambda: _states(pid) <= _STOPPED)
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def _states(pid: int) -> set[str]:
    found = set[str]()
    for thread in Path(f"/proc/{pid}/task").iterdir():
        try:
            found.add((thread / "stat").read_text().rpartition(") ")[2][0])
        except (FileNotFoundError, ProcessLookupError):
            continue  # the thread has ended meanwhile
    return found
