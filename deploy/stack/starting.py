"""Starts a stack so that a failure or an interruption leaves nothing behind."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from konverse.deploy.host.faults import require_room
from konverse.deploy.host.folders import StackHome
from konverse.deploy.host.processes import ProcessId, end_all
from konverse.deploy.host.spawn import Spawner
from konverse.deploy.servers.launcher import Launcher, Programs
from konverse.deploy.servers.state import StackState
from konverse.schemas.stack_errors import PortTaken

from .plan import plan
from .settings import StackSettings

_ROOM_BYTES: Final = 64 * 1024 * 1024
_PORT_ATTEMPTS_MAX: Final = 3


@dataclass(frozen=True)
class NewStack:
    """A stack that has never run, or of which only the data are left. Hold the lock of its folder while it starts."""

    settings: StackSettings
    home: StackHome
    programs: Programs
    owner_pid: int | None = None
    """Of an ephemeral stack: the process with which it ends; None: this process."""

    lock: int | None = None
    """Of a lasting stack: the locked descriptor; None: the stack is ephemeral."""

    def start(self) -> tuple[StackState, Spawner | None]:
        """Start all servers; return the state and, for an ephemeral stack of this process, the spawner of its servers.

        If another program takes a freely chosen port first, new ports are chosen.
        """
        asked_for = self.settings.kafka_port is not None or self.settings.redis_port is not None
        for _ in range(0 if asked_for else _PORT_ATTEMPTS_MAX - 1):
            try:
                return self._start()
            except PortTaken:
                continue
        return self._start()

    def _start(self) -> tuple[StackState, Spawner | None]:
        had_data = self.home.has_data()
        spawner = started = None
        try:
            state = replace(plan(self.settings, self.home), owner_pid=self._owner_pid)
            self.programs.require(state.servers)
            self.home.create()
            require_room(self.home.root, _ROOM_BYTES)
            spawner = self._spawner(keep_data=had_data)
            names = [server.name for server in state.servers]
            started = state = Launcher(self.home, self.programs, spawner).start(state, names)
            if self._owner_pid == os.getpid():
                return state, spawner
            _leave(spawner, state)
        except BaseException:
            if spawner is not None:
                spawner.stop()
            end_all(processes_of(started), 0)  # the spawner may have released them already
            self.home.remove(keep_data=had_data)
            raise
        return state, None

    @property
    def _owner_pid(self) -> int | None:
        return None if self.lock is not None else self.owner_pid or os.getpid()

    def _spawner(self, *, keep_data: bool) -> Spawner:
        paths = [*self.home.entries(keep_data=keep_data), self.home.lock]
        return Spawner(paths, owner_pid=self._owner_pid, lasting=self.lock is not None, lock=self.lock)


def start_again(
    home: StackHome, programs: Programs, state: StackState, names: Sequence[str], lock: int | None = None
) -> StackState:
    """Start dead servers of a stack that another process started, on their ports and data. A failure ends only these.

    Raises `PortTaken` if another program has one of the ports.
    """
    servers = [state.server(name) for name in names]
    programs.require(servers)
    home.create()
    spawner = Spawner(owner_pid=state.owner_pid, lasting=state.owner_pid is None, lock=lock)
    try:
        state = Launcher(home, programs, spawner).start(state, names)
        _leave(spawner, state)
    except BaseException:
        spawner.stop()
        raise
    return state


def _leave(spawner: Spawner, state: StackState) -> None:
    """Let the servers of a lasting stack go on alone; leave those of an ephemeral stack to its owner."""
    if state.owner_pid is None:
        spawner.release()
    else:
        spawner.leave_guard()


def processes_of(state: StackState | None) -> list[ProcessId]:
    """List the processes of a stack, running or not."""
    return [server.process for server in state.servers if server.process] if state else []
