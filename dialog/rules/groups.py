"""In which order groups are received: the levels of sides, and what waits by level (behaviours 67, 216 to 219).

A side gets its level when it begins. Its owner asks the catalog then, and says so in the COMMIT with which the side
begins; every fold takes it from there, so later DDL changes nothing. Where all sides have the default nothing is said,
and what waits stands in one plain row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from konverse.dialog.state.endpoint import Endpoint
from konverse.dialog.state.partition import indices
from konverse.dialog.state.ready import Ranked
from konverse.schemas.errors import PartitionHalted
from konverse.schemas.levels import DEFAULT_LEVEL, HIGHEST, LOWEST
from konverse.schemas.wire.operations import Move, MoveAway, Prioritize
from konverse.schemas.wire.records import NO_SEQUENCE, Begin

if TYPE_CHECKING:
    from konverse.dialog.state.partition import Partition


# ------------------------------------------------------------------------------------------------ a side gets its level
def rank(state: Partition, endpoint: Endpoint, given: int = NO_SEQUENCE) -> None:
    """A side begins: its owner says its level with the next COMMIT: as `given` with its BEGIN, else by the catalog."""
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
    """From its beginning on the side has this level."""
    endpoint.level = level
    if level != DEFAULT_LEVEL and not isinstance(state.ready, Ranked):
        state.ready = Ranked(state.ready)


def said(state: Partition, begins: list[tuple[bytes, Begin]]) -> list[Prioritize]:
    """The levels of the sides that begin with the next COMMIT, of its own `begins` too; nothing where all are default.

    Of those that live: the COMMIT itself may end some of them.
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
    """PRIORITIZE: the levels of sides that began with this COMMIT. One that has ended in it has none any more."""
    for index, level in zip(operation.endpoints, operation.levels, strict=True):
        endpoint = state.table[index] if 0 <= index < len(state.table) else None
        if endpoint is not None:
            set_level(state, endpoint, level)


def move(state: Partition, operation: Move) -> None:
    """MOVE: the endpoint is received with another group from here on."""
    state.move(_known(state, operation.endpoint), operation.group)


def move_away(state: Partition, operation: MoveAway) -> None:
    """MOVE_AWAY: the endpoint is of a group that lives elsewhere from here on, and goes there as RELOCATE says."""
    state.move_away(_known(state, operation.endpoint), operation.group, operation.to)


def _known(state: Partition, index: int) -> Endpoint:
    endpoint = state.table[index] if 0 <= index < len(state.table) else None
    if endpoint is None:
        raise PartitionHalted(
            f"a commit of {state.identity.data_topic}/{state.identity.partition} moves endpoint {index}, where nobody "
            "lives, to another group: the journal or the data log was changed. Nothing further is done with this "
            "partition"
        )
    return endpoint
