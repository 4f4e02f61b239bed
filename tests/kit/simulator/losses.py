"""Data that somebody deletes before its owner has ingested it (LOST, protocol.md section 7.7).

What promises rest on these data is not kept, and what is said about them has to be true. Where the commits behind every
snapshot rest on them the partition halts, and the run is over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from konverse.bridge.verifier.check import Finding
from konverse.bridge.verifier.fold.fold import SecondFold
from konverse.bridge.verifier.fold.writers import untrusted
from konverse.dialog.owner.events import Halted
from konverse.dialog.rules.loss import lost_by
from konverse.schemas.errors import MalformedRecord
from konverse.schemas.identifiers import Address
from konverse.schemas.wire.envelope import decode
from konverse.schemas.wire.journal import Commit

from .moves import verdict_of
from .outcomes import CLOSED
from .places import Place

if TYPE_CHECKING:
    from .world import World

TRUE_OF_LOSSES: Final = ("lost", "I6")
"""Findings of the verifier that are right where data was lost: that it was, and what was in it."""


class Enough(Exception):
    """A partition has halted, and rightly: nothing further can be asked of the run."""


class Losses:
    """What was deleted in a run."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.struck: list[Place] = []

    def strike(self) -> None:
        """Now and then somebody deletes the beginning of a data log, with something that no commit has ingested."""
        choices = self._world.choices
        if not choices.chance(self._world.swarm.losses):
            return
        place = choices.pick(self._world.places)
        led = any(process.leading for process in self._world.owners if process.place is place)
        if not led and choices.chance(900):  # the next owner would have to halt, most likely
            return
        ingested = max(
            (j.decision.ingest_to for j in place.judge.judged if j.counts and isinstance(j.decision, Commit)), default=0
        )
        if place.data.end > ingested:
            place.data.start = max(place.data.start, ingested + 1 + choices.choose(place.data.end - ingested))
            self.struck.append(place)

    def decided(self, place: Place, commit: Commit) -> None:
        """A commit counts: it says that something is gone if it is, and only then."""
        lost = lost_by(commit)
        if lost is None:
            return
        if place not in self.struck or lost.end > place.data.start:
            place.fail(f"I17: {place.name}: the records {lost.start} to {lost.end} are called lost")
        makers = [process.owner for process in self._world.owners if process.owner is not None]
        if any(maker.claim_id == commit.owner and not maker.snapshots.urgent for maker in makers):
            place.fail(f"I12: {place.name}: data are lost, and nobody makes a snapshot that does not need them")
        place.follow(place.journal.end)
        if place.shadow.state.moves.installing and place.shadow.state.ingest_to == lost.end:
            place.fail(f"I5: {place.name}: pieces are kept of something whose other pieces may be lost")
        happened = self._world.sometimes.happened
        happened("data lost")
        led = [number for number, (_, owner) in place.judge.commits.items() if owner == commit.owner]
        happened("data lost under an owner", len(led) > 1)

    def halted(self, place: Place, effect: Halted) -> None:
        """An owner finds its logs contradictory."""
        if effect.mistake is not None:
            raise effect.mistake
        if place in self.struck and "which its journal has ingested" in effect.reason:
            self._world.sometimes.happened("halted by a loss")
            raise Enough
        place.fail(f"I17: {place.name} halted: {effect.reason}")


def wrong(findings: Iterable[Finding], folds: Iterable[SecondFold]) -> list[Finding]:
    """The findings that contradict a promise which is kept although data was lost."""
    lossy = any(fold.losses.count for fold in folds)
    return [finding for finding in findings if not (lossy and finding.rule in TRUE_OF_LOSSES)]


def check_losses(world: World, references: Mapping[Address, SecondFold]) -> Iterator[str]:
    """What is kept although data was lost: what stands behind a hole, in order and once, and what was said of it."""
    yield from _received_once(world, references)
    for place in world.places:
        yield from _heard_on(world, place, references[place.address])
    yield from _said_truly(world, references)


def _heard_on(world: World, place: Place, reference: SecondFold) -> Iterator[str]:
    """Of what a session counts as there everything is judged that was not deleted, each side hears it in order."""
    there = _counters(place)
    for (writer, address), acknowledged in world.history.acknowledged.items():
        left = writer in world.history.skewed or writer in reference.forgotten
        if address != place.address or left or untrusted(reference, writer) is not None:
            continue
        # what a closed writer has said behind its closing comes again from its heir; one answer to it says so
        heard_up_to = min(acknowledged, reference.closed.get(writer, acknowledged))
        for counter in sorted(there.get(writer, ())):
            if counter < heard_up_to and (writer, counter) not in reference.verdicts:
                yield f"I6: {place.name}: record {counter} of {writer.hex()} stands behind a hole and nobody judged it"
    for side in reference.sides:
        told: dict[tuple[bytes, tuple[object, ...]], list[int]] = {}
        for one in side.heard[side.brought :]:
            if one.counter >= 0:
                log = one.origin[:3] if one.origin is not None else ()  # a writer counts its records in each log
                told.setdefault((one.writer, log), []).append(one.counter)
        for (writer, _), heard in told.items():
            if any(after <= before for before, after in pairwise(heard)):
                yield f"I5: {place.name}: {side.key} heard {heard} of {writer.hex()}"


def _counters(place: Place) -> dict[bytes, set[int]]:
    """Writer -> counters of its records that nobody has deleted."""
    found: dict[bytes, set[int]] = {}
    for record in place.data.records:
        with suppress(MalformedRecord):
            envelope = decode(record.header or b"")
            if record.offset >= place.data.start and envelope.tag == place.address.tag:
                found.setdefault(envelope.writer, set()).add(envelope.counter)
    return found


def _said_truly(world: World, references: Mapping[Address, SecondFold]) -> Iterator[str]:
    """What somebody was told to be received was, or came back; what was not is nowhere."""
    verdicts: dict[bytes, set[str]] = {}
    for (writer, address, counter), (_, _, body) in world.history.handed.items():
        verdict = verdict_of(references, writer, address, counter)
        if body is not None and verdict is not None:
            verdicts.setdefault(body, set()).add(verdict)
    for told in world.history.told:
        for body in told.bodies[: told.received]:
            if not verdicts.get(body, set()).difference(CLOSED):
                yield f"I18: {body!r} was said to be received, and lay in a hole"
        for body in told.bodies[told.received :]:
            if "accepted" in verdicts.get(body, ()):
                yield f"I18: {body!r} was said not to be received, and it was"


def _received_once(world: World, references: Mapping[Address, SecondFold]) -> Iterator[str]:
    sent = {body for _, _, body in world.history.handed.values()}
    received = Counter(
        heard.body
        for reference in references.values()
        for side in reference.sides
        for heard in side.heard[side.brought :]
    )
    for body, times in received.items():
        if times > 1 and body in sent:
            yield f"I6: {body!r} was received {times} times"
