"""Priority levels of endpoints, and conversation groups (behaviours 67, 216 to 219).

A side gets its level when it begins. Its owner looks the level up in the catalog then and records it in the COMMIT with
which the side begins. Every fold takes it from there, so later DDL changes nothing. A COMMIT without levels means the
default level; as long as all sides have that, the ready endpoints are in a plain deque. MOVE and MOVE_AWAY put an
endpoint into another conversation group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from konverse.dialog.state.endpoint import Endpoint
from konverse.dialog.state.partition import indices
from konverse.dialog.state.ready import Ranked
from konverse.schemas.levels import DEFAULT_LEVEL, HIGHEST, LOWEST
from konverse.schemas.wire.operations import Move, MoveAway, Prioritize
from konverse.schemas.wire.records import NO_SEQUENCE, Begin

if TYPE_CHECKING:
    from konverse.dialog.state.partition import Partition


# ------------------------------------------------------------------------------------------------ a side gets its level
def rank(state: Partition, endpoint: Endpoint, given: int = NO_SEQUENCE) -> None:
    """Give a level to a side that begins: `given`, from its BEGIN, if valid, else the catalog's. Only an owner does."""
    if state.judge is None:
        return
    terms = endpoint.terms
    level = given
    if not LOWEST <= given <= HIGHEST:
        level = state.judge.level(terms.contract, terms.service, terms.far_service)
    if level != DEFAULT_LEVEL:
        set_level(state, endpoint, level)
        state.unsaid.append(endpoint)


def set_level(state: Partition, endpoint: Endpoint, level: int) -> None:
    """Set the level of an endpoint."""
    endpoint.level = level
    if level != DEFAULT_LEVEL and not isinstance(state.ready, Ranked):
        state.ready = Ranked(state.ready)


def prioritize_operations(state: Partition, begins: list[tuple[bytes, Begin]]) -> list[Prioritize]:
    """PRIORITIZE for the next COMMIT: levels of sides that begin with it or in its data; none when all are default.

    Sides that are over already are left out; the COMMIT itself may end more of them.
    """
    levels = {endpoint.index: endpoint.level for endpoint in state.unsaid if state.table[endpoint.index] is endpoint}
    state.unsaid = []
    if begins and state.judge is not None:
        for index, (_, begin) in zip(indices(state), begins, strict=False):
            level = state.judge.level(begin.contract, begin.from_service, begin.to_service)
            if level != DEFAULT_LEVEL:
                levels[index] = level
    return [Prioritize([*levels], bytes(levels.values()))] if levels else []


def prioritize(state: Partition, operation: Prioritize) -> None:
    """PRIORITIZE: sets the levels of sides that began with this COMMIT; a side that ended in it is skipped."""
    for index, level in zip(operation.endpoints, operation.levels, strict=True):
        endpoint = state.find(index)
        if endpoint is not None:
            set_level(state, endpoint, level)


def move(state: Partition, operation: Move) -> None:
    """MOVE: the endpoint belongs to another group of this partition from here on."""
    state.move(state.at(operation.endpoint, "moves"), operation.group)


def move_away(state: Partition, operation: MoveAway) -> None:
    """MOVE_AWAY: the endpoint belongs to a group of another partition; a later RELOCATE takes it there."""
    state.move_away(state.at(operation.endpoint, "moves"), operation.group, operation.to)
