"""Runs seeds in several processes and adds up the results."""

from __future__ import annotations

import hashlib
import multiprocessing
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import Final

from konverse.bridge.runtime.collector import prepare_collector
from tests.kit.simulator.choices import Choices
from tests.kit.simulator.failure import Judge
from tests.kit.simulator.run import simulate
from tests.kit.simulator.sometimes import Sometimes
from tests.kit.simulator.swarm import draw

REGRESSIONS: Final = Path(__file__).with_name("regression_seeds.txt")
CHUNK_SEEDS: Final = 20
TWICE_EVERY: Final = 100
"""Each hundredth seed is run twice and must leave the same trace."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A seed that failed."""

    seed: int
    error: str


@dataclass(slots=True)
class Tally:
    """The results of some seeds."""

    seeds: int = 0
    choices: int = 0
    failures: list[Failure] = field(default_factory=list)
    paths: Counter[str] = field(default_factory=Counter)
    traces: dict[int, str] = field(default_factory=dict)

    def add(self, other: Tally) -> None:
        """Add another tally."""
        self.seeds += other.seeds
        self.choices += other.choices
        self.failures += other.failures
        self.paths += other.paths
        self.traces |= other.traces

    @property
    def trace(self) -> str:
        """One hash of all traces."""
        lines = "".join(f"{seed} {trace}\n" for seed, trace in sorted(self.traces.items()))
        return hashlib.sha256(lines.encode()).hexdigest()[:16]

    @property
    def missing(self) -> list[str]:
        """Rare paths that no seed walked."""
        return Sometimes.missing(self.paths)


def regression_seeds() -> list[int]:
    """The seeds of old failures."""
    lines = REGRESSIONS.read_text(encoding="utf-8").splitlines()
    return [int(line.split()[0]) for line in lines if line.strip() and not line.startswith("#")]


def run(seeds: Iterable[int], *, stop: bool = False, judge: Judge = Judge.ALL) -> Tally:
    """Run seeds in this process; with `stop` until the first that fails."""
    prepare_collector()
    tally = Tally()
    for seed in seeds:
        result = simulate(seed, judge=judge)
        error = result.error
        twice = seed % TWICE_EVERY == 0 and judge is Judge.ALL
        if error is None and twice and simulate(seed).trace != result.trace:
            error = "determinism: a second run of the same seed left another trace"
        tally.seeds += 1
        tally.choices += len(result.choices)
        tally.paths += result.paths
        tally.traces[seed] = result.trace
        if error is not None:
            tally.failures.append(Failure(seed, error))
            if stop:
                break
    return tally


def run_everywhere(seeds: Iterable[int], jobs: int, seconds: float | None, judge: Judge = Judge.ALL) -> Iterator[Tally]:
    """Run seeds in `jobs` processes until they or the seconds run out. Yields the tally of each chunk."""
    deadline = None if seconds is None else time.monotonic() + seconds
    chunks = chunked(seeds)
    run_chunk = partial(run, judge=judge)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        running: set[Future[Tally]] = {pool.submit(run_chunk, chunk) for chunk in islice(chunks, jobs * 2)}
        while running:
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()
            if deadline is None or time.monotonic() < deadline:
                running |= {pool.submit(run_chunk, chunk) for chunk in islice(chunks, len(done))}


def chunked(seeds: Iterable[int]) -> Iterator[list[int]]:
    """Seeds in lists of CHUNK_SEEDS."""
    iterator = iter(seeds)
    while chunk := list(islice(iterator, CHUNK_SEEDS)):
        yield chunk


def seeds_from(first: int, number: int | None, having: Collection[str] = ()) -> Iterable[int]:
    """`number` seeds from `first` on, or all. With `having`, only seeds whose swarm has all these kinds."""
    every: Iterable[int] = count(first)
    if having:
        every = (seed for seed in every if all(getattr(draw(Choices(seed)), kind) for kind in having))
    return every if number is None else islice(every, number)
