"""The verifier compares snapshots with the fold of the logs at their offset (I3)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache

import pytest

from konverse.bridge.verifier.check import Finding, judge
from konverse.bridge.verifier.starting_state import StartingState, beginning, starts
from tests.kit.simulator.choices import Choices
from tests.kit.simulator.places import Place
from tests.kit.simulator.swarm import Swarm, draw
from tests.kit.simulator.tuning import tuned
from tests.kit.simulator.world import World

pytestmark = pytest.mark.xdist_group("histories")  # simulated once, not by each worker

SEEDS = range(15)


@contextmanager
def bounds_of(seed: int) -> Iterator[tuple[Choices, Swarm]]:
    """The product's bounds in the run of this seed. Every fold of its logs needs the same."""
    choices = Choices(seed, None)
    swarm = draw(choices)
    with tuned(choices, swarm):
        yield choices, swarm


@cache
def simulated(seed: int) -> list[tuple[Place, list[StartingState]]]:
    """The partitions with several snapshots, and these snapshots."""
    with bounds_of(seed) as (choices, swarm):
        world = World(choices, swarm)
        world.run()
    found = [(place, starts(place.snapshots.records, place.verified().identity)) for place in world.places]
    return [(place, known) for place, known in found if len({start.end.offset for start in known}) > 1]


def snapshotted(seeds: Sequence[int]) -> list[tuple[int, Place, list[StartingState]]]:
    return [(seed, place, known) for seed in seeds for place, known in simulated(seed)]


def findings(seed: int, place: Place, snapshots: list[StartingState]) -> list[Finding]:
    verified = place.verified()._replace(snapshots=snapshots)
    with bounds_of(seed):
        return judge(verified, place.journal.records, place.data.records, ()).findings


@pytest.mark.parametrize("seed", SEEDS)
def test_snapshots_equal_the_fold_of_the_logs(seed: int) -> None:
    for place, known in simulated(seed):
        assert findings(seed, place, known) == []


def test_a_snapshot_that_says_otherwise_is_refuted() -> None:
    tried = 0
    for seed, place, known in snapshotted(SEEDS):
        early, late = known[0], known[-1]
        moved = early._replace(end=early.end._replace(offset=late.end.offset))
        found = findings(seed, place, [moved])
        assert {finding.rule for finding in found} == {"I3"}, place.name
        assert f"the snapshot of journal offset {late.end.offset}" in found[0].text
        tried += 1
    assert tried > 3


def test_a_snapshot_from_behind_the_journal_that_was_read_is_passed_over() -> None:
    tried = 0
    for seed, place, known in snapshotted(SEEDS[:8]):
        later = known[-1]._replace(end=known[-1].end._replace(offset=place.journal.end))
        assert findings(seed, place, [later]) == []
        tried += 1
    assert tried


def test_a_verification_begins_where_everything_behind_is_there() -> None:
    known = next(known for seed in SEEDS for _, known in simulated(seed))
    first, last = known[0], known[-1]
    assert beginning(known, 0, 0) is None
    assert beginning(known, first.end.offset + 1, 0) == first
    assert beginning(known, last.end.offset + 1, last.end.ingest_to) == last
    assert beginning(known, last.end.offset + 2, 0) is None
    assert beginning(known, 0, 0, since_ms=last.end.now_ms) == last
