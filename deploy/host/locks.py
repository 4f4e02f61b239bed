"""A lock between processes whose file may be removed while it is held."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from konverse.schemas.errors import StackError

from .faults import filesystem_faults
from .folders import make_folder

_POLL_S: Final = 0.05


@contextmanager
def locked(path: Path, *, deadline_s: float, on_wait: Callable[[], None] = lambda: None) -> Iterator[int]:
    """Hold the lock file `path`. The kernel releases the lock when the process ends, however it ends.

    Yields the descriptor: a child that inherits it holds the lock as well, until it ends. The holder may delete the
    file; a process that waits then takes the lock of the new file. Calls `on_wait` once if another process has the
    lock, and raises `StackError` after `deadline_s`.
    """
    give_up = time.monotonic() + deadline_s
    waited = False
    while (descriptor := _try_lock(path)) is None:
        if not waited:
            waited = True
            on_wait()
        if time.monotonic() > give_up:
            raise StackError(
                f"{path} has been locked by another process for {deadline_s:.0f} s. Wait for it or end it."
            )
        time.sleep(_POLL_S)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _try_lock(path: Path) -> int | None:
    make_folder(path.parent)
    with filesystem_faults(path):
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:  # the last holder has just removed the folder
            return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), path.stat()):
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None
