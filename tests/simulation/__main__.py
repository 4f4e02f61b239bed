"""`python -m tests.simulation --seeds N [--first F] [--having KIND…] [--seconds S] [--replay SEED] [--json]`.

Runs seeds of the simulator after the seeds of old failures. A failing seed is printed with its error and the command
that repeats it; the exit code is then 1. `--replay` runs one seed and prints its events, append by append.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict
from itertools import chain
from typing import Any, Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

import konverse
from tests.kit.simulator.failure import Judge
from tests.kit.simulator.run import simulate
from tests.kit.simulator.shrink import shrink
from tests.kit.simulator.sometimes import PATHS, RARE
from tests.kit.simulator.swarm import Swarm
from tests.simulation.runner import Failure, Tally, regression_seeds, run, run_everywhere, seeds_from

SEEDS: Final = 300
FAILURES_SHOWN_MAX: Final = 5
SHRINK_S: Final = 60.0
RARE_SEEDS: Final = 50_000
"""The rarest paths are required only of runs with this many seeds."""


def main() -> int:
    """Run seeds and show the result; returns the exit code."""
    arguments = _parser().parse_args()
    console = Console(stderr=arguments.json)
    if arguments.replay is not None:
        return _replay(console, arguments)
    seconds_before = time.monotonic()
    number = arguments.seeds if arguments.seeds is not None or arguments.seconds is not None else SEEDS
    old = [] if arguments.skip_regressions else regression_seeds()
    seeds = chain(old, seeds_from(arguments.first, number, arguments.having))
    if arguments.stop:
        tally = run(seeds, stop=True, judge=arguments.judge)
    else:
        tally = _run(console, seeds, None if number is None else len(old) + number, arguments)
    seconds = time.monotonic() - seconds_before
    missing = _asked_for(tally) if arguments.all_paths else []
    if arguments.json:
        print(json.dumps(_as_json(tally, arguments, seconds), indent=1))
    else:
        _show(console, tally, seconds, missing)
    return 1 if tally.failures or missing else 0


def _asked_for(tally: Tally) -> list[str]:
    return [path for path in tally.missing if path not in RARE or tally.seeds >= RARE_SEEDS]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description="Run the seeded simulator.")
    parser.add_argument("--seeds", type=int, metavar="N", help=f"how many (default {SEEDS})")
    parser.add_argument("--first", type=int, default=0, metavar="F", help="the first seed")
    parser.add_argument(
        "--having",
        nargs="+",
        choices=sorted({*Swarm.__dataclass_fields__, "naming"}),
        default=(),
        metavar="KIND",
        help="only seeds whose runs have something of these fields of the swarm, as in --having moves losses",
    )
    parser.add_argument("--seconds", type=float, metavar="S", help="begin no seed after this long")
    parser.add_argument("--jobs", type=int, default=2, metavar="J", help="processes")
    parser.add_argument("--replay", type=int, metavar="SEED", help="run one seed and tell what happened")
    parser.add_argument("--shrink", action="store_true", help="with --replay: make the failing run smaller first")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--stop", action="store_true", help="one process, until the first seed fails")
    parser.add_argument("--skip-regressions", action="store_true", help="leave the old failures out")
    parser.add_argument(
        "--judge",
        type=Judge,
        choices=[*Judge],
        default=Judge.ALL,
        help="who judges: every check, or the verifier alone",
    )
    parser.add_argument("--all-paths", action="store_true", help="fail when a path was never walked")
    return parser


def _run(console: Console, seeds: Any, total: int | None, arguments: argparse.Namespace) -> Tally:
    tally = Tally()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("seeds", total=total)
        for part in run_everywhere(seeds, arguments.jobs, arguments.seconds, arguments.judge):
            tally.add(part)
            progress.update(task, advance=part.seeds, description=f"seeds, {len(tally.failures)} failed")
            for failure in part.failures:
                if len(tally.failures) <= FAILURES_SHOWN_MAX:
                    _show_failure(console, failure, arguments.judge)
    return tally


def _show_failure(console: Console, failure: Failure, judge: Judge) -> None:
    console.print(f"seed {failure.seed} failed", style="bold red")
    console.print(failure.error, markup=False, highlight=False)
    option = "" if judge is Judge.ALL else f" --judge {judge}"
    console.print(f"again: python -m tests.simulation --replay {failure.seed}{option}\n", markup=False, highlight=False)


def _show(console: Console, tally: Tally, seconds: float, missing: list[str]) -> None:
    table = Table("times", "rare path", "which means", box=None)
    for path, meaning in PATHS.items():
        table.add_row(str(tally.paths[path]), path, meaning, style="" if tally.paths[path] else "yellow")
    console.print(table)
    if missing:
        console.print(f"never walked: {', '.join(missing)}", style="red", markup=False)
    console.print(
        f"{tally.seeds} seeds, {len(tally.failures)} failed, {tally.choices:,} choices, {seconds:.1f} s, "
        f"{tally.seeds / seconds:.1f} seeds/s, trace {tally.trace}",
        highlight=False,
    )
    if tally.failures:
        seeds = " ".join(str(failure.seed) for failure in tally.failures[:20])
        console.print(f"failed: {seeds}", style="bold red", highlight=False)


def _as_json(tally: Tally, arguments: argparse.Namespace, seconds: float) -> dict[str, Any]:
    return {
        "konverse": konverse.__file__,
        "first": arguments.first,
        "seeds": tally.seeds,
        "seconds": round(seconds, 2),
        "choices": tally.choices,
        "trace": tally.trace,
        "failures": [asdict(failure) for failure in tally.failures],
        "paths": {path: tally.paths[path] for path in PATHS},
    }


def _replay(console: Console, arguments: argparse.Namespace) -> int:
    seed, judge = arguments.replay, arguments.judge
    result = simulate(seed, told=True, judge=judge)
    if arguments.shrink and result.error is not None:
        deadline = time.monotonic() + SHRINK_S
        choices = shrink(seed, result.choices, lambda: time.monotonic() < deadline, judge)
        console.print(f"{len(result.choices)} choices, {len(choices)} after shrinking", highlight=False)
        result = simulate(seed, choices, told=True, judge=judge)
    for line in result.story:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    console.print(f"seed {seed}, {len(result.choices)} choices, trace {result.trace}", highlight=False)
    console.print(result.error or "everything holds", markup=False, highlight=False)
    return 1 if result.error else 0


if __name__ == "__main__":
    sys.exit(main())
