"""The random choices of a run: drawn from one seed, recorded, and repeatable from the record."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from random import Random
from typing import TypeVar

Item = TypeVar("Item")


class Choices:
    """The only source of randomness in a run. 0 is always the harmless choice, so records shrink towards zeros."""

    __slots__ = ("_draw", "_recorded", "taken")

    def __init__(self, seed: int, recorded: Sequence[int] | None = None) -> None:
        self._draw = Random(seed).random
        self._recorded = recorded
        self.taken: array[int] = array("H")
        """The choices so far."""

    def choose(self, count: int) -> int:
        """A number from 0 to `count` - 1."""
        if count <= 1:
            return 0
        if self._recorded is None:
            value = int(self._draw() * count)
        else:
            at = len(self.taken)
            value = min(self._recorded[at], count - 1) if at < len(self._recorded) else 0
        self.taken.append(value)
        return value

    def chance(self, permille: int) -> bool:
        """True in `permille` of 1000 cases. Draws nothing when `permille` is 0."""
        return permille > 0 and self.choose(1000) >= 1000 - permille

    def pick(self, items: Sequence[Item]) -> Item:
        """One of `items`."""
        return items[self.choose(len(items))]
