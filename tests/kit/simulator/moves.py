"""Owners that relocate endpoints, and the invariants of a conversation across all partitions where it lived."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from konverse.bridge.verifier.fold.fold import SecondFold
from konverse.bridge.verifier.fold.state import Side
from konverse.dialog.owner.owner import Owner
from konverse.dialog.state.batches import PendingRow
from konverse.dialog.state.endpoint import Endpoint
from konverse.dialog.state.partition import Partition
from konverse.dialog.state.transitions import State
from konverse.schemas.identifiers import Address, Role
from tests.kit.moving import send_away

from . import altering, regrouping
from .places import Place

if TYPE_CHECKING:
    from .owning import OwnerProcess
    from .world import World

RESERVED: Final = 700
"""Rate of relocating when a dialog that a session has reserved lives here."""

ROUNDS_PER_STUB: Final = 8
"""Calm rounds that a stub may take, for a record sent through it and for CLOSED."""

References = Mapping[Address, SecondFold]


def actions(process: OwnerProcess, owner: Owner) -> Iterator[Callable[[], None]]:
    """Possible actions: relocate an endpoint, alter a service."""
    rate = process.world.swarm.moves
    if rate and _reserved(process, owner):
        rate = RESERVED
    if process.world.choices.chance(rate):
        yield lambda: _move_some(process, owner)
    yield from altering.actions(process, owner)


def _reserved(process: OwnerProcess, owner: Owner) -> list[Endpoint]:
    """Dialogs that sessions reserve for bounced messages. They move before their first message."""
    kept = {plan.dialog.conversation for session in process.world.sessions if (plan := session.mailboxes.reserved)}
    return [one for one in owner.fold.state.live() if one.is_initiator and one.conversation in kept] if kept else []


def _move_some(process: OwnerProcess, owner: Owner) -> None:
    """Ask an owner to relocate an endpoint, preferably one with work left. The owner may refuse."""
    world, place = process.world, process.place
    choices, state = world.choices, owner.fold.state
    live = state.live()
    if choices.chance(800):
        live = [one for one in live if not one.held and len(one.members) == 1]
    live = _reserved(process, owner) or live
    promising = ([one for one in live if wanted(state, one)] for wanted in _PROMISING)
    live = choices.pick([live, *filter(None, promising)])
    elsewhere = [other for other in world.places if other is not place]
    if not live or not elsewhere:
        return
    endpoint, to = choices.pick(live), choices.pick(elsewhere).address
    arrival = state.moves.arrivals.get(endpoint.index)
    if arrival is not None and choices.chance(500):
        to = arrival.previous
    if not send_away(owner, endpoint, to):
        world.sometimes.happened("move refused")
        return
    if place.data.end > state.ingest_to and choices.chance(700):  # more data arrives in between
        process._poll()
        process._ingest()


_PROMISING: Final[tuple[Callable[[Partition, Endpoint], object], ...]] = (
    lambda state, one: state.moves.generation_of(one.index),
    lambda _, one: one.queue,
    lambda _, one: one.finished,
    lambda _, one: one.state is State.STARTED_OUTBOUND,
    lambda state, one: one.is_initiator and state.mailbox.entries,
    lambda state, one: one.state is State.STARTED_OUTBOUND and state.mailbox.entries,
    lambda state, one: any(row.conversation == one.conversation for row in _rows(state)),
)
"""Endpoints worth moving.

In order: it moved before; messages wait in it; a side has finished; nothing was sent on it; messages may be redirected
to it, also as the first ones; a row waits for it.
"""


def _rows(state: Partition) -> Iterator[PendingRow]:
    return (row for attempt in state.pending.attempts for row in state.pending.rows_of(attempt))


def patience(world: World) -> int:
    """Further calm rounds that moved conversations need."""
    for place in world.places:
        place.follow(place.journal.end)
    return ROUNDS_PER_STUB * sum(
        place.shadow.state.moves.count
        + 2 * altering.strangers(world, place)
        + 2 * len(place.shadow.state.moves.leaving)
        for place in world.places
    )


def find(world: World, home: Place, conversation: bytes) -> tuple[Partition, Endpoint | None]:
    """The state of the partition that an initiator moved to, and the endpoint, unless it is under way or over."""
    places = {place.address: place for place in world.places}
    place, generation = home, 0
    while True:
        place.follow(place.journal.end)
        state = place.shadow.state
        stub = state.moves.stubs.get((Role.INITIATOR, conversation), {}).get(generation)
        if stub is None:
            endpoint = state.endpoint(Role.INITIATOR, conversation)
            if endpoint is not None and state.moves.generation_of(endpoint.index) != generation:
                endpoint = None
            return state, endpoint
        place, generation = places[stub.to], generation + 1


def lives(references: References, role: Role, conversation: bytes) -> list[Side]:
    """The parts of one side in all partitions, in order of generation."""
    key = (int(role), conversation)
    parts = [side for reference in references.values() for side in reference.sides if side.key == key]
    return sorted(parts, key=lambda side: side.generation)


def whole(references: References, address: Address, role: Role, conversation: bytes) -> Side | None:
    """A side that began at this address, with all that it accepted in every partition; None when none began there."""
    key = (int(role), conversation)
    first = next((side for side in references[address].sides if side.key == key), None)
    later = [side for side in lives(references, role, conversation) if side.generation]
    if first is None or not later:
        return first
    parts, last = [first, *later], later[-1]
    return replace(
        last,
        heard=[heard for part in parts for heard in part.heard[part.brought :]],
        consumed=[consumed for part in parts for consumed in part.consumed[part.consumed_before :]],
        ended_by_session=next((part.ended_by_session for part in parts if part.ended_by_session), b""),
    )


def verdict_of(references: References, writer: bytes, address: Address, counter: int) -> str | None:
    """Verdict of a record in the last partition that it reached; None when it was not taken."""
    verdict = references[address].verdicts.get((writer, counter))
    if verdict != "forwarded":
        return verdict
    name = (writer, address, counter)
    return next((one.far_verdicts[name] for one in references.values() if name in one.far_verdicts), verdict)


def check_place(place: Place, state: Partition, reference: SecondFold) -> Iterator[str]:
    """Check that the product's tables of moves equal those of the reference."""
    moves = state.moves
    stubs = {
        (int(role), conversation): {
            generation: (stub.to, stub.previous, stub.opened) for generation, stub in chain.items()
        }
        for (role, conversation), chain in moves.stubs.items()
    }
    if stubs != reference.moves.stubs:
        yield f"I3: {place.name}: the product has stubs {stubs}, the reference {reference.moves.stubs}"
    generations = {side.index: (side.generation, side.previous) for side in reference.living.values() if side.previous}
    if {index: (one.generation, one.previous) for index, one in moves.arrivals.items()} != generations:
        yield f"I3: {place.name}: the product knows arrivals {moves.arrivals}, the reference {generations}"
    if moves.leaving != reference.moves.leaving:
        yield f"I3: {place.name}: groups that leave are {moves.leaving}, the reference says {reference.moves.leaving}"
    if moves.installing != reference.moves.installing:
        yield f"I3: {place.name}: pieces of endpoints differ"


def check_moves(world: World, references: References) -> Iterator[str]:
    """Check that a moved side stays one side: each part begins where the previous ended, and nothing is left over."""
    keys = dict.fromkeys(key for reference in references.values() for key, _ in reference.moves.left)
    living = {key for reference in references.values() for key in reference.living}
    forgotten = any(reference.floor_ms for reference in references.values())
    once_more = world.history.begun_again if forgotten else set[bytes]()
    for key in [key for key in keys if key[1] not in once_more]:
        parts = lives(references, Role(key[0]), key[1])
        if [part.generation for part in parts] != list(range(len(parts))):
            yield f"I9: {key} lived in generations {[part.generation for part in parts]}"
        for before, after in pairwise(parts):
            if (len(before.heard), len(before.consumed)) != (after.brought, after.consumed_before):
                yield f"I7: {key} left with {len(before.heard)} messages and arrived with {after.brought}"
        if sum(key in reference.living for reference in references.values()) > 1:
            yield f"I9: {key} lives in two places"
    for place in world.places:
        reference = references[place.address]
        for key, chain in reference.moves.stubs.items():
            if key not in living:
                yield f"L1: {place.name}: stubs {list(chain)} of {key} are left, and it is over"
        if reference.moves.installing:
            yield f"L1: {place.name}: pieces of an endpoint wait for the others"
    yield from _verdicts(references)
    yield from _consumed_once(world)
    yield from altering.check_altered(world)
    yield from regrouping.check_left(world)


def _verdicts(references: References) -> Iterator[str]:
    """Check that a forwarded record has exactly one verdict, in the last partition."""
    ended = Counter(record for reference in references.values() for record in reference.far_verdicts)
    for address, reference in references.items():
        for (writer, counter), verdict in reference.verdicts.items():
            if writer == reference.writer and reference.losses.any:
                continue  # Errors of lost conversations are passed on in the partition's own name, without a counter
            verdicts = ended[writer, address, counter]
            if verdict == "forwarded" and verdicts != 1:
                yield f"I6: record {counter} of {writer.hex()} was sent on and has {verdicts} verdicts"


def _consumed_once(world: World) -> Iterator[str]:
    """Check that no message was received in two commits that count, in any partition."""
    taken = Counter(
        taken.id
        for place in world.places
        for number, (_, owner) in place.judge.commits.items()
        for work in world.history.committed.get((place.name, owner, number), ())
        for taken in work.taken
    )
    for identifier, times in taken.items():
        if times > 1:
            yield f"I7: message {identifier} was received {times} times in commits that count"
