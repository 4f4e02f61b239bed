"""Conversations with a service that routing finds later: the last queue of some runs is a link queue."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from konverse.bridge.verifier.fold.fold import SecondFold
from konverse.dialog.owner.owner import Owner
from konverse.dialog.state.partition import Partition
from konverse.routing.partitioning import choose_partition
from konverse.schemas.identifiers import Address
from konverse.schemas.wire.records import Begin

from .places import Place

if TYPE_CHECKING:
    from .owning import OwnerProcess
    from .world import World


def actions(process: OwnerProcess, owner: Owner) -> Iterator[Callable[[], None]]:
    """Possible actions: the owner of a link partition looks for routes, or takes those that have just arrived."""
    state = owner.fold.state
    if state.delayed and process.world.choices.chance(process.world.swarm.delaying):
        yield partial(_look, process, owner)


def _look(process: OwnerProcess, owner: Owner) -> None:
    """Some routes are found. Those found before may lead elsewhere by now, or nowhere."""
    choices = process.world.choices
    wanted = [one for one in owner.fold.state.delayed.wanted if choices.choose(2)]
    owner.staging.routing.find({one: partial(_place_in, process.world, _some_queue(process.world)) for one in wanted})


def look_for_all(process: OwnerProcess, owner: Owner) -> None:
    """All routes are found."""
    if owner.fold.state.delayed:
        place = partial(_place_in, process.world, _some_queue(process.world))
        owner.staging.routing.find(dict.fromkeys(owner.fold.state.delayed.wanted, place))


def _some_queue(world: World) -> int:
    return world.choices.choose(world.swarm.queues - 1)


def _place_in(world: World, queue: int, _conversation: bytes, begin: Begin) -> Address:
    places = [place.address for place in world.places if place.queue == queue]
    return places[choose_partition(begin.group, len(places))]


def check_delayed(place: Place, state: Partition, reference: SecondFold) -> Iterator[str]:
    """Check that product and reference keep the same records of the same delayed conversations (I3)."""
    delayed = ((one, state.delayed.of(one)) for one in state.delayed)
    ours = {one.conversation: [record[:3] for record in it.records] for one, it in delayed if it is not None}
    theirs = {
        side.key[1]: [(record.offset, record.header, record.body) for _, record in side.delayed]
        for side in reference.living.values()
        if side.delayed is not None
    }
    if ours != theirs:
        yield f"I3: {place.name}: delayed are {ours}, the reference says {theirs}"
    count = sum(map(len, ours.values()))
    if (state.delayed.count, bool(state.delayed.loose)) != (count, False):
        yield f"I15: {place.name}: {state.delayed.count} records count as delayed, and {count} are"


def check_routed(world: World) -> Iterator[str]:
    """Check that every conversation has found its place, and nothing was handed out in a link queue (L1)."""
    for place in world.places:
        for endpoint in place.shadow.state.delayed:
            yield f"L1: {place.name}: {endpoint} is still delayed"
