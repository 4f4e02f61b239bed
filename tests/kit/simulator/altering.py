"""ALTER SERVICE on another queue: an administrator says so, and each owner notices when it does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from konverse.dialog.owner.owner import Owner
from konverse.dialog.state.endpoint import Endpoint
from konverse.dialog.transaction.transaction import Transaction
from konverse.routing.partitioning import choose_partition
from konverse.schemas.identifiers import Address

from .places import Place

if TYPE_CHECKING:
    from .owning import OwnerProcess
    from .world import World

SERVICES = ("near", "far")


def actions(process: OwnerProcess, owner: Owner) -> Iterator[Callable[[], None]]:
    """What an administrator could do while this process runs, and the process about it."""
    world, rate = process.world, process.world.swarm.altering
    if rate and world.swarm.queues > 1 and world.choices.chance(rate):
        yield lambda: _alter(world)
    if world.history.altered and world.choices.chance(100):
        yield lambda: look(process, owner)


def _alter(world: World) -> None:
    """A service goes to some queue, or back to where it was, or stays."""
    world.history.altered[world.choices.pick(SERVICES)] = world.choices.choose(world.swarm.queues)
    world.sometimes.happened("service altered")


def look(process: OwnerProcess, owner: Owner) -> None:
    """The process looks into the catalog."""
    world, place = process.world, process.place
    if not world.history.altered:
        return
    altered = world.history.altered.items()
    elsewhere = {service: queue for service, queue in altered if f"q{queue}" != place.address.topic}
    places = {service: partial(_place_in, world, queue) for service, queue in elsewhere.items()}
    owner.staging.altering.look(places, {**owner.fold.state.moves.arrivals})


def _place_in(world: World, queue: int, group: bytes) -> Address:
    places = [place.address for place in world.places if place.address.topic == f"q{queue}"]
    return places[choose_partition(group, len(places))]


def strangers(world: World, place: Place) -> int:
    """Conversations in a partition whose service is on another queue."""
    state, altered = place.shadow.state, world.history.altered
    elsewhere = {service for service, queue in altered.items() if f"q{queue}" != place.address.topic}
    return sum(one.service in elsewhere for one in state.live())


def takes(place: Place, owner: Owner, transaction: Transaction) -> None:
    """Who knows that a service has left hands out nothing of it that can follow."""
    if may_follow(owner, transaction.dialog):
        place.fail(f"I7: {place.name}: {transaction.dialog} is handed out, and its service is on another queue")


def may_follow(owner: Owner, one: Endpoint) -> bool:
    """The owner knows that its service is on another queue, and has known when it came; and it can be moved there."""
    return _is_stranger(owner, one) and not any(map(owner.staging.altering.is_new, one.members))


def _is_stranger(owner: Owner, one: Endpoint) -> bool:
    """It is where its service is not, and nothing keeps it."""
    moving, altering = owner.staging.moving, owner.staging.altering
    alike = all(member.service == one.service and not member.suspended for member in one.members)
    return alike and one.service in altering.services and bool(moving._packed(one.members))


def check_altered(world: World) -> Iterator[str]:
    """In the end every group has followed its service, save those that cannot."""
    for process in world.owners:
        owner = process.owner
        if owner is None or not process.leading or not strangers(world, process.place):
            continue
        for one in owner.fold.state.live():
            if _is_stranger(owner, one):
                yield f"L1: {process.place.name}: {one} has not followed its service"
