"""Faults for real processes. Each does something, sees that it happened, and says what it was."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from redis import Redis

from konverse.deploy.stack import LocalStack
from tests.kit.shop import until
from tests.kit.workers import Worker

PAUSE_S: Final = (0.5, 9.0)
"""SIGSTOP: from a hiccup to longer than the group's session time-out."""


@dataclass
class Arena:
    """The processes of a run, and what starts new ones."""

    stack: LocalStack
    random: random.Random
    workers: list[Worker]
    senders: list[Worker]
    new_worker: Callable[[], Worker]
    new_sender: Callable[[], Worker]
    effective: dict[str, int] = field(default_factory=dict)
    """Faults that were seen to have an effect, by name."""

    def count(self, name: str) -> None:
        """A fault had its effect."""
        self.effective[name] = self.effective.get(name, 0) + 1


def kill_worker(arena: Arena) -> None:
    """A worker is ended with kill -9; another one takes its place."""
    place = arena.random.randrange(len(arena.workers))
    worker = arena.workers[place]
    worker.send_signal(signal.SIGKILL)
    if worker.wait(10) == -signal.SIGKILL:
        arena.count("worker killed")
    arena.workers[place] = arena.new_worker()


def kill_sender(arena: Arena) -> None:
    """A sender is ended with kill -9; another one sends on dialogs of its own."""
    place = arena.random.randrange(len(arena.senders))
    sender = arena.senders[place]
    if sender.process.poll() is None:
        sender.send_signal(signal.SIGKILL)
        if sender.wait(10) == -signal.SIGKILL:
            arena.count("sender killed")
    arena.senders[place] = arena.new_sender()


def pause_worker(arena: Arena) -> None:
    """SIGSTOP a worker, long enough that others may take its partitions, then let it go on."""
    worker = arena.random.choice(arena.workers)
    if worker.process.poll() is not None:
        return
    worker.send_signal(signal.SIGSTOP)
    until(lambda: _state(worker.process.pid) == "T", "the worker to be stopped", 5)
    time.sleep(arena.random.uniform(*PAUSE_S))
    worker.send_signal(signal.SIGCONT)
    arena.count("worker paused")


def flush_redis(arena: Arena) -> None:
    """FLUSHALL."""
    with Redis.from_url(arena.stack.redis_url) as client:
        client.flushall()
        arena.count("Redis flushed")


def lie_in_redis(arena: Arena) -> None:
    """Overwrite every header and some rows with garbage."""
    with Redis.from_url(arena.stack.redis_url) as client:
        keys = list(client.scan_iter(match="konverse:*", count=1000))
        for key in arena.random.sample(keys, min(50, len(keys))):
            client.delete(key)
            client.set(key, arena.random.randbytes(20))
        if keys:
            arena.count("view garbled")


def kill_broker(arena: Arena) -> None:
    """Kafka is ended with kill -9, and start it again."""
    name = next(name for name in arena.stack.servers if name.startswith("kafka"))
    arena.stack.kill(name)
    arena.count("broker killed")
    time.sleep(arena.random.uniform(0, 2))
    arena.stack.restart(name)


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[0]


NEMESES: Final[dict[str, tuple[Callable[[Arena], None], int]]] = {
    "kill_worker": (kill_worker, 4),
    "kill_sender": (kill_sender, 2),
    "pause_worker": (pause_worker, 2),
    "flush_redis": (flush_redis, 2),
    "lie_in_redis": (lie_in_redis, 1),
    "kill_broker": (kill_broker, 1),
}
"""Name -> fault and weight."""
