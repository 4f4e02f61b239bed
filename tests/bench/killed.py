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
from typing import TYPE_CHECKING, Final

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


class Diary:
    """The handlers' log: time, process and conversation of each message."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def entries(self) -> list[tuple[float, int, str]]:
        """All complete lines."""
        if not self._path.exists():
            return []
        lines = self._path.read_text("utf-8").splitlines(keepends=True)
        entries = (line.split() for line in lines if line.endswith("\n"))
        return [(float(at), int(process), conversation) for at, process, conversation in entries]

    def until(self, processes: int) -> None:
        """Wait until `processes` processes have handled a message within the last second."""
        deadline = time.monotonic() + DEADLINE_S
        while len({process for at, process, _ in self.entries() if at > time.time() - 1}) < processes:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{processes} processes do not work after {DEADLINE_S:g} s")
            time.sleep(0.1)


@contextmanager
def running(place: Place, readers: int) -> Iterator[Diary]:
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
            yield Diary(diary)
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
    """Seconds from the `kill -9` of one of two workers to the first message of its partitions in the other one."""
    with conversations.connect(place) as broker:
        conversations.create(broker)
        opened = conversations.dialogs(broker, load.conversations)
        with running(place, 2) as diary, talking(opened):
            diary.until(2)
            entries = diary.entries()
            victim = entries[-1][1]
            latest = {one: process for _, process, one in entries}  # partitions change hands when a worker joins
            orphans = {one for one, process in latest.items() if process == victim}
            killed_at = time.time()
            os.kill(victim, signal.SIGKILL)
            return {"seconds": _first(diary, orphans, victim, killed_at) - killed_at}


def _first(diary: Diary, orphans: set[str], victim: int, killed_at: float) -> float:
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        for at, process, conversation in diary.entries():
            if process != victim and conversation in orphans and at > killed_at:
                return at
        time.sleep(0.02)
    raise TimeoutError(f"nobody goes on after {DEADLINE_S:g} s")


def poison(place: Place, load: Load) -> Figures:
    """Seconds until the killing message is suspended, and the longest wait of other conversations."""
    with conversations.connect(place) as broker:
        conversations.create(broker)
        opened = conversations.dialogs(broker, load.conversations)
        with running(place, 1) as diary, talking(opened):
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
            diary.until(1)
            entries = diary.entries()  # the diary is deleted when the processes end
        others = {dialog.id for dialog in opened}
        waits = [_longest(entries, str(one), began) for one in others]
        deaths = len({process for _, process, _ in entries}) - 1
        return {"suspended_s": suspended_at - began, "waited_s": max(waits), "deaths": deaths}


def _longest(entries: list[tuple[float, int, str]], conversation: str, since: float) -> float:
    """The longest time between two handled messages of a conversation."""
    times = [at for at, _, one in entries if one == conversation and at >= since - 1]
    return max((later - before for before, later in pairwise(times)), default=DEADLINE_S)


_FEW: Final = Load(messages=1, batch=1, conversations=8 * PARTITIONS)
CASES: Final = (
    Case((Row("failover", "seconds", "s"),), Run(failover, _FEW)),
    Case((Row("poison-kill", "suspended_s", "s"), Row("poison-kill-others", "waited_s", "s")), Run(poison, _FEW)),
)
