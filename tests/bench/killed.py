"""Waiting times after `kill -9` of one of two workers, and after a message that kills its process.

Both use the broker settings of the local stack, which the compose file and the operating page have too.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from konverse.bridge.client.dialog import Dialog
from tests.bench import conversations
from tests.bench.clients import PARTITIONS
from tests.bench.model import Case, Figures, Load, Place, Row, Run

if TYPE_CHECKING:
    from collections.abc import Iterator

DEADLINE_S: Final = 120.0
EVERY_S: Final = 0.05
"""Pause between two messages of each conversation."""
POISON: Final = b"poison"

APP: Final = """
import os, signal, time
import konverse

app = konverse.App("kafka://{bootstrap}", database={database!r})


@app.activate({queue!r}, max_readers={readers})
def handle(transaction):
    for message in transaction:
        if bytes(message.body) == {poison!r}:
            os.kill(os.getpid(), signal.SIGKILL)
        with open({diary!r}, "a") as diary:
            diary.write(f"{{time.time()}} {{os.getpid()}} {{message.dialog.id}}\\n")
"""


class Entry(NamedTuple):
    """A handled message."""

    at: float
    """Seconds since the epoch."""
    process: int
    conversation: str


class Diary:
    """The handlers' log: time, process and conversation of each message."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def entries(self) -> list[Entry]:
        """All complete lines."""
        if not self._path.exists():
            return []
        lines = self._path.read_text("utf-8").splitlines(keepends=True)
        entries = (line.split() for line in lines if line.endswith("\n"))
        return [Entry(float(at), int(process), conversation) for at, process, conversation in entries]

    def until(self, processes: int) -> None:
        """Wait until `processes` processes have handled a message within the last second."""
        deadline = time.monotonic() + DEADLINE_S
        while len(at_work(self.entries(), time.time())) < processes:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{processes} processes do not work after {DEADLINE_S:g} s")
            time.sleep(0.1)

    def all_of(self, conversations: set[str], since: float) -> list[Entry]:
        """All entries, once each conversation has one after `since`, or after the deadline."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            entries = self.entries()
            if conversations <= {one.conversation for one in entries if one.at > since}:
                return entries
            if time.monotonic() > deadline:
                return entries
            time.sleep(0.1)


class Running(NamedTuple):
    """A running `konverse run`."""

    diary: Diary
    process: subprocess.Popen[bytes]
    """The process that starts readers, and starts them again when they have died."""

    @contextmanager
    def without_restarts(self) -> Iterator[None]:
        """Prevent restarts while the block runs: a new process would get the partitions of the dead one."""
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)


@contextmanager
def running(place: Place, readers: int) -> Iterator[Running]:
    """Run `konverse run` with `readers` reader processes."""
    with tempfile.TemporaryDirectory() as folder:
        diary = Path(folder, "diary")
        source = APP.format(
            bootstrap=place.bootstrap,
            database=conversations.database(place),
            queue=conversations.QUEUE,
            readers=readers,
            poison=POISON,
            diary=str(diary),
        )
        Path(folder, "bench_app.py").write_text(textwrap.dedent(source), "utf-8")
        line = [sys.executable, "-c", "from konverse.bridge.cli.main import app; app()"]
        line += ["run", "bench_app:app", "--readers", "processes"]
        process = subprocess.Popen(line, cwd=folder, stderr=subprocess.DEVNULL)  # `konverse run` itself
        try:
            yield Running(Diary(diary), process)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(DEADLINE_S)
            except subprocess.TimeoutExpired:
                process.kill()


@contextmanager
def talking(opened: list[Dialog]) -> Iterator[None]:
    """Send a message on each of these conversations, again and again."""
    over = threading.Event()

    def talk() -> None:
        while not over.wait(EVERY_S):
            for dialog in opened:
                dialog.send(conversations.MESSAGE, b"good")

    thread = threading.Thread(target=talk)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def failover(place: Place, load: Load) -> Figures:
    """Seconds from the `kill -9` of one of two workers to the first message of its partitions in the other one.

    The dead worker is not started again: its successor would be given these partitions.
    """
    with conversations.connect(place) as broker:
        conversations.create(broker)
        opened = conversations.dialogs(broker, load.conversations)
        with running(place, 2) as worker, talking(opened):
            diary = worker.diary
            diary.until(2)
            entries = diary.entries()
            victim = entries[-1].process
            orphans = conversations_of(entries, victim)
            killed_at = time.time()
            survivors = at_work(entries, killed_at) - {victim}
            with worker.without_restarts():
                os.kill(victim, signal.SIGKILL)
                return {"seconds": _went_on(diary, orphans, survivors, killed_at) - killed_at}


def at_work(entries: list[Entry], now: float) -> set[int]:
    """Processes that have handled a message within the last second."""
    return {one.process for one in entries if one.at > now - 1}


def conversations_of(entries: list[Entry], process: int) -> set[str]:
    """Conversations whose last message this process has handled: partitions change hands when a worker joins."""
    latest = {one.conversation: one.process for one in entries}
    return {conversation for conversation, last in latest.items() if last == process}


def taken_over_at(entries: list[Entry], orphans: set[str], survivors: set[int], killed_at: float) -> float | None:
    """When a survivor handled the first message of an orphan after the kill; None if none did.

    Orphans are the conversations of the killed process. The process that replaces it is no survivor.
    """
    found = (one.at for one in entries if one.process in survivors and one.conversation in orphans)
    return min((at for at in found if at > killed_at), default=None)


def _went_on(diary: Diary, orphans: set[str], survivors: set[int], killed_at: float) -> float:
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        at = taken_over_at(diary.entries(), orphans, survivors, killed_at)
        if at is not None:
            return at
        time.sleep(0.02)
    raise TimeoutError(f"no worker that was alive goes on after {DEADLINE_S:g} s")


def poison(place: Place, load: Load) -> Figures:
    """Seconds until the killing message is suspended, and the longest wait of other conversations."""
    with conversations.connect(place) as broker:
        conversations.create(broker)
        opened = conversations.dialogs(broker, load.conversations)
        with running(place, 1) as (diary, _), talking(opened):
            diary.until(1)
            began = time.time()
            (guilty,) = conversations.dialogs(broker, 1)
            guilty.send(conversations.MESSAGE, POISON)
            broker.flush()
            while not any(one.conversation == guilty.id for part in broker.operations.suspended() for one in part):
                if time.time() > began + DEADLINE_S:
                    raise TimeoutError(f"the message is not suspended after {DEADLINE_S:g} s")
                time.sleep(0.1)
            suspended_at = time.time()
            others = {str(dialog.id) for dialog in opened}
            entries = diary.all_of(others, suspended_at)  # the diary is deleted when the processes end
            ended = time.time()
        waits = [longest_wait(entries, one, began, ended) for one in others]
        deaths = len({one.process for one in entries}) - 1
        return {"suspended_s": suspended_at - began, "waited_s": max(waits), "deaths": deaths}


def longest_wait(entries: list[Entry], conversation: str, since: float, until: float) -> float:
    """The longest time between `since` and `until` without a handled message of a conversation."""
    times = sorted(one.at for one in entries if one.conversation == conversation and since < one.at < until)
    return max(later - before for before, later in pairwise([since, *times, until]))


_FEW: Final = Load(messages=1, batch=1, conversations=8 * PARTITIONS)
CASES: Final = (
    Case((Row("failover", "seconds", "s"),), Run(failover, _FEW)),
    Case((Row("poison-kill", "suspended_s", "s"), Row("poison-kill-others", "waited_s", "s")), Run(poison, _FEW)),
)
