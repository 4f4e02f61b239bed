"""Starts servers through the guard (guard.py), from the process that owns them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from konverse.schemas.errors import StackError
from konverse.schemas.stack_errors import ServerDied

from .faults import NO_ROOM, disk_full, filesystem_faults
from .processes import ProcessId

_PROGRAM: Final = Path(__file__).with_name("guard.py")
_END_DEADLINE_S: Final = 15.0
_GUARD_ENDED: Final = "The guard of the stack has ended; the servers of an ephemeral stack end with it."


@dataclass(frozen=True)
class Launch:
    """How to start one server."""

    argv: tuple[str, ...]
    log: Path
    environ: Mapping[str, str]


class Spawner:
    """Starts servers that end with `owner_pid`, unless they are released.

    With `lasting`, `release` lets the servers go on alone; until then they end when the owner does, and `paths` are
    removed. Without `lasting` they always end with the owner, even if the guard itself is killed. The guard holds
    `lock`, a locked descriptor, until it has ended, so that no other process comes between the owner's death and the
    removal. Safe to use from several threads.
    """

    def __init__(
        self,
        paths: Iterable[Path] = (),
        *,
        owner_pid: int | None = None,
        lasting: bool = False,
        lock: int | None = None,
    ) -> None:
        self._lock = threading.Lock()
        mode = "lasting" if lasting else "once"
        owner = os.getpid() if owner_pid is None else owner_pid
        with filesystem_faults(Path(sys.executable)):
            self._guard = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_PROGRAM), str(owner), mode, *map(str, paths)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                pass_fds=() if lock is None else (lock,),
                start_new_session=True,  # Ctrl-C in the terminal is for the owner alone
            )

    def start(self, launch: Launch) -> ProcessId:
        """Start a server. It may not be ready yet, and may end soon."""
        request = {"do": "start", "argv": launch.argv, "env": dict(launch.environ), "log": str(launch.log)}
        answer = self._ask(request)
        if "error" in answer:
            if answer["errno"] in NO_ROOM:
                raise disk_full(launch.log)
            raise StackError(f"{launch.argv[0]} cannot be started: {answer['error']}.")
        pid = int(answer["pid"])
        return ProcessId.of(pid) or ProcessId(pid, "ended")

    def release(self) -> None:
        """Let the servers go on without their owner, and end the guard."""
        self._ask({"do": "release"})
        self._finish()

    def leave_guard(self) -> None:
        """Leave the guard to an owner that is another process. This spawner can start nothing more."""
        for pipe in (self._guard.stdin, self._guard.stdout):
            if pipe is not None:
                pipe.close()
        self._guard.returncode = 0  # another process owns it now, so Popen must not wait for it

    def stop(self) -> None:
        """Kill all servers, remove the paths, and end the guard. Does nothing the second time."""
        if self._guard.poll() is None:
            try:
                self._write({"do": "stop"})
            except OSError:
                self._guard.kill()
        self._finish()

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            try:
                self._write(request)
                assert self._guard.stdout is not None
                line = self._guard.stdout.readline()
            except OSError as error:
                raise ServerDied(_GUARD_ENDED) from error
        if not line:
            raise ServerDied(_GUARD_ENDED)
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _write(self, request: dict[str, Any]) -> None:
        assert self._guard.stdin is not None
        self._guard.stdin.write(json.dumps(request).encode() + b"\n")
        self._guard.stdin.flush()

    def _finish(self) -> None:
        try:
            self._guard.communicate(timeout=_END_DEADLINE_S)
        except subprocess.TimeoutExpired:
            self._guard.kill()
            self._guard.communicate()
