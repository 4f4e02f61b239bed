"""Conversation groups and priority levels in the second fold (protocol.md sections 7.2 and 7.10)."""

from __future__ import annotations

from konverse.schemas.wire.operations import Move, MoveAway, Prioritize

from .state import SecondState


def regroup(state: SecondState, operation: Move | MoveAway) -> None:
    """MOVE or MOVE_AWAY: put a side into another group, with all messages that it has not received."""
    side = state.table.get(operation.endpoint)
    if side is None:
        state.problem(f"I3: a commit moves endpoint {operation.endpoint}, which does not exist, to another group")
        return
    both = (*state.mates(side), *state.groups.get(operation.group, ()))
    if side.ended or any(mate.key in state.past.suspended for mate in both):
        state.problem(f"I7: {side.key[1].hex()} goes to another group although it has ended or is suspended")
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


def give_levels(state: SecondState, operation: Prioritize) -> None:
    """PRIORITIZE: give levels to sides that began with this COMMIT; one that it has also ended is gone already."""
    for index, level in zip(operation.endpoints, operation.levels, strict=True):
        side = state.table.get(index)
        if side is None:
            continue
        if side.since != state.order or side.generation:
            state.problem(f"I3: a commit gives endpoint {index} a level, and it had begun before")
        state.tally["ranked"] += 1
        side.level = level
