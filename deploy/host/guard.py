"""A small process between an owner and its servers, so that no server outlives its owner by accident.

It is run as a program (`python -I -S guard.py <owner pid> <once|lasting> <path to remove> ...`), uses only the standard
library, and has one thread. The owner writes one JSON object per line to the guard's standard input, and reads one
object back for each:

    {"do": "start", "argv": [...], "env": {...}, "log": path}    ->  {"pid": n} or {"error": text, "errno": n}
    {"do": "release"}    the servers go on without guard and owner   ->  {}   and the guard ends
    {"do": "stop"}       the servers are killed, the paths removed   ->  {}   and the guard ends

If the owner ends before "release", in any way, even by kill -9, the guard does what "stop" does.

Why a process: PR_SET_PDEATHSIG fires when the *thread* that started the child ends, so it is wrong in a program with
several threads; and a pipe that should close with the owner stays open while a forked child of the owner holds it. A
pidfd of the owner has neither fault (where there is none, the owner is polled). The guard itself has one thread, so
with `once` PR_SET_PDEATHSIG is reliable between guard and servers: they end even if the guard is killed with kill -9.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

_PR_SET_PDEATHSIG: Final = 1
_POLL_S: Final = 0.1
_LIBC: Final = ctypes.CDLL(None) if sys.platform == "linux" else None


class Guard:
    """Starts servers for one owner and ends them with it."""

    def __init__(self, owner_pid: int, paths: list[Path], *, lasting: bool) -> None:
        self._owner_pid = owner_pid
        self._paths = paths
        self._lasting = lasting
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self._pending = b""
        self._selector = selectors.DefaultSelector()
        self._running = True
        self._told_to_end = False

    def run(self) -> None:
        """Serve the owner until it sends "release" or "stop", or ends."""
        wake = _pipe_of_signals()
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._note_signal)
        self._selector.register(wake, selectors.EVENT_READ, lambda: self._reap(wake))
        self._selector.register(0, selectors.EVENT_READ, self._read)
        timeout_s = self._watch_owner()
        while self._running:
            for key, _ in self._selector.select(timeout_s):
                key.data()
            owner_is_gone = timeout_s is not None and not _exists(self._owner_pid)
            if owner_is_gone or self._told_to_end:
                self.stop()

    def _note_signal(self, *_: object) -> None:
        self._told_to_end = True  # the loop acts on it, never in the middle of a start

    def _watch_owner(self) -> float | None:
        try:
            descriptor = os.pidfd_open(self._owner_pid)
        except ProcessLookupError:
            self.stop()
            return None
        except (AttributeError, OSError):
            return _POLL_S
        self._selector.register(descriptor, selectors.EVENT_READ, self.stop)
        return None

    def _reap(self, wake: int) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(wake, 512)
        for pid, child in list(self._children.items()):
            if child.poll() is not None:
                del self._children[pid]

    def _read(self) -> None:
        chunk = os.read(0, 65_536)
        if not chunk:  # not the end of the owner: it may have left the guard to another process (`Spawner.leave_guard`)
            self._selector.unregister(0)
            return
        *lines, self._pending = (self._pending + chunk).split(b"\n")
        for line in lines:
            if self._running:
                self._answer(json.loads(line))

    def _answer(self, request: dict[str, Any]) -> None:
        if request["do"] == "start":
            _reply(self._start(request))
            return
        if request["do"] == "stop":
            self.stop()
        self._running = False
        _reply({})

    def _start(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            with Path(request["log"]).open("ab") as log:
                child = subprocess.Popen(
                    request["argv"],
                    env=request["env"],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    preexec_fn=None if self._lasting else _end_with(os.getpid()),  # noqa: PLW1509 - one thread
                )
        except OSError as error:
            return {"error": f"{error.filename}: {error.strerror}", "errno": error.errno}
        self._children[child.pid] = child
        return {"pid": child.pid}

    def stop(self) -> None:
        """Kill the servers, remove the paths, and end. Does nothing after a "release"."""
        if not self._running:
            return
        self._running = False
        for child in self._children.values():
            child.kill()
        for child in self._children.values():
            child.wait()
        self._children.clear()
        for path in self._paths:
            _remove(path)


def _end_with(guard_pid: int) -> Callable[[], None] | None:
    """Return a function to call in a new server: it makes the kernel kill the server when the guard ends."""
    if _LIBC is None:
        return None
    libc = _LIBC

    def ask() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != guard_pid:  # the guard ended before the request
            os._exit(1)

    return ask


def _pipe_of_signals() -> int:
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    return reader


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _remove(path: Path) -> None:
    """Remove a file, or a folder with its contents; then the folder around it, if that is empty."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        path.parent.rmdir()


def _reply(answer: dict[str, Any]) -> None:
    with contextlib.suppress(BrokenPipeError):
        os.write(1, json.dumps(answer).encode() + b"\n")


if __name__ == "__main__":
    os.chdir("/")  # do not keep a folder of the owner in use
    Guard(int(sys.argv[1]), [Path(path) for path in sys.argv[3:]], lasting=sys.argv[2] == "lasting").run()
