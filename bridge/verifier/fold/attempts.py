"""Attempts in the second fold: handlers that failed and owners that died (protocol.md section 7.1).

Handing out a group leaves no record, but its outcome does: a COMMIT that receives, an ATTEMPT, or a TRY. Sides are
named by their keys here; the product names them by index.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from konverse.bridge.verifier.records import Key
from konverse.schemas.counting import counted
from konverse.schemas.limits import ATTEMPTS_MAX
from konverse.schemas.system_messages import END_DIALOG
from konverse.schemas.wire.journal import Commit
from konverse.schemas.wire.operations import (
    Attempt,
    Cleanup,
    Finish,
    GiveBack,
    Move,
    MoveAway,
    Resume,
    SetTimer,
    Skip,
    Suspend,
    Try,
)

from .state import SecondState, Side, without


def owner_changed(state: SecondState, *, clean: bool) -> None:
    """Apply a CLAIM that counts. After an owner that did not release, the sides of its open TRY become suspects."""
    past = state.past
    past.tried = set()
    if clean:
        return
    past.wary = True
    handed = [state.living[key] for key in past.handed if key in state.living]
    accused = [side for side in handed if side.has_something]
    past.handed = []
    if accused:
        keys, alone = [side.key for side in accused], len({side.group for side in handed}) == 1
        past.accused = _accuse(past.accused, keys, alone=alone)
        if alone:
            for side in accused:
                past.failures[side.key] = past.failures.get(side.key, 0) + 1


def _accuse(accused: list[list[Key]], keys: list[Key], *, alone: bool) -> list[list[Key]]:
    """Add an owner's death with its suspects. Suspects delivered alone also explain earlier deaths that accuse them."""
    if alone and {*keys} <= {key for case in accused for key in case}:
        accused = [case for case in accused if not {*case} & {*keys}]
    return [*without(accused, keys), keys]


def careful(state: SecondState, commit: Commit) -> None:
    """Check that a COMMIT receives only from groups that a TRY of its owner has named, once for each TRY.

    This holds while the partition is careful, because an owner did not release it.
    """
    tried = state.past.tried
    if tried is None:
        return
    sides = [side for index in commit.operations.receive_endpoints if (side := state.table.get(index)) is not None]
    for side in sides:
        if side.group not in tried:
            state.problem(f"I7: commit {commit.number} consumes from {side.key[1].hex()}, which no TRY has named")
    tried.difference_update(side.group for side in sides)


def acquitted(state: SecondState, commit: Commit) -> None:
    """Take the groups that a COMMIT names out of the open TRY and off the suspects: their handlers returned.

    A side that receives something has no failed attempts any more.
    """
    operations, past = commit.operations, state.past
    spoken = {*operations.receive_endpoints, *(sent[0] for sent in operations.sends)}
    spoken |= {end.endpoint for end in operations.ends}
    spoken |= {
        operation.endpoint
        for operation in operations.rare
        if isinstance(operation, Finish | SetTimer | Cleanup | Move | MoveAway | GiveBack)
    }
    _acquit(state, (state.table[index] for index in spoken if index in state.table))
    for index in operations.receive_endpoints:
        side = state.table.get(index)
        if side is None:
            continue
        _is_bearable(state, side, f"received from by commit {commit.number}")
        past.failures.pop(side.key, None)
    if commit.release:
        past.handed = []


def _acquit(state: SecondState, sides: Iterable[Side]) -> None:
    gone = {mate.key for side in sides for mate in state.mates(side)}
    past = state.past
    past.handed = [key for key in past.handed if key not in gone]
    past.accused = without(past.accused, gone)


def _attempt(state: SecondState, operation: Attempt) -> None:
    sides = _sides(state, operation.endpoints)
    for side in sides:
        _is_bearable(state, side, "tried")
    for side in sides:
        state.past.failures[side.key] = state.past.failures.get(side.key, 0) + 1
    _acquit(state, sides)


def _try(state: SecondState, operation: Try) -> None:
    past = state.past
    past.accused = without(past.accused, past.handed)
    sides = _sides(state, operation.endpoints)
    past.handed, groups = [side.key for side in sides], {side.group for side in sides}
    if past.tried is not None:
        past.tried |= groups
    for side in sides:
        _is_bearable(state, side, "tried")
    accused = [state.living[key] for case in past.accused for key in case if key in state.living]
    suspects = {side.group for side in accused if side.has_something}
    if suspects & groups and len(groups) > 1:
        named, wrong = counted(len(groups), "group"), counted(len(suspects & groups), "suspect")
        state.problem(f"I7: a TRY names {named}, and {wrong} among them")
    if not past.handed:
        past.accused, past.wary = [], False


def _suspend(state: SecondState, operation: Suspend) -> None:
    for side in _sides(state, [operation.endpoint]):
        failures = _failures(state, side)
        if failures < ATTEMPTS_MAX and not operation.ordered:
            state.problem(f"I7: {side.key[1].hex()} is suspended after only {failures} failures")
        _acquit(state, [side])
        state.past.suspended.update(dict.fromkeys((mate.key for mate in state.mates(side)), operation.reason))


def _resume(state: SecondState, operation: Resume | Skip) -> None:
    for side in _sides(state, [operation.endpoint]):
        if side.key not in state.past.suspended:
            state.problem(f"I7: {side.key[1].hex()} is resumed although it was not suspended")
        if isinstance(operation, Skip):
            _pass_over(side)
        for mate in state.mates(side):
            state.past.failures.pop(mate.key, None)
            state.past.suspended.pop(mate.key, None)


def _pass_over(side: Side) -> None:
    """Drop the next message of a side, unless it is an Error or EndDialog."""
    if side.rang is not None:
        side.rang = None
    elif side.has_something and side.error is None:
        dropped = side.heard[len(side.consumed)]
        if dropped.type != END_DIALOG:
            side.consumed.append((-1, dropped))
            side.skipped.append(dropped.offset)


def _failures(state: SecondState, side: Side) -> int:
    """Failed attempts of a side's group: those of the member that failed most often."""
    return max(state.past.failures.get(mate.key, 0) for mate in state.mates(side))


def _is_bearable(state: SecondState, side: Side, what: str) -> None:
    """Check that nothing is done with a group that is suspended, or that failed so often that it should be."""
    failures = _failures(state, side)
    if side.key in state.past.suspended:
        state.problem(f"I7: {side.key[1].hex()} is {what}, and is suspended")
    elif failures >= ATTEMPTS_MAX:
        state.problem(f"I7: {side.key[1].hex()} is {what}, failed {failures} times and is not suspended")


def _sides(state: SecondState, indices: Iterable[int]) -> list[Side]:
    sides = []
    for index in indices:
        side = state.table.get(index)
        if side is None:
            state.problem(f"I3: attempts at endpoint {index}, which does not exist")
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
"""The rule of each operation about attempts."""
