"""Processes of a demonstration. They report in lines of JSON; the process that started them stops them at its end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from konverse.schemas.errors import StackError

ROOT: Final = Path(__file__).resolve().parents[2]
STOP_S: Final = 20.0
LOOK_S: Final = 0.05


@dataclass
class Child:
    """A process of the demonstration, with its reports and the latest value of each name in them."""

    name: str
    process: subprocess.Popen[str]
    last: dict[str, Any] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)
    thread: threading.Thread | None = None

    @property
    def pid(self) -> int:
        """Process id."""
        return self.process.pid

    @property
    def killed(self) -> bool:
        """Whether it was ended by kill -9."""
        return self.process.returncode == -signal.SIGKILL

    def listen(self) -> None:
        """Read its reports until it ends."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            event = json.loads(line)
            self.events.append(event)
            self.last.update(event)

    def kill(self) -> None:
        """Kill -9, and wait for its last report."""
        os.kill(self.pid, signal.SIGKILL)
        self.process.wait(STOP_S)
        if self.thread is not None:
            self.thread.join(STOP_S)


def start(name: str, module: str, *arguments: str) -> Child:
    """Start a module as a process, and read its reports in a thread."""
    process = subprocess.Popen(
        [sys.executable, "-m", module, *arguments], cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    child = Child(name, process)
    child.thread = threading.Thread(target=child.listen, daemon=True)
    child.thread.start()
    return child


def stop(child: Child) -> None:
    """End a process by SIGTERM, and by SIGKILL if that takes too long."""
    if child.process.poll() is None:
        child.process.send_signal(signal.SIGTERM)
        try:
            child.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            child.process.kill()
    if child.thread is not None:
        child.thread.join(5)


def wait_until(children: Sequence[Child], ready: Callable[[Child], object], patience_s: float) -> None:
    """Return when all are ready. Raises StackError when one has ended, or takes too long."""
    deadline = time.monotonic() + patience_s
    while not all(map(ready, children)):
        dead = next((child for child in children if child.process.poll() is not None), None)
        if dead is not None or time.monotonic() > deadline:
            names = dead.name if dead is not None else ", ".join(child.name for child in children if not ready(child))
            raise StackError(f"{names} did not start; see its output above")
        time.sleep(LOOK_S)
