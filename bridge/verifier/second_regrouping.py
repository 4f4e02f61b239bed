"""MOVE CONVERSATION in the second fold (protocol.md section 7.2)."""

from __future__ import annotations

from konverse.schemas.operations import Move, MoveAway

from .second_state import SecondState


def regroup(state: SecondState, operation: Move | MoveAway) -> None:
    """A side goes to another group, with all that it has not read."""
    side = state.table.get(operation.endpoint)
    if side is None:
        state.problem(f"I3: a commit moves endpoint {operation.endpoint}, where nobody lives, to another group")
        return
    both = (*state.mates(side), *state.groups.get(operation.group, ()))
    if side.ended or any(mate.key in state.past.suspended for mate in both):
        state.problem(f"I7: {side.key[1].hex()} goes to another group, and has ended or is suspended")
    state.tally["moved to a group"] += 1
    state.tally["moved to a group with unread"] += side.has_something
    mates = state.mates(side)
    mates.remove(side)
    if not mates:
        del state.groups[side.group]
        state.moves.leaving.pop(side.group, None)
    side.group = operation.group
    state.join(side)
    if isinstance(operation, MoveAway):
        state.moves.leaving[side.group] = operation.to
        state.tally["moved to a group elsewhere"] += 1
