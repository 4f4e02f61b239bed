"""ALTER SERVICE moves a service to another queue; each owner notices that at a time of its own."""

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
    """Possible actions: an administrator alters a service, or the process reads the catalog."""
    world, rate = process.world, process.world.swarm.altering
    if rate and world.swarm.queues > 1 and world.choices.chance(rate):
        yield lambda: _alter(world)
    if world.history.altered and world.choices.chance(100):
        yield lambda: look(process, owner)


def _alter(world: World) -> None:
    """Put a service on a random queue, possibly the same one."""
    world.history.altered[world.choices.pick(SERVICES)] = world.choices.choose(world.swarm.queues)
    world.sometimes.happened("service altered")


def look(process: OwnerProcess, owner: Owner) -> None:
    """Let the process read the catalog and learn which services are on other queues."""
    world, place = process.world, process.place
    if not world.history.altered:
        return
    altered = world.history.altered.items()
    elsewhere = {service: queue for service, queue in altered if f"q{queue}" != place.address.topic}
    places = {service: partial(_place_in, world, queue) for service, queue in elsewhere.items()}
    owner.staging.altering.find(places, {**owner.fold.state.moves.arrivals})


def _place_in(world: World, queue: int, group: bytes) -> Address:
    places = [place.address for place in world.places if place.address.topic == f"q{queue}"]
    return places[choose_partition(group, len(places))]


def strangers(world: World, place: Place) -> int:
    """Number of conversations in a partition whose service is on another queue."""
    state, altered = place.shadow.state, world.history.altered
    elsewhere = {service for service, queue in altered.items() if f"q{queue}" != place.address.topic}
    return sum(one.service in elsewhere for one in state.live())


def takes(place: Place, owner: Owner, transaction: Transaction) -> None:
    """Check that an owner which knows of the alteration hands out no group that could follow its service."""
    if may_follow(owner, transaction.dialog):
        place.fail(f"I7: {place.name}: {transaction.dialog} is handed out, and its service is on another queue")


def may_follow(owner: Owner, one: Endpoint) -> bool:
    """Whether the owner knew of the alteration when the endpoint came, and the endpoint can be moved."""
    return _is_stranger(owner, one) and not any(map(owner.staging.altering.is_new, one.members))


def _is_stranger(owner: Owner, one: Endpoint) -> bool:
    """Whether the endpoint's service is on another queue, and nothing keeps the group here."""
    moving, altering = owner.staging.moving, owner.staging.altering
    alike = all(member.service == one.service and not member.suspended for member in one.members)
    return alike and one.service in altering.services and bool(moving._packed(one.members))


def check_altered(world: World) -> Iterator[str]:
    """Check that every group that can move has followed its service."""
    for process in world.owners:
        owner = process.owner
        if owner is None or not process.leading or not strangers(world, process.place):
            continue
        for one in owner.fold.state.live():
            if _is_stranger(owner, one):
                yield f"L1: {process.place.name}: {one} has not followed its service"
