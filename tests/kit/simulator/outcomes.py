"""Invariants of messages under all ids of their session, and of the answers about them (I6, I15, I18)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from konverse.bridge.verifier.fold.fold import SecondFold
from konverse.schemas.identifiers import Address, time_of_writer

from .moves import verdict_of

if TYPE_CHECKING:
    from .world import World

CLOSED = ("bounced WRITER_CLOSED", "closed")


def outcomes(world: World, references: dict[Address, SecondFold]) -> Iterator[str]:
    """Check that each body has at most one verdict other than a closed writer's, and that answers were true."""
    verdicts: dict[bytes, list[str]] = {}
    for (writer, address, counter), (_, _, body) in world.history.handed.items():
        verdict = verdict_of(references, writer, address, counter)
        if body is not None and verdict is not None:
            verdicts.setdefault(body, []).append(verdict)
    received = {body for body, said in verdicts.items() if any(one not in CLOSED for one in said)}
    for body, said in verdicts.items():
        if len([one for one in said if one not in CLOSED]) > 1 and body.startswith(b"m"):
            yield f"I4: {body!r} was taken more than once: {said}"
    for told in world.history.told:
        for body in told.bodies[: told.received]:
            if body not in received:
                yield f"I18: {body!r} was said to be received, and it was not"
        for body in told.bodies[told.received :]:
            rejected = told.held and {*verdicts.get(body, ())} <= {"rejected", *CLOSED}  # so never received
            if body in received and not rejected:
                yield f"I18: {body!r} was said not to be received, and it was: {verdicts[body]}"
    yield from _memory(world)


def _memory(world: World) -> Iterator[str]:
    """Check that after jumps of time a writer is known exactly when it has lanes in a living conversation."""
    if not world.swarm.jumps:
        return
    for place in world.places:
        state = place.shadow.state
        left = [w.id.hex() for w in state.writers.values() if time_of_writer(w.id) is not None and not w.lanes]
        if left:
            yield f"I15: {place.name} still has the writers {left}"
