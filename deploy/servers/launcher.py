"""Starts the servers of a stack, waits until they answer, and finds out why one died."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from konverse.deploy.host.faults import disk_full, free_bytes, last_lines, reports_full_disk
from konverse.deploy.host.folders import StackHome, cache_folder
from konverse.deploy.host.progress import Reporter
from konverse.deploy.host.spawn import Spawner
from konverse.deploy.java.jars import kafka_jars
from konverse.deploy.java.java import find_java
from konverse.schemas.errors import KonverseError, StackError
from konverse.schemas.stack_errors import PortTaken, ServerDied

from .class_archive import jvm_flags, make_archive
from .kafka import KafkaProbe, KafkaProgram
from .redis import RedisProgram, find_redis, redis_answers, redis_launch
from .state import ServerState, StackState

_POLL_S: Final = 0.01
_FULL_BELOW_BYTES: Final = 1024 * 1024
_PORT_TAKEN_TEXTS: Final = ("Address already in use", "BindException", "Could not create server TCP listening socket")


@dataclass(frozen=True)
class Programs:
    """The programs that run the servers; each is located when it is first needed."""

    reporter: Reporter
    cache: Path | None = None

    @cached_property
    def kafka(self) -> KafkaProgram:
        """Java and the jars of the broker; the jars are downloaded if need be."""
        java, cache = find_java(), self.cache or cache_folder()
        return KafkaProgram(java, kafka_jars(java, cache, self.reporter), cache)

    @cached_property
    def redis(self) -> RedisProgram:
        """The Redis or Valkey server."""
        return find_redis()

    def require(self, servers: Iterable[ServerState]) -> None:
        """Look for all programs that these servers need, before anything is started."""
        kinds = {server.kind for server in servers}
        if "redis" in kinds:
            _ = self.redis
        if "kafka" in kinds:
            _ = self.kafka


@dataclass(frozen=True)
class StartingServer:
    """A server that was started and has not answered yet."""

    server: ServerState
    log: Path
    since_byte: int
    ready: Callable[[], bool]


class Launcher:
    """Starts servers of one stack."""

    def __init__(self, home: StackHome, programs: Programs, spawner: Spawner) -> None:
        self._home = home
        self._programs = programs
        self._spawner = spawner

    def start(self, state: StackState, names: Sequence[str]) -> StackState:
        """Start servers and wait until each answers; return the state with their processes.

        The state is saved in the stack's folder after each process, so that none is ever forgotten. Raises `ServerDied`
        with the last lines of the log, `DiskFull`, `PortTaken`, or `StackError` at the deadline.
        """
        starting: list[StartingServer] = []
        with self._programs.reporter.step(f"Starting {', '.join(names)}"):
            for name in names:
                state, started = self._spawn(state, state.server(name))
                starting.append(started)
            give_up = time.monotonic() + state.start_deadline_s
            for started in starting:
                self._wait(started, give_up)
        if any(started.server.kind == "kafka" for started in starting):
            make_archive(self._programs.kafka, self._class_list, self._programs.reporter)
        return state

    def _spawn(self, state: StackState, server: ServerState) -> tuple[StackState, StartingServer]:
        log = self._home.log(server.name)
        since_byte = log.stat().st_size if log.exists() else 0
        ready: Callable[[], bool]
        if server.kind == "kafka":
            program = self._programs.kafka
            nodes = [node for node in state.servers if node.kind == "kafka"]
            flags = jvm_flags(program, self._class_list) if server.name == nodes[0].name else ()
            program.format(server, self._home, state.cluster_id)
            launch = program.launch(server, nodes, self._home, flags, state.broker_settings or {})
            ready = KafkaProbe(server, log, since_byte).ready
        else:
            launch = redis_launch(self._programs.redis, self._home, server.port, aof=state.redis_aof)
            ready = lambda: redis_answers(server.port)  # noqa: E731 - one expression
        state = state.started(server.name, self._spawner.start(launch))
        state.save(self._home.state)
        return state, StartingServer(state.server(server.name), log, since_byte, ready)

    def _wait(self, starting: StartingServer, give_up_s: float) -> None:
        name = starting.server.name
        while True:
            # The process is checked after the answer, which may have come from another program on the same port.
            ready = starting.ready()
            if not starting.server.alive():
                raise _cause_of_death(starting, self._home)
            if ready:
                return
            if time.monotonic() > give_up_s:
                lines = last_lines(starting.log, since_byte=starting.since_byte)
                raise StackError(
                    f"{name} runs but has not answered in time. Its last log lines ({starting.log}):\n{lines}"
                )
            time.sleep(_POLL_S)

    @property
    def _class_list(self) -> Path:
        return self._home.tmp / "classes.list"


def _cause_of_death(starting: StartingServer, home: StackHome) -> KonverseError:
    name, port = starting.server.name, starting.server.port
    lines = last_lines(starting.log, since_byte=starting.since_byte)
    # On a full file system a JVM may die of a memory fault without a message.
    if reports_full_disk(lines) or free_bytes(home.root) < _FULL_BELOW_BYTES:
        return disk_full(home.data(name))
    if any(sign in lines for sign in _PORT_TAKEN_TEXTS):
        return PortTaken(f"{name} found its port {port} (or its controller's) in use. Its last log lines:\n{lines}")
    return ServerDied(f"{name} ended while it was starting. Its last log lines:\n{lines}")
