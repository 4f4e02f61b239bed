"""The local stack: Kafka and Redis as plain processes on free ports of the loopback interface.

There are two kinds:

    with LocalStack.start() as stack: ...       ephemeral: a temporary folder; ends with this process, even by kill -9
    LocalStack.up(StackSettings(name="demo"))   lasting: runs until `stop`, or `konverse stack down`
"""

from __future__ import annotations

import shlex
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from konverse.deploy.host.faults import filesystem_faults
from konverse.deploy.host.folders import StackHome
from konverse.deploy.host.locks import locked
from konverse.deploy.host.processes import end_all, wait_for_end
from konverse.deploy.host.progress import Reporter, Silence
from konverse.deploy.host.spawn import Spawner
from konverse.deploy.servers.launcher import Launcher, Programs
from konverse.deploy.servers.state import StackState, load
from konverse.schemas.errors import InvalidSettings, StackError

from .plan import refuse_others
from .settings import StackSettings
from .starting import NewStack, processes_of, start_again
from .status import ServerStatus, status_of

_LOCK_DEADLINE_S: Final = 180.0
_CLEAN_END_DEADLINE_S: Final = 10.0
_HASTY_END_DEADLINE_S: Final = 2.0
"""Used when the data are deleted anyway. One broker needs 0.5 s; the last of three waits in vain for the others."""

_KILL_DEADLINE_S: Final = 5.0


class LocalStack:
    """A stack whose servers run, or did; made by `start`, `up` or `find`.

    Safe to use from several threads. An ephemeral stack belongs to the process that started it: a forked child may use
    its addresses but must not change it.
    """

    def __init__(self, home: StackHome, state: StackState, programs: Programs, spawner: Spawner | None = None) -> None:
        self._home = home
        self._state = state
        self._programs = programs
        self._spawner = spawner
        self._lock = threading.RLock()
        self._has_stopped = False

    @classmethod
    def start(
        cls, settings: StackSettings | None = None, *, reporter: Reporter | None = None, owner_pid: int | None = None
    ) -> LocalStack:
        """Start an ephemeral stack; it ends and its files are removed when `owner_pid` (default: this process) ends.

        Raises a `StackError`; then no process and no file is left. Raises `InvalidSettings`, and changes nothing, if
        the folder belongs to another stack.
        """
        settings = settings or StackSettings()
        if settings.directory is None:
            with filesystem_faults(Path(tempfile.gettempdir())):
                home = StackHome(Path(tempfile.mkdtemp(prefix="konverse-stack-")))
        else:
            home = settings.home()
        programs = Programs(reporter or Silence())
        with _changing(home):
            if load(home.state) is not None:
                raise InvalidSettings(
                    f"{home.root} is the folder of a stack already. Choose another one, or end that stack first with: "
                    f"konverse stack down --directory {shlex.quote(str(home.root))}"
                )
            state, spawner = NewStack(settings, home, programs, owner_pid=owner_pid).start()
        return cls(home, state, programs, spawner)

    @classmethod
    def up(cls, settings: StackSettings, *, reporter: Reporter | None = None) -> tuple[LocalStack, bool]:
        """Start a lasting stack, or the dead servers of an existing one; True: all servers were running already.

        Raises a `StackError`; then everything that this call started has ended, and the data of earlier calls are
        untouched. Raises `InvalidSettings`, and changes nothing, if an existing stack lacks something that the settings
        ask for.
        """
        home = settings.home()
        programs = Programs(reporter or Silence())
        with _changing(home) as lock:
            state = load(home.state)
            if state is None:
                state, _ = NewStack(settings, home, programs, lock=lock).start()
                return cls(home, state, programs), False
            refuse_others(settings, state)
            dead = [server.name for server in state.servers if not server.alive()]
            if dead:
                state = start_again(home, programs, state, dead, lock)
            return cls(home, state, programs), not dead

    @classmethod
    def find(cls, settings: StackSettings) -> LocalStack | None:
        """Return the stack of this name or directory, running or not; None if there is none."""
        home = settings.home()
        state = load(home.state)
        return None if state is None else cls(home, state, Programs(Silence()))

    @classmethod
    def down(cls, settings: StackSettings, *, keep_data: bool = False) -> str | None:
        """End the lasting stack of this name or directory; return its name if its servers had not been ended before.

        Removes its files, except the data if `keep_data`.
        """
        home = settings.home()
        if not home.root.exists():
            return None
        with _changing(home):
            stack = cls.find(settings)
            if stack is None:
                home.remove(keep_data=keep_data)  # the data that an earlier call kept
                return None
            name = stack.name
            stack.stop(keep_data=keep_data)
            return name

    @property
    def name(self) -> str:
        """The name of the stack."""
        return self._state.name

    @property
    def directory(self) -> Path:
        """The folder with its data and logs."""
        return self._home.root

    @property
    def bootstrap(self) -> str:
        """Kafka's addresses as clients take them: "127.0.0.1:23456"; empty if it has no broker."""
        return self._state.bootstrap

    @property
    def redis_url(self) -> str:
        """Redis's address: "redis://127.0.0.1:23457/0"; empty if it has no Redis."""
        return self._state.redis_url

    @property
    def servers(self) -> tuple[str, ...]:
        """The names that `kill`, `restart` and `log` take."""
        return tuple(server.name for server in self._state.servers)

    @property
    def pids(self) -> dict[str, int]:
        """The process of each server that was started; it may have ended since."""
        return {server.name: server.process.pid for server in self._state.servers if server.process}

    def status(self) -> list[ServerStatus]:
        """Look at each server."""
        return [status_of(server, self.log(server.name)) for server in self._state.servers]

    def log(self, server: str) -> Path:
        """Return the log of a server."""
        return self._home.log(self._state.server(server).name)

    def kill(self, server: str) -> None:
        """End a server with SIGKILL and wait until it has ended. Does nothing if it has ended already."""
        with self._lock:
            process = self._state.server(server).process
            if process is None:
                return
            process.send(signal.SIGKILL)
            if wait_for_end([process], _KILL_DEADLINE_S):
                raise StackError(
                    f"{server} (pid {process.pid}) has not ended after SIGKILL: it waits for a disk or a debugger."
                )

    def restart(self, server: str) -> None:
        """Start a server again on its ports and data, and wait until it answers. If it runs, end it cleanly first."""
        with self._lock:
            process = self._state.server(server).process
            if process is not None:
                end_all([process], _CLEAN_END_DEADLINE_S)
            if self._spawner is None:
                self._state = start_again(self._home, self._programs, self._state, [server])
            else:
                self._state = Launcher(self._home, self._programs, self._spawner).start(self._state, [server])

    def stop(self, *, keep_data: bool = False) -> None:
        """End all servers and remove the files, except the data if `keep_data`. Does nothing the second time."""
        with self._lock:
            if self._has_stopped:  # what is in the folder now are kept data, or another stack
                return
            if self._spawner is None:
                end_all(processes_of(self._state), _CLEAN_END_DEADLINE_S if keep_data else _HASTY_END_DEADLINE_S)
            elif keep_data:
                end_all(processes_of(self._state), _CLEAN_END_DEADLINE_S)
                self._spawner.release()
            else:
                self._spawner.stop()  # the data are deleted: no need for a clean end
            self._home.remove(keep_data=keep_data)
            if keep_data:
                self._state.stopped().save(self._home.kept)
            self._has_stopped = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


@contextmanager
def _changing(home: StackHome) -> Iterator[int]:
    """Hold the lock of a stack. If no stack is left afterwards, the lock and the folder are removed."""
    home.refuse_if_foreign()
    with locked(home.lock, deadline_s=_LOCK_DEADLINE_S) as lock:
        try:
            yield lock
        finally:
            home.remove_if_empty()
