"""Starting a stack so that a failure or an interruption leaves nothing behind."""

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
    """A stack whose servers have never run, or only left data behind. Whoever starts it holds the folder's lock."""

    settings: StackSettings
    home: StackHome
    programs: Programs
    owner_pid: int | None = None
    """Of an ephemeral stack: the process whose end is its end; None: this one."""

    lock: int | None = None
    """The locked descriptor of a lasting stack; None: an ephemeral one."""

    def start(self) -> tuple[StackState, Spawner | None]:
        """Start all servers; return the state, and the spawner that holds an ephemeral stack.

        Ports that were chosen freely and lost to somebody quicker are chosen again.
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
            end_all(processes_of(started), 0)  # they may have been released already
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
    """Start servers of a stack that another process started again, on their ports and data; a failure ends only them.

    Raises `PortTaken` if a stranger has one of the ports by now.
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
    """Leave the servers alone, or to the process that they end with."""
    if state.owner_pid is None:
        spawner.release()
    else:
        spawner.let_go()


def processes_of(state: StackState | None) -> list[ProcessId]:
    """List the processes of a stack, running or not."""
    return [server.process for server in state.servers if server.process] if state else []
