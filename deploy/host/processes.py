"""Processes by pid *and* start time, so that a process which reuses a pid is never taken for a server, or killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_POLL_S: Final = 0.01
_LINUX: Final = sys.platform == "linux"
_ENDED_STATES: Final = frozenset("ZX")


@dataclass(frozen=True)
class ProcessId:
    """One process of this machine."""

    pid: int
    started: str
    """When it started: boot id and clock ticks on Linux, the text of `ps` elsewhere. Only compared, never parsed."""

    @classmethod
    def of(cls, pid: int) -> ProcessId | None:
        """Return the identity of a running process; None if there is none, or only a zombie."""
        started = _started(pid)
        return None if started is None else cls(pid, started)

    def alive(self) -> bool:
        """Return whether this very process still runs."""
        return _started(self.pid) == self.started

    def send(self, number: signal.Signals) -> bool:
        """Send a signal to this process, never to another one that reuses its pid; False if it is gone."""
        try:
            descriptor = _pidfd(self.pid)
            if descriptor is None:
                if not self.alive():
                    return False
                os.kill(self.pid, number)
                return True
            return self._send_by_descriptor(descriptor, number)
        except ProcessLookupError:
            return False

    def _send_by_descriptor(self, descriptor: int, number: signal.Signals) -> bool:
        try:
            if not self.alive():  # after opening: a descriptor always means the same process, a pid may not
                return False
            signal.pidfd_send_signal(descriptor, number)
        finally:
            os.close(descriptor)
        return True

    def memory_bytes(self) -> int | None:
        """Return the resident memory; None if the process is gone."""
        if not self.alive():
            return None
        try:
            if _LINUX:
                pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
                return pages * os.sysconf("SC_PAGE_SIZE")
            return int(_ps(self.pid, "rss=")) * 1024
        except (OSError, ValueError, IndexError):
            return None


def wait_for_end(processes: Iterable[ProcessId], deadline_s: float) -> list[ProcessId]:
    """Wait until all processes have ended or the deadline has passed; return those that still run."""
    give_up = time.monotonic() + deadline_s
    remaining = [process for process in processes if process.alive()]
    while remaining and time.monotonic() < give_up:
        time.sleep(_POLL_S)
        remaining = [process for process in remaining if process.alive()]
    return remaining


def end_all(processes: Iterable[ProcessId], deadline_s: float) -> None:
    """End processes: SIGTERM, then SIGKILL to those that still run after `deadline_s` (0: SIGKILL at once)."""
    processes = list(processes)
    if deadline_s > 0:
        for process in processes:
            process.send(signal.SIGTERM)
        processes = wait_for_end(processes, deadline_s)
    for process in processes:
        process.send(signal.SIGKILL)
    wait_for_end(processes, 5.0)


def _pidfd(pid: int) -> int | None:
    """Open a pidfd of a process; None where there are none (not Linux, an old kernel, a strict sandbox)."""
    try:
        return os.pidfd_open(pid) if _LINUX else None
    except ProcessLookupError:
        raise
    except OSError:
        return None


def _started(pid: int) -> str | None:
    if pid <= 0:
        return None
    if not _LINUX:
        state, _, start = _ps(pid, "stat=,lstart=").strip().partition(" ")
        return start.strip() if state and state[0] not in _ENDED_STATES else None
    try:
        # The second field is the program's name in brackets. It may itself contain spaces and brackets, and ends after
        # 15 bytes, perhaps in the middle of a character.
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None
    # A program with threads shows as a zombie while its last threads still hold its files and ports.
    has_ended = fields[0] in _ENDED_STATES and int(fields[17]) <= 1
    return None if has_ended else f"{boot}:{fields[19]}"


def _ps(pid: int, columns: str) -> str:
    command = ["ps", "-o", columns, "-p", str(pid)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout
