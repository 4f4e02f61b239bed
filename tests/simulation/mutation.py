"""Hunts mutants (`tests.simulation.mutant`): runs the simulator on each until a seed fails.

A mutant that survives all seeds shows that the simulator does not prove its rule.
`python -m tests.simulation.mutation [NAME…] [--jobs 2] [--keep] [--json]` hunts all mutants, or the named ones. The
exit code is 1 when one survives.

With `--judge verifier` only findings of `konverse verify` in the logs kill a mutant. The mutants of
`unseen_in_logs.toml` leave no error in a log and are then hunted only by name.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.markup import escape
from rich.progress import track

from tests.kit.simulator.failure import Judge
from tests.simulation.mutant import Mutant, MutantDoesNotFit

ROOT: Final = Path(__file__).resolve().parents[2]
MUTANTS: Final = ROOT / "tests" / "simulation" / "mutants"
UNSEEN: Final = MUTANTS.with_name("unseen_in_logs.toml")
KILLED_BY: Final = MUTANTS.with_name("killed_by.json")
"""The seed that killed each mutant at the last `--keep`. It is tried first; most mutants die of it again."""
FOLDERS: Final = ("schemas", "dialog", "routing", "bridge")
SEEDS_MAX: Final = 1_000
TIMEOUT_S: Final = 600.0
STALE: Final = ("NameError", "UnboundLocalError", "AttributeError", "TypeError", "ImportError", "SyntaxError")
"""Errors of a mutant that fits but no longer suits the sources."""


@dataclass(frozen=True, slots=True)
class Fate:
    """Result of a hunt."""

    seed: int | None
    """The seed that killed the mutant; None when it survived."""
    seeds: int
    error: str


def mutants() -> list[Mutant]:
    """All mutants."""
    return [Mutant.read(path) for path in sorted(MUTANTS.glob("*.toml"))]


def mutant(name: str) -> Mutant:
    """The mutant of that name."""
    return Mutant.read(MUTANTS / f"{name}.toml")


def unseen() -> dict[str, str]:
    """Mutants without an error in the logs that the verifier could find → the reason."""
    groups = tomllib.loads(UNSEEN.read_text(encoding="utf-8"))["unseen"]
    return {name: group["reason"] for group in groups for name in group["mutants"]}


def killed_by() -> dict[str, int]:
    """Name of a mutant → the seed to try first."""
    seeds: dict[str, int] = json.loads(KILLED_BY.read_text(encoding="utf-8"))
    return seeds


def keep(fates: Mapping[str, Fate]) -> None:
    """Record the seeds that killed mutants, and drop those of deleted mutants."""
    found = {name: fate.seed for name, fate in fates.items() if fate.seed is not None}
    known = {one.name for one in mutants()}
    seeds = {name: seed for name, seed in sorted({**killed_by(), **found}.items()) if name in known}
    KILLED_BY.write_text(json.dumps(seeds, indent=0) + "\n", encoding="utf-8")


def build(folder: Path, mutant: Mutant | None) -> None:
    """Build a package `konverse` in `folder`, with or without a mutant. Raises MutantDoesNotFit."""
    package = folder / "konverse"
    shutil.copytree(ROOT / ".namespace" / "konverse", package, ignore=shutil.ignore_patterns("__pycache__"))
    for name in FOLDERS:
        shutil.copytree(ROOT / name, package / name, ignore=shutil.ignore_patterns("__pycache__"))
    if mutant is not None:
        mutant.apply(package)


def hunt(
    folder: Path, seeds_max: int = SEEDS_MAX, judge: Judge = Judge.ALL, kinds: Sequence[str] = (), first: int = 0
) -> Fate:
    """Run seeds of runs of these kinds with the package in `folder` until one fails."""
    path = os.pathsep.join((str(folder), str(ROOT)))
    command = [
        "--first",
        str(first),
        "--seeds",
        str(seeds_max),
        "--stop",
        "--skip-regressions",
        "--json",
        "--judge",
        judge,
    ]
    command += ["--having", *kinds] if kinds else []
    try:
        done = subprocess.run(
            [sys.executable, "-m", "tests.simulation", *command],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Fate(None, 0, f"the simulator did not end within {TIMEOUT_S:.0f} s")
    if done.returncode not in (0, 1) or not done.stdout:
        raise RuntimeError(f"the simulator did not run: {done.stderr}")
    result = json.loads(done.stdout)
    assert Path(result["konverse"]).is_relative_to(folder), "it ran with another package than the mutant"
    if not result["failures"]:
        return Fate(None, result["seeds"], "")
    fate = Fate(result["failures"][0]["seed"], result["seeds"], result["failures"][0]["error"])
    if fate.error.strip().rpartition("\n")[2].startswith(STALE):
        raise MutantDoesNotFit(f"the mutant does not run, which says nothing of its rule: {fate.error}")
    return fate


def hunt_all(
    found: Sequence[Mutant], seeds_max: int, jobs: int, judge: Judge = Judge.ALL
) -> Iterator[tuple[str, Fate]]:
    """Name and fate of each mutant, in order of completion."""
    with ThreadPoolExecutor(jobs) as threads:
        for done in as_completed([threads.submit(_hunt_one, one, seeds_max, judge) for one in found]):
            yield done.result()


def _hunt_one(mutant: Mutant, seeds_max: int, judge: Judge) -> tuple[str, Fate]:
    with tempfile.TemporaryDirectory(prefix="konverse-mutant-") as name:
        folder = Path(name)
        build(folder, mutant)
        known = killed_by().get(mutant.name) if judge is Judge.ALL else None
        fate = hunt(folder, 1, judge, first=known) if known is not None else None
        return mutant.name, fate if fate and fate.seed is not None else hunt(folder, seeds_max, judge, mutant.kinds)


def main() -> int:
    """Hunt and show the result; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.mutation", description="Hunt mutants.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="of a file in mutants/ (default: all)")
    parser.add_argument("--seeds", type=int, default=SEEDS_MAX, metavar="N", help=f"at most (default {SEEDS_MAX})")
    parser.add_argument("--jobs", type=int, default=2, metavar="J", help="processes")
    parser.add_argument("--judge", type=Judge, choices=[*Judge], default=Judge.ALL, help="who may kill them")
    parser.add_argument("--keep", action="store_true", help="note the seeds that kill them, for the next time")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    known = mutants()
    unknown = {*arguments.names} - {one.name for one in known}
    if unknown:
        parser.error(f"no such mutants: {', '.join(sorted(unknown))}")
    spared = unseen() if arguments.judge is Judge.VERIFIER else {}
    wanted = [one for one in known if one.name in arguments.names or not (arguments.names or one.name in spared)]
    console = Console(stderr=arguments.json)
    hunted = hunt_all(wanted, arguments.seeds, arguments.jobs, arguments.judge)
    fates: dict[str, Fate] = {}
    for name, fate in track(hunted, "mutants", len(wanted), console=console, transient=True):
        fates[name] = fate
        lives = f"[red]lives[/] {escape(fate.error)}"
        console.print(f"{name}: {lives if fate.seed is None else f'seed {fate.seed}, the {fate.seeds}.'}")
    if arguments.keep and arguments.judge is Judge.ALL:
        keep(fates)
    alive = [name for name, fate in fates.items() if fate.seed is None]
    if arguments.json:
        print(json.dumps({name: asdict(fate) for name, fate in sorted(fates.items())}, indent=1))
    else:
        console.print(f"{len(fates)} mutants, {len(alive)} alive after {arguments.seeds} seeds", *alive)
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main())
