"""The processes of a run from outside: a place for each, and who has it now."""

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
        """End it with kill -9; True when that is what ended it."""
        self.process.kill()
        return self.process.wait(END_DEADLINE_S) == -signal.SIGKILL

    def state(self) -> str:
        """The letter that the system has for what it does now: R, S, T ...; empty when it is gone."""
        try:
            return Path(f"/proc/{self.pid}/stat").read_text().rpartition(") ")[2].split()[0]
        except FileNotFoundError:
            return ""

    def lines(self, op: str) -> list[Line]:
        """What it has told of an operation so far."""
        if not self.history.exists():
            return []
        sign = f'"op":"{op}"'.encode()
        return [json.loads(line) for line in self.history.read_bytes().split(b"\n")[:-1] if sign in line]

    def wait_for(self, op: str, count: int = 1, deadline_s: float = START_DEADLINE_S) -> None:
        """Wait until it has told so many lines of an operation."""

        def told() -> bool:
            assert self.alive or len(self.lines(op)) >= count, f"{self.name} has ended:\n{self.errors}"
            return len(self.lines(op)) >= count

        until(told, f"{count} times {op!r} of {self.name}", deadline_s)

    @property
    def errors(self) -> str:
        """The end of what it wrote to its standard error."""
        return self._errors.read_text(errors="replace")[-4_000:]


@dataclass
class Crew:
    """Who works in which place; a place that falls vacant gets a new process with a name of its own."""

    parts: dict[str, Part]
    """By place: the process that is to work there."""
    python_path: str | None = None
    """Where processes find the product, if not where this one does."""
    members: dict[str, Member] = field(default_factory=dict)
    started: int = 0

    def start(self, place: str) -> Member:
        """A new process takes the place."""
        self.started += 1
        part = self.parts[place]
        self.members[place] = Member(replace(part, name=f"{place}.{self.started}"), self.python_path)
        return self.members[place]

    def fill(self) -> None:
        """Start a process in every place."""
        for place in self.parts:
            self.start(place)

    def at_work(self, work: str) -> Iterator[tuple[str, Member]]:
        """Places and processes of a kind that are alive."""
        for place, member in list(self.members.items()):
            if self.parts[place].work == work and member.alive:
                yield place, member

    def hush(self) -> None:
        """Let clients send nothing more, and read on; wait until what they sent has an outcome."""
        clients = [member for _, member in self.at_work("client")]
        for member in clients:
            member.send(signal.SIGUSR2)
        with suppress(AssertionError):  # who cannot says so in the end
            until(lambda: all(member.lines("flush") or not member.alive for member in clients), "a flush", FLUSH_S)

    def ask_what_they_do(self) -> None:
        """Something waits for too long: let every process say what its threads are at."""
        for member in self.members.values():
            if member.alive:
                member.send(signal.SIGQUIT)

    def finish(self) -> list[str]:
        """Let everybody finish and tell what the own folds hold; returns who did not end well, and how."""
        followers = [self.members[place] for place, part in self.parts.items() if part.work == "follower"]
        others = [member for member in self.members.values() if member not in followers]
        return [*self._finish(others), *self._finish(followers)]  # they follow to the end

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
        """End whoever is left."""
        for member in self.members.values():
            if member.alive:
                member.process.kill()
            member.process.wait(END_DEADLINE_S)
