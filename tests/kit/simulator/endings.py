"""Operators end conversations at any time: WITH CLEANUP, or with an Error on both sides."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from konverse.dialog.owner.owner import Owner
from konverse.schemas.identifiers import Role
from konverse.schemas.wire.operations import Cleanup, Fail

from .flushing import Way

if TYPE_CHECKING:
    from .owning import OwnerProcess


def actions(process: OwnerProcess, owner: Owner) -> Iterator[Callable[[], None]]:
    """Possible actions of an operator."""
    world = process.world
    if any(owner.fold.state.sides) and world.choices.chance(world.swarm.cleaning):
        yield lambda: _end_some(process, owner)


def _end_some(process: OwnerProcess, owner: Owner) -> None:
    """End a conversation; those with waiting outputs and those that have moved are more likely."""
    world, state = process.world, owner.fold.state
    choices, live = world.choices, state.live()
    speaking = [one for one in live if one.stream.waiting]
    moved = [one for one in live if one.index in state.moves.arrivals]
    endpoint = choices.pick(choices.pick([live, *filter(None, (speaking, speaking, moved))]))
    if endpoint.role is Role.INITIATOR:
        world.history.calls.end(endpoint.conversation, world.steps, Way.OPERATOR)
    if choices.chance(250):
        owner.trial.order(endpoint, Fail(endpoint.index, -9719, "given up"))
    else:
        world.sometimes.happened("cleaned up by an operator")
        owner.trial.order(endpoint, Cleanup(endpoint.index))
