"""The verifier holds snapshots against what the logs come to where they were made (I3)."""

from __future__ import annotations

from functools import cache

import pytest

from konverse.bridge.verifier.check import Finding, judge
from konverse.bridge.verifier.starting import Start, beginning, starts
from tests.kit.simulator.choices import Choices
from tests.kit.simulator.places import Place
from tests.kit.simulator.swarm import draw
from tests.kit.simulator.tuning import tuned
from tests.kit.simulator.world import World

SEEDS = [seed for seed in range(12) if not draw(Choices(seed, None)).small_mailboxes]
"""Runs that keep the product's own bounds of what is state."""


@cache
def simulated(seed: int) -> list[tuple[Place, list[Start]]]:
    """The partitions that have several snapshots, with these."""
    choices = Choices(seed, None)
    swarm = draw(choices)
    with tuned(choices, swarm):
        world = World(choices, swarm)
        world.run()
    found = [(place, starts(place.snapshots.records, place.verified().identity)) for place in world.places]
    return [(place, known) for place, known in found if len({start.end.offset for start in known}) > 1]


def findings(place: Place, snapshots: list[Start]) -> list[Finding]:
    verified = place.verified()._replace(snapshots=snapshots)
    return judge(verified, place.journal.records, place.data.records, ()).findings


@pytest.mark.parametrize("seed", SEEDS)
def test_snapshots_are_what_the_logs_come_to(seed: int) -> None:
    for place, known in simulated(seed):
        assert findings(place, known) == []


def test_a_snapshot_that_says_otherwise_is_refuted() -> None:
    tried = 0
    for place, known in [pair for seed in SEEDS for pair in simulated(seed)]:
        early, late = known[0], known[-1]
        moved = early._replace(end=early.end._replace(offset=late.end.offset))
        found = findings(place, [moved])
        assert {finding.rule for finding in found} == {"I3"}, place.name
        assert f"the snapshot of journal offset {late.end.offset}" in found[0].text
        tried += 1
    assert tried > 3


def test_a_snapshot_from_behind_the_journal_that_was_read_is_passed_over() -> None:
    for place, known in simulated(SEEDS[0]) or simulated(SEEDS[1]):
        later = known[-1]._replace(end=known[-1].end._replace(offset=place.journal.end))
        assert findings(place, [later]) == []


def test_a_verification_begins_where_everything_behind_is_there() -> None:
    known = next(known for seed in SEEDS for _, known in simulated(seed))
    first, last = known[0], known[-1]
    assert beginning(known, 0, 0) is None
    assert beginning(known, first.end.offset + 1, 0) == first
    assert beginning(known, last.end.offset + 1, last.end.ingest_to) == last
    assert beginning(known, last.end.offset + 2, 0) is None
    assert beginning(known, 0, 0, since_ms=last.end.now_ms) == last
