"""Forked children: the threads of Kafka's clients do not come along, so nothing that the parent connected works there.

It is closed in the child, without a word to Kafka, and says so when it is used. The parent goes on; the child connects.
"""

from __future__ import annotations

import os
from typing import Final, Protocol
from weakref import WeakSet


class Forkable(Protocol):
    """Something that must not be used in a child."""

    def forked(self) -> None:
        """Be closed; locks may have been held by threads that are not here."""


_KNOWN: Final[WeakSet[Forkable]] = WeakSet()


def closed_in_children(thing: Forkable) -> None:
    """Call `thing.forked()` in every child that is forked from now on."""
    _KNOWN.add(thing)


def _in_child() -> None:
    for thing in list(_KNOWN):
        thing.forked()


os.register_at_fork(after_in_child=_in_child)
