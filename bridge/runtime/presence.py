"""Whether a process has died in a handler: a byte that outlives it, for whoever started it.

The journal attributes such a death to what the handler had: the next owner looks for the message, and suspends it in
the end. Another death may mean that the process cannot work at all.
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


class Seen:
    """The side of the process that starts another one, and tells it the file."""

    def __init__(self) -> None:
        """Raises OSError."""
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  # closed below
        self._file.truncate(mmap.PAGESIZE)

    @property
    def file(self) -> int:
        """The descriptor that the other process inherits."""
        return self._file.fileno()

    def in_a_handler(self) -> bool:
        """Whether it was in a handler at last."""
        return os.pread(self._file.fileno(), 1, 0) == _IN_A_HANDLER

    def close(self) -> None:
        """Look no more."""
        self._file.close()


class Presence:
    """The side of the process that has handlers: a context manager around each call of one, in any thread."""

    def __init__(self, file: int | None) -> None:
        """Without a file nobody looks."""
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
        """A handler that ends its process by SystemExit has not come back."""
        if kind is not None and not issubclass(kind, Exception):
            return
        with self._lock:
            self._count -= 1
            if self._shared is not None and not self._count:
                self._shared[0:1] = _ELSEWHERE
