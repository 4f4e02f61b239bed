"""Programs that are run, with a deadline each, and the one log file that holds what they printed."""

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
    """Something that should hold does not: exit code 1."""


class CannotRunHere(Exception):
    """What the check needs is not on this machine: exit code 77, or 1 where CI asks for it."""


class CommandFailed(CheckFailed):
    """A program ended with a code other than 0, or did not end in time."""


@dataclass(frozen=True)
class Shell:
    """Runs programs with `environment` added to this process's own, and appends what they print to `log`."""

    log: Path
    environment: Mapping[str, str] = field(default_factory=dict[str, str])

    def variables(self) -> dict[str, str]:
        """The environment that programs get: ours without what belongs to this Python."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        return inherited | dict(self.environment)

    def run(self, command: Sequence[str | Path], *, within_s: float = 60) -> str:
        """Run `command`, wait at most `within_s` seconds for it and return what it printed on standard output."""
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
        """Put into the log what a command has printed."""
        with self.log.open("a", encoding="utf-8") as log:
            log.write(f"\n$ {' '.join(command)}\n{printed}")


def _text(printed: str | bytes | None) -> str:
    return printed.decode(errors="replace") if isinstance(printed, bytes) else printed or ""


def wait_until(condition: Callable[[], bool], *, within_s: float, what: str) -> None:
    """Ask for `condition` until it holds; after `within_s` seconds fail with `what` was waited for."""
    deadline_s = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline_s:
            raise CheckFailed(f"{what}: not within {within_s:.0f} s")
        time.sleep(POLL_INTERVAL_S)
