"""Breadth-first search of all states of a small world. The path to the first violation is a shortest one."""

from __future__ import annotations

import time
from array import array
from dataclasses import dataclass, field
from typing import Final

from .journal import Broken, Journal
from .model import Model, Scope, State
from .worker import Product

PLACES_MAX: Final = 256
"""A move is stored as one number: its kind x PLACES_MAX + its index."""


@dataclass(slots=True)
class Found:
    """Result of a search."""

    scope: Scope
    states: int = 0
    transitions: int = 0
    journals: int = 0
    """Number of different journals."""
    records_max: int = 0
    """Longest journal."""
    commits_max: int = 0
    """Most COMMITs that count in one journal."""
    moves_max: int = 0
    """Moves on a shortest path to the farthest state."""
    seconds: float = 0.0
    violation: str | None = None
    path: list[str] = field(default_factory=list)
    """The moves to the violation, in words."""


class Search:
    """All reachable states of a model, with a path to each."""

    def __init__(self, scope: Scope, product: Product) -> None:
        self.model = Model(scope, product)
        self.found = Found(scope)
        self._states: list[State] = [self.model.first]
        self._from = array("l", [0])
        self._by = array("l", [0])

    def run(self) -> Found:
        """Visit everything, or stop at the first violation."""
        began = time.monotonic()
        model, states, found = self.model, self._states, self.found
        seen, journals = {model.first}, {model.first[0]}
        index = 0
        while index < len(states) and found.violation is None:
            state = states[index]
            for kind, place in model.moves(state):
                found.transitions += 1
                try:
                    following = model.after(state, (kind, place))
                    if following in seen:
                        continue
                    if following[0] not in journals:
                        model.rescue(following[0])
                        journals.add(following[0])
                except Broken as error:
                    found.violation = str(error)
                    found.path = [*self._way(index), model.words(state, (kind, place))]
                    break
                seen.add(following)
                states.append(following)
                self._from.append(index)
                self._by.append(kind * PLACES_MAX + place)
            index += 1
        self._count(journals)
        found.seconds = time.monotonic() - began
        return found

    def _way(self, index: int) -> list[str]:
        """The moves to a state, in words."""
        words: list[str] = []
        while index:
            index, by = self._from[index], self._by[index]
            words.append(self.model.words(self._states[index], divmod(by, PLACES_MAX)))
        return words[::-1]

    def _count(self, journals: set[Journal]) -> None:
        found = self.found
        found.states = len(self._states)
        found.journals = len(journals)
        found.records_max = max(journal.length for journal in journals)
        found.commits_max = max(len(journal.commits) for journal in journals)
        found.moves_max = len(self._way(len(self._states) - 1))


def search(scope: Scope, product: Product | None = None) -> Found:
    """Visit every state of a world of that size, or stop at the first violation."""
    return Search(scope, product or Product()).run()
