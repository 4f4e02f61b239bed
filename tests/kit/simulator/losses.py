"""Deletion of data that the owner has not ingested (LOST, protocol.md section 7.7).

Promises about deleted data are void, but every report about them must be true. A partition halts when commits that no
snapshot covers refer to deleted data; the run is then over.
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
from konverse.schemas.wire.records import FIRST, Envelope, Kind

from .kafka import Record
from .moves import verdict_of
from .outcomes import CLOSED
from .places import Place

if TYPE_CHECKING:
    from .world import World

TRUE_OF_LOSSES: Final = ("lost", "I6")
"""Rules whose findings are expected when data was lost."""


class Enough(Exception):
    """A partition has halted for a valid reason, so the run ends."""


class Losses:
    """The deletions of a run."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.struck: list[Place] = []
        self.cut: dict[Place, list[Record]] = {}
        """Records that logs have lost although Kafka had acknowledged them, or was about to."""

    @property
    def some(self) -> bool:
        """Whether data may have been lost."""
        return bool(self.struck or self.cut)

    def strike(self) -> None:
        """Sometimes delete the beginning of a data log, beyond what commits have ingested, or lose other records."""
        choices = self._world.choices
        if choices.chance(self._world.swarm.cuts):
            place = choices.pick(self._world.places)
            gone = place.data.lose(choices)
            if gone:
                self.cut.setdefault(place, []).extend(gone)
                self._world.sometimes.happened("lost by Kafka")
        if not choices.chance(self._world.swarm.losses):
            return
        place = choices.pick(self._world.places)
        led = any(process.leading for process in self._world.owners if process.place is place)
        if not led and choices.chance(900):  # the next owner would probably have to halt
            return
        ingested = max(
            (j.decision.ingest_to for j in place.judge.judged if j.counts and isinstance(j.decision, Commit)), default=0
        )
        if place.data.end > ingested:
            place.data.start = max(place.data.start, ingested + 1 + choices.choose(place.data.end - ingested))
            self.struck.append(place)

    def decided(self, place: Place, commit: Commit) -> None:
        """Check a commit that counts: a loss that it reports is real, and leads to a snapshot."""
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
        """End the run when an owner halts because of lost data; fail for every other reason."""
        if effect.mistake is not None:
            raise effect.mistake
        if place in self.struck and "which its journal has ingested" in effect.reason:
            self._world.sometimes.happened("halted by a loss")
            raise Enough
        place.fail(f"I17: {place.name} halted: {effect.reason}")


def wrong(findings: Iterable[Finding], folds: Iterable[SecondFold], *, cut: bool = False) -> list[Finding]:
    """The findings that contradict a promise which holds in spite of lost data; `cut`: Kafka has lost some."""
    lossy = cut or any(fold.losses.any for fold in folds)
    return [finding for finding in findings if not (lossy and finding.rule in TRUE_OF_LOSSES)]


def check_losses(world: World, references: Mapping[Address, SecondFold]) -> Iterator[str]:
    """Check the promises that hold in spite of lost data: order, single receipt, and true reports after a hole."""
    yield from _received_once(world, references)
    for place in world.places:
        yield from _heard_on(world, place, references[place.address])
    for place in world.losses.cut:
        yield from _noticed(world, place, references[place.address])
    yield from _said_truly(world, references)


def _heard_on(world: World, place: Place, reference: SecondFold) -> Iterator[str]:
    """Check that every acknowledged record that was not deleted has a verdict, and that each side hears it in order."""
    there = _counters(place)
    lost_of = {writer for writer, _ in _named(world.losses.cut.get(place, ()), place)}
    for (writer, address), acknowledged in world.history.acknowledged.items():
        left = writer in world.history.skewed or writer in reference.forgotten or writer in lost_of
        if address != place.address or left or untrusted(reference, writer) is not None:
            continue
        # the heir resends the records after the closing; one answer reports the closing for all of them
        heard_up_to = min(acknowledged, reference.closed.get(writer, acknowledged))
        # of merged holes it is unknown which records were answered, so late records are not answered
        merged = {
            counter
            for gap in reference.losses.missed.get(writer, ())
            if gap.unanswered is None
            for counter in gap.counters
        }
        for counter in sorted(there.get(writer, set()) - merged):
            if counter < heard_up_to and (writer, counter) not in reference.verdicts:
                yield f"I6: {place.name}: record {counter} of {writer.hex()} comes after a hole and was not judged"
    for side in reference.sides:
        told: dict[tuple[bytes, tuple[object, ...]], list[int]] = {}
        for one in side.heard[side.brought :]:
            if one.counter >= 0:
                log = one.origin[:3] if one.origin is not None else ()  # a writer counts its records in each log
                told.setdefault((one.writer, log), []).append(one.counter)
        for (writer, _), heard in told.items():
            if any(after <= before for before, after in pairwise(heard)):
                yield f"I5: {place.name}: {side.key} heard {heard} of {writer.hex()}"


def _noticed(world: World, place: Place, reference: SecondFold) -> Iterator[str]:
    """Check that the loss of an acknowledged record is noticed, and fails its conversation on both sides."""
    left = {*_named(place.data.records, place)}
    farewells = [one.session for one in world.sessions if one.closed and not (one.dead or one.shut_out)]
    said_goodbye = {session.writer for session in farewells if session.over is None}
    for (writer, counter), envelope in _named(world.losses.cut[place], place).items():
        lost = counter < world.history.acknowledged.get((writer, place.address), 0) and (writer, counter) not in left
        if not lost or writer in world.history.skewed:
            continue
        name = f"record {counter} of {writer.hex()} was acknowledged and lost"
        goodbye = world.history.acknowledged[writer, place.address] - 1
        noticed = writer in reference.closed or counter in _passed_over(reference, writer)
        if not noticed and writer in said_goodbye and (writer, goodbye) in left:
            yield f"I6: {place.name}: {name}, and the partition does not report it"
        if counter >= reference.closed.get(writer, 0):  # the process that closed the writer learns that it is missing
            continue
        if counter not in _passed_over(reference, writer):
            yield f"I6: {place.name}: {name}, and is called received"
        side = reference.living.get((1 - int(envelope.role), envelope.conversation))
        goes_on = side is not None and not (side.ended or side.peer_ended or side.peer_failed)
        if envelope.kind is Kind.MESSAGE and goes_on and not _is_another(place, envelope):
            yield f"I6: {place.name}: {name}, and its conversation goes on"


def _is_another(place: Place, lost: Envelope) -> bool:
    """Whether the conversation was begun with its chosen id after this loss was noticed, so that it misses nothing.

    The earlier conversation of this id lay in the lost records from its begin to its end.
    """
    begun, noticed = [], []
    for record in place.data.records:
        with suppress(MalformedRecord):
            envelope = decode(record.header or b"")
            if envelope.writer == lost.writer and envelope.counter > lost.counter:
                noticed.append(record.offset)
            begins = envelope.kind in (Kind.BEGIN, Kind.INSTALL) or envelope.flags & FIRST
            if begins and envelope.conversation == lost.conversation:
                begun.append(record.offset)
    return bool(begun and noticed) and min(begun) > min(noticed)


def _named(records: Iterable[Record], place: Place) -> dict[tuple[bytes, int], Envelope]:
    """Writer and counter of records -> their envelopes."""
    found: dict[tuple[bytes, int], Envelope] = {}
    for record in records:
        with suppress(MalformedRecord):
            envelope = decode(record.header or b"")
            if envelope.tag == place.address.tag:
                found[envelope.writer, envelope.counter] = envelope
    return found


def _passed_over(reference: SecondFold, writer: bytes) -> set[int]:
    return {counter for gap in reference.losses.missed.get(writer, ()) for counter in gap.counters}


def _counters(place: Place) -> dict[bytes, set[int]]:
    """Writer → counters of its records that were not deleted."""
    found: dict[bytes, set[int]] = {}
    for record in place.data.records:
        with suppress(MalformedRecord):
            envelope = decode(record.header or b"")
            if record.offset >= place.data.start and envelope.tag == place.address.tag:
                found.setdefault(envelope.writer, set()).add(envelope.counter)
    return found


def _said_truly(world: World, references: Mapping[Address, SecondFold]) -> Iterator[str]:
    """Check that messages reported as received were received or came back, and the others were not."""
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
