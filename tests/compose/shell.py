"""Runs programs with deadlines, and keeps their output in one log file."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

SHOWN_LINES: Final = 8
POLL_INTERVAL_S: Final = 0.3


class CheckFailed(Exception):
    """A check does not hold: exit code 1."""


class CannotRunHere(Exception):
    """The machine lacks a requirement of the check: exit code 77, or 1 in CI."""


class CommandFailed(CheckFailed):
    """A program ended with a code other than 0, or not in time."""


@dataclass(frozen=True)
class Shell:
    """Runs programs with `environment` added to this process's own, and appends their output to `log`."""

    log: Path
    environment: Mapping[str, str] = field(default_factory=dict[str, str])

    def variables(self) -> dict[str, str]:
        """The environment of programs: ours without Python's variables."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        return inherited | dict(self.environment)

    def run(self, command: Sequence[str | Path], *, within_s: float = 60) -> str:
        """Run `command` for at most `within_s` seconds and return its standard output. Raises CommandFailed."""
        words = [str(word) for word in command]
        try:
            done = subprocess.run(
                words, input="", capture_output=True, env=self.variables(), text=True, timeout=within_s, check=False
            )
        except subprocess.TimeoutExpired as expired:
            self.note(words, _text(expired.stderr) + _text(expired.stdout))
            raise CommandFailed(f"{words[0]} did not end within {within_s:.0f} s: {' '.join(words)}") from expired
        except FileNotFoundError as missing:
            raise CommandFailed(f"there is no program {words[0]}") from missing
        self.note(words, done.stderr + done.stdout)
        if done.returncode != 0:
            last = (done.stdout + done.stderr).rstrip().splitlines()[-SHOWN_LINES:]
            raise CommandFailed("\n  ".join([f"exit code {done.returncode}: {' '.join(words)}", *last]))
        return done.stdout

    def succeeds(self, command: Sequence[str | Path], *, within_s: float = 60) -> bool:
        """Whether `command` ends with code 0 within `within_s` seconds."""
        try:
            self.run(command, within_s=within_s)
        except CommandFailed:
            return False
        return True

    def note(self, command: Sequence[str], printed: str) -> None:
        """Append a command and its output to the log."""
        with self.log.open("a", encoding="utf-8") as log:
            log.write(f"\n$ {' '.join(command)}\n{printed}")


def _text(printed: str | bytes | None) -> str:
    return printed.decode(errors="replace") if isinstance(printed, bytes) else printed or ""


def wait_until(condition: Callable[[], bool], *, within_s: float, what: str) -> None:
    """Poll `condition` until it holds. After `within_s` seconds raise CheckFailed with `what`."""
    deadline_s = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline_s:
            raise CheckFailed(f"{what}: not within {within_s:.0f} s")
        time.sleep(POLL_INTERVAL_S)
