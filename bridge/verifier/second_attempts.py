"""Handlers that failed and owners that died, for the second fold (protocol.md section 7.1).

It keeps what was said about each side, by its key; the product keeps numbers by index.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from konverse.schemas.journal import Commit
from konverse.schemas.operations import Attempt, Finish, Resume, Skip, Suspend, Try

from .second_state import SecondState, Side


def owner_changed(state: SecondState, *, clean: bool) -> None:
    """A CLAIM counts. When the owner before gave nothing back, what it had handed out is accused."""
    past = state.past
    if clean:
        return
    past.wary = True
    accused = [state.living[key] for key in past.handed if key in state.living]
    accused = [side for side in accused if side.has_something]
    past.handed = []
    if accused:
        past.accused = [side.key for side in accused]
        if len({side.group or side.key for side in accused}) == 1:
            for side in accused:
                past.failures[side.key] = past.failures.get(side.key, 0) + 1


def acquitted(state: SecondState, commit: Commit) -> None:
    """A COMMIT speaks of groups: they came back. Who received something begins anew."""
    operations, past = commit.operations, state.past
    spoken = {*operations.receive_endpoints, *(sent[0] for sent in operations.sends)}
    spoken |= {end.endpoint for end in operations.ends}
    spoken |= {operation.endpoint for operation in operations.rare if isinstance(operation, Finish)}
    _acquit(state, (state.table[index] for index in spoken if index in state.table))
    for index in operations.receive_endpoints:
        side = state.table.get(index)
        if side is None:
            continue
        if side.key in past.suspended:
            state.problem(f"I7: commit {commit.number} consumes from {side.key[1].hex()}, which is suspended")
        past.failures.pop(side.key, None)
    if commit.release:
        past.handed = []


def _acquit(state: SecondState, sides: Iterable[Side]) -> None:
    gone = {mate.key for side in sides for mate in state.mates(side)}
    past = state.past
    past.handed = [key for key in past.handed if key not in gone]
    past.accused = [key for key in past.accused if key not in gone]


def _attempt(state: SecondState, operation: Attempt) -> None:
    sides = _sides(state, operation.endpoints)
    for side in sides:
        state.past.failures[side.key] = state.past.failures.get(side.key, 0) + 1
    _acquit(state, sides)


def _try(state: SecondState, operation: Try) -> None:
    past = state.past
    past.accused = [key for key in past.accused if key not in past.handed]
    past.handed = [side.key for side in _sides(state, operation.endpoints)]
    if not past.handed:
        past.accused, past.wary = [], False


def _suspend(state: SecondState, operation: Suspend) -> None:
    for side in _sides(state, [operation.endpoint]):
        _acquit(state, [side])
        state.past.suspended.update(dict.fromkeys(mate.key for mate in state.mates(side)))


def _resume(state: SecondState, operation: Resume | Skip) -> None:
    for side in _sides(state, [operation.endpoint]):
        if side.key not in state.past.suspended:
            state.problem(f"I7: {side.key[1].hex()} is resumed, and was not suspended")
        if isinstance(operation, Skip) and side.error is not None:
            side.error = None
        elif isinstance(operation, Skip) and side.has_something:
            dropped = side.heard[len(side.consumed)]
            side.consumed.append((-1, dropped))
            side.skipped.append(dropped.offset)
        for mate in state.mates(side):
            state.past.failures.pop(mate.key, None)
            state.past.suspended.pop(mate.key, None)


def _sides(state: SecondState, indices: Iterable[int]) -> list[Side]:
    sides = []
    for index in indices:
        side = state.table.get(index)
        if side is None:
            state.problem(f"I3: attempts at endpoint {index}, where nobody lives")
        else:
            sides.append(side)
    return sides


DECIDED: Final[dict[type, Callable[[SecondState, Any], None]]] = {
    Attempt: _attempt,
    Try: _try,
    Suspend: _suspend,
    Resume: _resume,
    Skip: _resume,
}
"""What each operation comes to."""
