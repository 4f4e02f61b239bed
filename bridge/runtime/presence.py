"""Tells a supervisor whether a dead worker process was inside a handler: a shared byte outlives the process.

The next owner attributes a death inside a handler to a message, finds that message and finally suspends it. A death
outside of handlers may mean that the process cannot work at all.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import threading
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType

_IN_A_HANDLER = b"\1"
_ELSEWHERE = b"\0"


class PresenceReader:
    """The supervisor's side: makes the file that a worker process inherits."""

    def __init__(self) -> None:
        """Raises OSError when the file cannot be made."""
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  # closed below
        self._file.truncate(mmap.PAGESIZE)

    @property
    def file(self) -> int:
        """The descriptor that the worker process inherits."""
        return self._file.fileno()

    def in_a_handler(self) -> bool:
        """Whether the worker process was last seen inside a handler."""
        return os.pread(self._file.fileno(), 1, 0) == _IN_A_HANDLER

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class Presence:
    """The worker's side: a context manager around each call of a handler, in any thread."""

    def __init__(self, file: int | None) -> None:
        """`file` is the inherited descriptor; None when no supervisor watches."""
        self._shared = None if file is None else mmap.mmap(file, mmap.PAGESIZE)
        self._lock = threading.Lock()
        self._count = 0

    def __enter__(self) -> Self:
        with self._lock:
            self._count += 1
            if self._shared is not None:
                self._shared[0:1] = _IN_A_HANDLER
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Leave the byte set when a handler ends its process, by SystemExit for example: it has not returned."""
        if kind is not None and not issubclass(kind, Exception):
            return
        with self._lock:
            self._count -= 1
            if self._shared is not None and not self._count:
                self._shared[0:1] = _ELSEWHERE
