"""Priorities: the levels of sides, and the order in which groups must be handed out (I21)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from konverse.dialog.owner.owner import Owner
from konverse.dialog.state.endpoint import Endpoint
from konverse.dialog.transaction.transaction import Transaction
from konverse.schemas.levels import DEFAULT_LEVEL, HIGHEST, LOWEST

from .altering import may_follow

if TYPE_CHECKING:
    from .owning import OwnerProcess
    from .world import World

LEVELS: Final = (HIGHEST, LOWEST, 7)


def some_level(world: World) -> int:
    """Level of a side that begins. It varies as if the catalog were altered all the time."""
    ranked = world.lively and world.choices.chance(world.swarm.priorities)
    return world.choices.pick(LEVELS) if ranked else DEFAULT_LEVEL


def _free(owner: Owner) -> list[Endpoint]:
    return [one for one in owner.fold.state.live() if one.waits and not one.held]


def take(process: OwnerProcess, owner: Owner) -> Transaction | None:
    """The next group. Unless the owner is careful, no free group that stays here may have a higher level.

    A group that stepped back rests a moment before it is received; other groups may move conversations meanwhile.
    """
    place, happened = process.place, process.world.sometimes.happened
    rest = [member for _, one in owner.trial._stepped_back for member in one.members]
    free = _free(owner)

    def commit(owner: Owner) -> None:
        process.commit(owner)
        free[:] = _free(owner)  # and groups freed by the commit

    found = process.handing_out.next_group(commit)
    if found is None:
        return None
    _, transaction = found
    ours = transaction.conversations
    levels = {one.level for one in free if one in ours or not (one in rest or one.held or may_follow(owner, one))}
    taken = [member.level for member in transaction.members]
    if taken != sorted(taken, reverse=True):
        place.fail(f"I21: {place.name}: conversations of levels {taken} are received in this order")
    if not owner.trial.careful and taken[0] < max(levels):
        place.fail(f"I21: {place.name}: a group of level {taken[0]} is received before one of {max(levels)}")
    happened("higher level first", len(levels) > 1)
    happened("levels in a group", len({*taken}) > 1)
    return transaction
