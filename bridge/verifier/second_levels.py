"""Priorities in the second fold: a side gets its level with the COMMIT with which it begins, or brings it along."""

from __future__ import annotations

from konverse.schemas.operations import Prioritize

from .second_state import SecondState


def give_levels(state: SecondState, operation: Prioritize) -> None:
    """Sides that began with this COMMIT have these levels; one that it has ended is gone already."""
    for index, level in zip(operation.endpoints, operation.levels, strict=True):
        side = state.table.get(index)
        if side is None:
            continue
        if side.since != state.order or side.generation:
            state.problem(f"I3: a commit gives endpoint {index} a level, and it had begun before")
        state.tally["ranked"] += 1
        side.level = level
