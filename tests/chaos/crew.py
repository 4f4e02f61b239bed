"""The processes of a run from outside: their places, and the current process in each."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Final

from tests.kit.shop import until

from .history import Line
from .process import Part

ROOT: Final = Path(__file__).resolve().parents[2]
END_DEADLINE_S: Final = 90.0
FLUSH_S: Final = 90.0
START_DEADLINE_S: Final = 60.0


class Member:
    """A process at work, or one that has ended."""

    def __init__(self, part: Part, python_path: str | None) -> None:
        self.part = part
        self.name = part.name
        folder = Path(part.folder)
        self.history = folder / f"{part.name}.jsonl"
        self._errors = folder / f"{part.name}.stderr"
        environ = {**os.environ, "PYTHONUNBUFFERED": "1"}
        if python_path is not None:
            environ |= {"PYTHONPATH": python_path, "PYTHONDONTWRITEBYTECODE": "1"}
        with self._errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.chaos.process", json.dumps(asdict(part))],
                cwd=ROOT,
                env=environ,
                stderr=errors,
            )

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self.process.poll() is None

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def kill(self) -> bool:
        """Send SIGKILL; True when that ended the process."""
        self.process.kill()
        return self.process.wait(END_DEADLINE_S) == -signal.SIGKILL

    def state(self) -> str:
        """The process state in /proc: R, S, T ...; empty when it is gone."""
        try:
            return Path(f"/proc/{self.pid}/stat").read_text().rpartition(") ")[2].split()[0]
        except FileNotFoundError:
            return ""

    def lines(self, op: str) -> list[Line]:
        """Its history lines of an operation so far."""
        if not self.history.exists():
            return []
        sign = f'"op":"{op}"'.encode()
        return [json.loads(line) for line in self.history.read_bytes().split(b"\n")[:-1] if sign in line]

    def wait_for(self, op: str, count: int = 1, deadline_s: float = START_DEADLINE_S) -> None:
        """Wait until its history has `count` lines of an operation."""

        def told() -> bool:
            assert self.alive or len(self.lines(op)) >= count, f"{self.name} has ended:\n{self.errors}"
            return len(self.lines(op)) >= count

        until(told, f"{count} times {op!r} of {self.name}", deadline_s)

    @property
    def errors(self) -> str:
        """The end of its standard error."""
        return self._errors.read_text(errors="replace")[-4_000:]


@dataclass
class Crew:
    """The current process in each place. A vacant place gets a new process with a new name."""

    parts: dict[str, Part]
    """Place → part of the processes there."""
    python_path: str | None = None
    """PYTHONPATH of the processes' product, if another one than this process's."""
    members: dict[str, Member] = field(default_factory=dict)
    started: int = 0

    def start(self, place: str) -> Member:
        """Start a new process in the place."""
        self.started += 1
        part = self.parts[place]
        self.members[place] = Member(replace(part, name=f"{place}.{self.started}"), self.python_path)
        return self.members[place]

    def fill(self) -> None:
        """Start a process in every place."""
        for place in self.parts:
            self.start(place)

    def at_work(self, work: str) -> Iterator[tuple[str, Member]]:
        """Places and living processes of a kind of work."""
        for place, member in list(self.members.items()):
            if self.parts[place].work == work and member.alive:
                yield place, member

    def hush(self) -> None:
        """Stop the clients' sending; they keep reading. Wait until everything sent has an outcome."""
        clients = [member for _, member in self.at_work("client")]
        for member in clients:
            member.send(signal.SIGUSR2)
        with suppress(AssertionError):  # a client that cannot flush reports it at the end
            until(lambda: all(member.lines("flush") or not member.alive for member in clients), "a flush", FLUSH_S)

    def ask_what_they_do(self) -> None:
        """Make every process write the stacks of its threads, for a run in which something waits for too long."""
        for member in self.members.values():
            if member.alive:
                member.send(signal.SIGQUIT)

    def finish(self) -> list[str]:
        """Let all processes finish and write their folds. Returns the processes that did not end well, in words."""
        followers = [self.members[place] for place, part in self.parts.items() if part.work == "follower"]
        others = [member for member in self.members.values() if member not in followers]
        return [*self._finish(others), *self._finish(followers)]  # followers follow to the end

    @staticmethod
    def _finish(members: Sequence[Member]) -> list[str]:
        for member in members:
            if member.alive:
                member.send(signal.SIGTERM)
        failed = []
        give_up = time.monotonic() + END_DEADLINE_S
        for member in members:
            try:
                if member.process.wait(max(0.1, give_up - time.monotonic())):
                    failed.append(f"{member.name} ended with {member.process.returncode}: {member.errors[-600:]}")
            except subprocess.TimeoutExpired:
                failed.append(f"{member.name} does not end")
        return failed

    def end(self) -> None:
        """Kill the remaining processes."""
        for member in self.members.values():
            if member.alive:
                member.process.kill()
            member.process.wait(END_DEADLINE_S)
