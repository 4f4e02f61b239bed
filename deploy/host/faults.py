"""Faults of the machine as errors of the stack: a full disk, a missing permission; and the last lines of a log."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from konverse.schemas.errors import StackError
from konverse.schemas.stack_errors import DiskFull

NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
NO_ROOM_TEXTS: Final = ("no space left on device", "disk quota exceeded")
_MIB: Final = 1024 * 1024


@contextmanager
def filesystem_faults(path: Path) -> Iterator[None]:
    """Raise an `OSError` of the block as a `DiskFull` or `StackError` that names `path`."""
    try:
        yield
    except OSError as error:
        if error.errno in NO_ROOM:
            raise disk_full(path) from error
        reason = error.strerror or str(error)
        raise StackError(f"{error.filename or path}: {reason}. Choose another folder or correct this one.") from error


def disk_full(path: Path) -> DiskFull:
    """Make the error for a file system without room, with its free bytes."""
    return DiskFull(
        f"No room left for {path}: its file system has {free_bytes(path)} bytes free. "
        "Delete something there, or point XDG_CACHE_HOME, XDG_STATE_HOME or TMPDIR to another file system."
    )


def require_room(path: Path, room_bytes: int) -> None:
    """Raise `DiskFull` unless the file system of `path` has `room_bytes` free; `path` need not exist yet."""
    with filesystem_faults(path):
        free = free_bytes(path)
    if free < room_bytes:
        raise DiskFull(
            f"No room left for {path}: {_mib(room_bytes)} are needed and its file system has {free} bytes "
            f"({_mib(free)}) free. Delete something there, or choose another folder."
        )


def free_bytes(path: Path) -> int:
    """Return the free bytes of the file system where `path` is, or would be."""
    existing = path
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    return shutil.disk_usage(existing).free


def reports_full_disk(text: str) -> bool:
    """Return whether the output of a program complains about a full disk."""
    lowered = text.lower()
    return any(sign in lowered for sign in NO_ROOM_TEXTS)


def last_lines(log: Path, count: int = 12, *, since_byte: int = 0) -> str:
    """Return the last `count` lines of a log after byte `since_byte`, indented; "(empty)" if there are none."""
    try:
        with log.open("rb") as stream:
            stream.seek(since_byte)
            text = stream.read().decode(errors="replace")
    except OSError:
        return "  (no log)"
    lines = text.splitlines()[-count:]
    return "\n".join(f"  {line}" for line in lines) or "  (empty)"


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / _MIB:.0f} MiB"
