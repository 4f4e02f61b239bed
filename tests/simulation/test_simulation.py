"""Seeds beyond those of `make test`, and properties of a seed. `make seeds` also runs the seeds that failed once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from array import array
from itertools import pairwise
from types import SimpleNamespace
from typing import Final

import pytest

from tests.kit.simulator.choices import Choices
from tests.kit.simulator.failure import Judge
from tests.kit.simulator.run import simulate
from tests.kit.simulator.shrink import shrink
from tests.kit.simulator.sometimes import PATHS, Sometimes
from tests.kit.simulator.swarm import draw
from tests.kit.simulator.world import World
from tests.simulation.runner import CHUNK_SEEDS, Tally, chunked, run, seeds_from

pytestmark = pytest.mark.timeout(600)  # nothing here waits; a slow machine takes five times as long as a fast one

FIRST: Final = 1_500
"""`make seeds`, a part of `make test`, runs the seeds before this one, and requires every path of them."""

TRACED: Final = 5


def counts(sample: int, whole: int) -> pytest.MarkDecorator:
    """Run the test with a sample of its seeds, and at night with all: the seeds of `make test` hold the same rules."""
    return pytest.mark.parametrize("count", [sample, pytest.param(whole, marks=pytest.mark.nightly)])


def held(tally: Tally) -> str:
    """The failures of a tally as text; empty when there are none."""
    return "\n\n".join(
        f"{failure.error}\nagain: python -m tests.simulation --replay {failure.seed}" for failure in tally.failures
    )


@counts(12, 60)
def test_every_invariant_holds_in_every_seeded_run(count: int) -> None:
    assert not held(run(range(FIRST, FIRST + count)))


@counts(20, 60)
def test_every_invariant_that_is_kept_holds_when_data_is_lost(count: int) -> None:
    assert not held(run(seeds_from(FIRST, count, ["losses"])))


@counts(6, 15)
def test_every_sender_is_heard_when_strangers_forge_its_records(count: int) -> None:
    assert not held(run(seeds_from(FIRST, count, ["forgers"])))


@counts(15, 60)
def test_the_verifier_alone_holds_the_product_to_be_right(count: int) -> None:
    assert not held(run(range(count), judge=Judge.VERIFIER))


def test_the_verifier_alone_judges_the_logs_that_a_broken_product_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(world: World) -> None:
        for _ in range(200):
            world._step()
        world.fail("I1: something")
        raise KeyError

    monkeypatch.setattr("tests.kit.simulator.world.World.run", breaks)
    assert simulate(3).error == "I1: something"
    assert simulate(3, judge=Judge.VERIFIER).error is None
    monkeypatch.setattr("tests.kit.simulator.run.refuted", lambda world: f"I8: {world.steps}")
    assert simulate(3, judge=Judge.VERIFIER).error == "I8: 200"


def test_a_seed_leaves_the_same_trace_in_every_process() -> None:
    traces = {_trace_of_a_process(hash_seed) for hash_seed in ("0", "1", "4711")}
    assert traces == {run(range(TRACED)).trace}


def _trace_of_a_process(hash_seed: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulation", "--seeds", str(TRACED), "--stop", "--skip-regressions", "--json"],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    return str(json.loads(done.stdout)["trace"])


def test_the_record_of_a_run_repeats_it() -> None:
    run_once = simulate(7, told=True)
    again = simulate(7, run_once.choices, told=True)
    assert (again.trace, again.story) == (run_once.trace, run_once.story)


def test_a_run_without_choices_is_harmless_and_holds() -> None:
    result = simulate(0, [])
    assert result.error is None
    assert not any(result.choices)
    faults = ("gap", "producer replaced", "owner crashed", "session crashed", "append unknown", "rolled back")
    assert [path for path in faults if result.paths[path]] == []


def test_the_same_number_is_chosen_again_and_0_is_never_a_fault() -> None:
    drawn = Choices(1)
    numbers = [drawn.choose(n) for n in (2, 10, 1_000, 1)]
    recorded = Choices(2, drawn.taken)
    assert [recorded.choose(n) for n in (2, 10, 1_000, 1)] == numbers
    assert not Choices(0, [0]).chance(999)
    assert Choices(0, [999]).chance(1)


def test_seeds_are_cut_into_chunks() -> None:
    chunks = list(chunked(seeds_from(5, CHUNK_SEEDS + 1)))
    assert chunks == [list(range(5, 5 + CHUNK_SEEDS)), [5 + CHUNK_SEEDS]]


def test_seeds_of_some_kinds_of_runs_are_chosen() -> None:
    swarms = [draw(Choices(seed)) for seed in seeds_from(0, 10, ["moves", "losses"])]
    assert len(swarms) == 10
    assert all(swarm.moves and swarm.losses for swarm in swarms)
    assert [*seeds_from(3, 2)] == [3, 4]


def test_a_path_that_was_never_walked_is_named() -> None:
    sometimes = Sometimes()
    for path in PATHS:
        sometimes.happened(path, path != "gap")
    assert Sometimes.missing(sometimes.counts) == ["gap"]


def test_a_failing_run_is_made_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails_with_7_before_9(_seed: int, choices: array[int], **_options: object) -> SimpleNamespace:
        without = [choice for choice in choices if choice in (7, 9)]
        return SimpleNamespace(error="I1: here" if (7, 9) in pairwise(without) else None)

    monkeypatch.setattr("tests.kit.simulator.shrink.simulate", fails_with_7_before_9)
    long = array("H", [*range(1, 9), 5, 5, 5, 9, *range(1, 20)])
    assert shrink(0, long, lambda: True).tolist() == [7, 9]
    assert shrink(0, long, lambda: False) == long
