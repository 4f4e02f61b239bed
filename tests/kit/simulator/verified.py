"""The verifier's judgement of a run's logs: whole, since a snapshot, and of the records that truncation left."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from konverse.bridge.verifier.check import Finding, PartitionVerdict, compare, judge
from konverse.bridge.verifier.starting_state import StartingState, beginning, starts

from .forgers import honest
from .losses import wrong
from .places import Place
from .world import World

PROBLEMS_MAX: Final = 12
"""Most problems that a failure lists."""


def refuted(world: World) -> str | None:
    """The verifier's findings in these logs; None when there are none."""
    owners = writers_of(world)
    verdicts = whole(world, owners)
    folds = [verdict.fold for verdict in verdicts]
    found = [*findings(verdicts), *in_part(world, owners)]
    problems = [*told(honest(wrong(found, folds, cut=bool(world.losses.cut)), forged=world.forgers.struck > 0))]
    return "\n".join(problems[:PROBLEMS_MAX]) or None


def writers_of(world: World) -> set[bytes]:
    """The ids under which owners write."""
    return {place.shadow.state.writer_id for place in world.places}


def whole(world: World, owners: set[bytes]) -> list[PartitionVerdict]:
    """Judge the logs from the beginning, and each snapshot against them."""
    verdicts = []
    for place in world.places:
        verified = place.verified()
        verified = verified._replace(snapshots=starts(place.snapshots.records, verified.identity))
        verdicts.append(judge(verified, place.journal.records, place.data.records, owners))
    return verdicts


def findings(verdicts: list[PartitionVerdict]) -> Iterator[Finding]:
    """Findings of each partition, and between partitions."""
    for verdict in verdicts:
        yield from verdict.findings
    yield from compare(verdicts)


def told(found: Iterable[Finding]) -> Iterator[str]:
    """Findings as lines of a failure."""
    return (f"{rule}: {where}: {text}" for rule, where, text in found)


def in_part(world: World, owners: set[bytes]) -> Iterator[Finding]:
    """Findings when the verification begins at snapshots."""
    yield from _prefixed("since a snapshot", _since(world, owners))
    yield from _prefixed("of what is left", _left(world, owners))


def _prefixed(prefix: str, found: Iterable[Finding]) -> Iterator[Finding]:
    return (Finding(rule, f"{prefix}: {where}", text) for rule, where, text in found)


def _since(world: World, owners: set[bytes]) -> Iterator[Finding]:
    """Begin each partition at one of its snapshots."""
    verdicts = []
    for place in world.places:
        known = starts(place.snapshots.records, place.verified().identity)
        start = world.choices.pick(known) if known else None
        if start is not None:
            world.sometimes.happened("verified since a snapshot")
        verdicts.append(_judge(place, start, owners))
    return findings(verdicts)


def _left(world: World, owners: set[bytes]) -> Iterator[Finding]:
    """Check that truncation has left a snapshot and everything after it."""
    verdicts = []
    for place in world.places:
        snapshots = [record for record in place.snapshots.records if record.offset >= place.snapshots.start]
        start = beginning(starts(snapshots, place.verified().identity), place.journal.start, place.data.start)
        if start is None and (place.journal.start or place.data.start) and place not in world.losses.struck:
            yield Finding("cut", place.name, "no snapshot is left after which everything is there")
        verdicts.append(_judge(place, start, owners))
    yield from findings(verdicts)


def _judge(place: Place, start: StartingState | None, owners: set[bytes]) -> PartitionVerdict:
    verified, journal, data = place.verified(), place.journal.records, place.data.records
    if start is not None:
        verified = verified._replace(start=start)
        journal = [record for record in journal if record.offset > start.end.offset]
        data = [record for record in data if record.offset >= start.end.ingest_to]
    return judge(verified, journal, data, owners)
