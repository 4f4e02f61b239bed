"""A pair of queues and two more partitions to which endpoints may move, for tests of relocation."""

from __future__ import annotations

from typing import Any

from konverse.dialog.owner.emitter import Emitter
from konverse.dialog.owner.owner import Owner
from konverse.dialog.rules.relocation import moved_of
from konverse.dialog.state.endpoint import Endpoint
from konverse.schemas.identifiers import Address, Role
from konverse.schemas.wire.moved import encode_moved, pieces_of
from konverse.schemas.wire.operations import Relocate

from .builders import Pair, Side


class World(Pair):
    """A pair, and two partitions to which endpoints may move."""

    def __init__(self) -> None:
        super().__init__()
        self.second = Side("second")
        self.third = Side("third")

    def settle(self) -> None:
        """Deliver all outputs until none is left."""
        sides = [self.home, self.target, self.second, self.third]
        while sum(len(source.deliver(to)) for source in sides for to in sides if source is not to):
            pass


def relocate(side: Side, one: Endpoint, to: Side, **changes: Any) -> None:
    """Commit the relocation of an endpoint. Its outputs are not delivered yet."""
    pieces = len(pieces_of(encode_moved(moved_of(side.state, one))))
    operation = Relocate(one.index, to.address, side.state.moves.generation_of(one.index), pieces)
    side.commit(rare=[operation._replace(**changes)])


def move(world: World, side: Side, endpoint: Endpoint, to: Side) -> Endpoint:
    """Relocate an endpoint and deliver everything. Returns the endpoint at its new partition."""
    relocate(side, endpoint, to)
    world.settle()
    return living(to, endpoint.role, endpoint.conversation)


def send_away(owner: Owner, endpoint: Endpoint, to: Address) -> bool:
    """Let the owner move an endpoint with its next COMMIT, as ALTER SERVICE would. False when the endpoint stays.

    Only an endpoint that is alone in its group moves, and only without counted attempts: attempts do not move within a
    queue (M192).
    """
    state = owner.fold.state
    lives = state.table[endpoint.index] is endpoint and to != state.address and len(endpoint.members) == 1
    tried = endpoint.trouble is not None or state.attempts.careful
    free = lives and not tried and endpoint.group_id not in state.moves.leaving
    return free and owner.staging.moving.take_along(endpoint, to)


def living(side: Side, role: Role, conversation: bytes) -> Endpoint:
    endpoint = side.state.endpoint(role, conversation)
    assert endpoint is not None, f"no {role.name} of the conversation lives in {side.queue}"
    return endpoint


def bodies(endpoint: Endpoint) -> list[bytes | None]:
    return [entry[2] for entry in endpoint.queue]


def leaving(side: Side) -> list[Address]:
    """Destinations to which outputs leave now."""
    emitter = Emitter(side.state.streams)
    for window, limit in emitter.limits():
        window.limit = limit
    return [effect.address for effect in emitter.pending()]
