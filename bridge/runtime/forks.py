"""Forked children: the threads of Kafka's clients do not survive a fork, so the parent's connections are dead there.

They are closed in the child without sending anything to Kafka, and raise when they are used. The parent's connections
stay open; the child has to connect again.
"""

from __future__ import annotations

import os
from typing import Final, Protocol
from weakref import WeakSet


class Forkable(Protocol):
    """An object that must not be used in a forked child."""

    def after_fork(self) -> None:
        """Close without I/O. Threads that do not exist in the child may have held the locks: replace these first."""


_KNOWN: Final[WeakSet[Forkable]] = WeakSet()


def close_after_fork(thing: Forkable) -> None:
    """Call `thing.after_fork()` in every child that is forked from now on."""
    _KNOWN.add(thing)


def _in_child() -> None:
    for thing in list(_KNOWN):
        thing.after_fork()


os.register_at_fork(after_in_child=_in_child)
