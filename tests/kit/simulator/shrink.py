"""Shrinks a failing run: choices become 0, the harmless choice, or are left out, as long as it fails the same way."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator

from .failure import Judge
from .run import simulate


def shrink(seed: int, choices: array[int], go_on: Callable[[], bool], judge: Judge = Judge.ALL) -> array[int]:
    """Smaller choices that still fail the same way. Stops when `go_on` returns False."""
    kind = _kind(seed, choices, judge)
    best = choices
    size = max(1, len(best) // 2)
    while size:
        smaller = None
        for candidate in _candidates(best, size):
            if not go_on():
                return best
            if _kind(seed, candidate, judge) == kind:
                smaller = candidate
                break
        if smaller is None:
            size //= 2
        else:
            best = smaller
    return best


def _candidates(choices: array[int], size: int) -> Iterator[array[int]]:
    for start in reversed(range(0, len(choices), size)):
        part = choices[start : start + size]
        yield choices[:start] + choices[start + size :]
        if any(part):
            yield choices[:start] + array("H", [0] * len(part)) + choices[start + size :]


def _kind(seed: int, choices: array[int], judge: Judge) -> str | None:
    error = simulate(seed, choices, judge=judge).error
    return error and error.partition(":")[0]
