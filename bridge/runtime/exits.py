"""A program that ends without closing its brokers: pending messages are flushed, or logged as lost.

Senders and readers are held by weak references: a collected one is skipped, and a closed one has nothing to do. In a
forked child they are closed already (`bridge.runtime.forks`). `atexit` runs after the program's own threads have ended,
while the daemon threads of Kafka's clients and of konverse still work.
"""

from __future__ import annotations

import atexit
import logging
import time
from typing import Final, Protocol
from weakref import WeakSet

log: Final = logging.getLogger("konverse.sender")

EXIT_S: Final = 10.0
"""Longest wait for Kafka at the end of a program, for all senders and readers together."""


class ExitTask(Protocol):
    """An object that may have unfinished work when the program ends."""

    def at_exit(self, timeout_s: float) -> None:
        """Finish the work within this time, or log what was not finished."""


_OPEN: Final[WeakSet[ExitTask]] = WeakSet()


def leave_at_exit(thing: ExitTask) -> None:
    """Call `thing.at_exit` when the program ends, if the object still exists."""
    _OPEN.add(thing)


@atexit.register
def _leave_all() -> None:
    deadline = time.monotonic() + EXIT_S
    for thing in list(_OPEN):
        try:
            thing.at_exit(max(0.0, deadline - time.monotonic()))
        except Exception:
            log.exception("the program ends, and %r could not finish its pending work", thing)
