"""`python -m tests.golden.record --release X`: records the golden journals of a release.

Seeds of the simulator are tried until every path that leaves a trace in a log was walked. The worlds that added a path
are kept, and a hand-written journal. An existing file is never overwritten.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from itertools import count
from pathlib import Path
from typing import Final, NamedTuple
from unittest.mock import patch

from konverse.bridge.verifier.check import compare, judge
from konverse.dialog.fold.fold import Fold
from konverse.dialog.fold.journal import JournalRecord
from konverse.dialog.owner import snapshots as snapshotting
from konverse.dialog.owner.events import AppendSnapshot
from konverse.dialog.owner.snapshots import SnapshotMaker
from konverse.dialog.state import recent as forgeries
from konverse.schemas.identifiers import owner_writer
from tests.kit.simulator.checks import check
from tests.kit.simulator.choices import Choices
from tests.kit.simulator.forgers import honest
from tests.kit.simulator.losses import Enough, wrong
from tests.kit.simulator.places import journaled
from tests.kit.simulator.swarm import draw
from tests.kit.simulator.tuning import tuned
from tests.kit.simulator.world import World

from .by_hand import by_hand
from .case import FOLDER, Case, DataRecord, Outcome, counts_of, outcome_of, write

PATHS: Final = frozenset({
    "invalid COMMIT", "invalid CLAIM", "zombie COMMIT", "late CLAIM", "append twice", "parts", "parts apart",
    "undecodable", "hole", "duplicate", "gap", "foreign", "malformed", "bounced", "bounced, writer closed",
    "bounced, tombstone", "returned", "refused BEGIN", "discarded", "Error overtook", "group of several",
    "several writers", "misnumbered", "high numbers", "released", "clean claim", "closed by a successor", "partial",
    "row void", "row twice", "BATCH too late", "BATCH refused", "veto too late", "FIN", "FIN without an endpoint",
    "FIN answered", "bounced, finished", "transaction", "gated", "confirmed", "redirected", "redirected first",
    "redirected by another", "redirected again", "redirected without effect", "bounce unknown", "bounce of another",
    "no peer", "no peer heard", "suspended", "resumed", "skipped", "ended by an operator", "stranger",
    "closed by a PRUNE", "forgotten", "late heir", "moved", "moved again", "moved back", "moved with unread",
    "moved finished", "END met a stub", "END CONVERSATION met a stub", "FIN met a stub", "FIN answer met a stub",
    "row met a stub", "no peer met a stub", "CLOSED walked on", "bounced after a move", "redirected to what has moved",
    "owner went on after a loss", "session went on after a loss", "late after a loss", "told of a loss",
    "failed by a loss", "failed elsewhere by a loss", "freed by a loss", "acknowledged and lost",
    "timer set", "timer set anew", "timer rang", "timer rang beside an Error", "timer waited", "timer met a stub",
    "moved with a timer", "moved as a group", "lifetime over", "rejected", "rejected at once", "begun in a group",
    "begun in a target's group", "ranked", "moved with a level", "moved to a group with unread", "cleaned up, not open",
    "taken back", "cleaned up and spoken to", "given up", "timer cancelled", "lifetime over after an end",
    "gone with its lifetime", "begun when over", "FIRST when over", "forged",
    "FIN after a move", "missed after a loss",
    "redirected first, opened by another", "moved to a group elsewhere", "followed its group", "moved to a group",
    "cleaned up",
})  # fmt: skip
"""Paths of `tests.kit.simulator.sometimes` that leave a trace in a log."""

RECORDS_MAX: Final = 2_500
"""Most records of a kept world."""

DIGESTS: Final = 4
"""Digests of recent records in a snapshot. They look random and are the same in every version, so a few suffice."""

CHUNK_BYTES: Final = 4_000
"""Small, so that a snapshot has several chunks."""


class _Candidate(NamedTuple):
    """A simulated world that may be kept."""

    walked: set[str]
    records: int
    cases: list[Case]


def worlds(wanted: Iterable[str] = PATHS) -> list[list[Case]]:
    """Simulated worlds that together walk all these paths."""
    missing = set(wanted)
    found: list[_Candidate] = []
    for seed in count():
        if draw(Choices(seed)).own_bounds:
            continue
        try:
            world = _simulated(seed)
        except Enough:
            continue
        walked = {*wanted}.intersection(world.sometimes.counts)
        records = sum(len(log.records) for log in world.kafka.logs.values())
        if records <= RECORDS_MAX:
            missing -= walked
            found.append(_Candidate(walked, records, _cases(world, f"seed {seed}")))
        if not missing:
            break
    return [one.cases for one in _needed(found, {*wanted})]


def _needed(found: list[_Candidate], missing: set[str]) -> list[_Candidate]:
    """Few records that walk all these paths: the world with the fewest for each further path, again and again."""
    needed: list[_Candidate] = []
    while missing:
        useful = (one for one in found if one.walked & missing)
        best = min(useful, key=lambda one: one.records / len(one.walked & missing))
        needed.append(best)
        missing = missing - best.walked
    for one in [*needed]:
        others = [other for other in needed if other is not one]
        if one.walked <= {path for other in others for path in other.walked}:
            needed = others
    return needed


def _simulated(seed: int) -> World:
    choices = Choices(seed, None)
    swarm = draw(choices)
    with tuned(choices, swarm):
        world = World(choices, swarm)
        world.run()
        check(world)
    return world


def _cases(world: World, name: str) -> list[Case]:
    return [
        Case(
            name,
            place.identity,
            [*map(journaled, place.journal.records)],
            [DataRecord(r.offset, r.header, r.body, r.timestamp_ms) for r in place.data.records],
            place.data.end,
            [],
            [],
            {},
        )
        for place in world.places
    ]


def completed(world: list[Case]) -> list[Case]:
    """The cases of a world with their outcomes. AssertionError where the product's fold and the verifier differ."""
    owners = {owner_writer(case.identity.incarnation, case.identity.partition) for case in world}
    verdicts = [judge(case.place(), case.journal_records(), case.data_records(), owners) for case in world]
    findings = [finding for verdict in verdicts for finding in verdict.findings] + [*compare(verdicts)]
    folds = [verdict.fold for verdict in verdicts]
    assert not honest(wrong(findings, folds), forged=any(fold.tally["forged"] for fold in folds)), findings
    return [
        _with_outcomes(case)._replace(counts=counts_of(verdict)) for case, verdict in zip(world, verdicts, strict=True)
    ]


def _with_outcomes(case: Case) -> Case:
    """Add a snapshot of the fullest state on the way, and of the last state if it differs."""
    fold = case.fold()
    fullest, most = len(case.journal), -1
    for number, record in enumerate(case.journal, 1):
        _go_on(fold, [record])
        if _fullness(fold) >= most:
            fullest, most = number, _fullness(fold)
    fold = case.fold()
    snapshots: list[bytes] = []
    outcomes: list[Outcome] = []
    for records in (case.journal[:fullest], case.journal[fullest:]):
        _go_on(fold, records)
        if not outcomes or fold.head.offset > outcomes[-1].offset:
            snapshots += _snapshot(fold)
            outcomes.append(outcome_of(fold, len(snapshots)))
    return case._replace(snapshots=snapshots, outcomes=outcomes)


def _go_on(fold: Fold, records: list[JournalRecord]) -> None:
    fold.feed_journal(records)
    assert fold.advance() is None, "the journal has ingested data that are not there"


def _fullness(fold: Fold) -> int:
    state = fold.state
    return len(state.live()) + state.unread + len(state.tombstones) + sum(s.waiting for s in state.streams.values())


def _snapshot(fold: Fold) -> list[bytes]:
    """The records of a snapshot of this state, as an owner makes them."""
    making = SnapshotMaker(fold)
    records: list[bytes] = []
    with (
        patch.object(snapshotting, "SNAPSHOT_CHUNK_BYTES_MAX", CHUNK_BYTES),
        patch.object(forgeries, "RECENT_KEPT_ENTRIES_MAX", DIGESTS),
    ):
        making.begin(0)
        making.confirm()
        last = False
        while not last:
            for effect in making.go_on():
                assert isinstance(effect, AppendSnapshot)
                records += effect.records
                last = effect.last
    return records


def file_of(release: str) -> Path:
    """The file of a release."""
    return FOLDER / f"{release}.avro"


def main() -> int:
    """Record and print the result; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden.record", description="Record golden journals.")
    parser.add_argument("--release", required=True, metavar="X", help="version of konverse, such as 0.1.0")
    path = file_of(parser.parse_args().release)
    if path.exists():
        print(f"{path} is there already; what was recorded never changes", file=sys.stderr)
        return 1
    cases = [case for world in [[by_hand()], *worlds()] for case in completed(world)]
    write(path, cases)
    for case in cases:
        print(f"{case.name}: {len(case.journal)} journal records, {len(case.data)} data records")
    print(f"{len(cases)} partitions, {path.stat().st_size:,} bytes in {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
