"""The end of a program that has not closed its brokers: what was sent is delivered first, or its loss is said aloud.

Senders are known here weakly, so that a closed or forgotten one is gone. In a forked child they are closed already
(`bridge.runtime.forks`). `atexit` runs while the client's threads and ours still work, and behind those of the program.
"""

from __future__ import annotations

import atexit
import logging
import time
from typing import Final, Protocol
from weakref import WeakSet

log: Final = logging.getLogger("konverse.sending")

EXIT_S: Final = 10.0
"""The end of a program waits so long for Kafka, all senders together."""


class Leaving(Protocol):
    """Something that may have work left when the program ends."""

    def leave(self, timeout_s: float) -> None:
        """Do it within this time, or say that it was not done."""


_OPEN: Final[WeakSet[Leaving]] = WeakSet()


def leave_at_exit(thing: Leaving) -> None:
    """Call `thing.leave` when the program ends, if it lives then."""
    _OPEN.add(thing)


@atexit.register
def _leave_all() -> None:
    deadline = time.monotonic() + EXIT_S
    for thing in list(_OPEN):
        try:
            thing.leave(max(0.0, deadline - time.monotonic()))
        except Exception:
            log.exception("the program ends, and %r could not be asked for what it has left", thing)
