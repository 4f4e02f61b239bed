"""Products with one rule switched off: a patch on a copy of the sources, run until the simulator finds it out.

The patches in `mutants/` say in their first line which rule they switch off, and some of them in a second one the kinds
of runs that can show it: "Seeds having: moves losses". A mutant that no seed kills means that the simulator does not
prove its rule. `python -m tests.simulation.mutation [NAME…] [--jobs 2] [--json]` hunts all of them,
or those that are named; the exit code is 1 when one lives.

With `--judge verifier` only what `konverse verify` finds in the logs kills a mutant. Those of `unseen_in_logs.toml`
leave nothing there and are not hunted then, unless they are named.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.markup import escape
from rich.progress import track

from tests.kit.simulator.failure import Judge

ROOT: Final = Path(__file__).resolve().parents[2]
PATCHES: Final = ROOT / "tests" / "simulation" / "mutants"
UNSEEN: Final = PATCHES / "unseen_in_logs.toml"
FOLDERS: Final = ("schemas", "dialog", "routing", "bridge")
SEEDS_MAX: Final = 1_000
TIMEOUT_S: Final = 600.0
STALE: Final = ("NameError", "UnboundLocalError", "AttributeError", "TypeError", "ImportError", "SyntaxError")
"""What a mutant dies of whose patch still fits, on sources that have moved on."""


class PatchFailed(Exception):
    """The sources have moved on: make the patch anew."""


@dataclass(frozen=True, slots=True)
class Fate:
    """What became of a mutant."""

    seed: int | None
    """The seed that killed it; None when it lived."""
    seeds: int
    error: str


def mutants() -> list[Path]:
    """All patches."""
    return sorted(PATCHES.glob("*.patch"))


def unseen() -> dict[str, str]:
    """Mutants whose logs are right, or right as far as the verifier judges, each with the reason."""
    groups = tomllib.loads(UNSEEN.read_text(encoding="utf-8"))["unseen"]
    return {name: group["reason"] for group in groups for name in group["mutants"]}


def having(patch: Path) -> list[str]:
    """Kinds of runs that can show what a patch breaks; none: any can."""
    found = re.search(r"^Seeds having: (.+)$", patch.read_text(encoding="utf-8"), re.MULTILINE)
    return found[1].split() if found else []


def build(folder: Path, patch: Path | None) -> None:
    """A package `konverse` in `folder`, as it is or with one patch."""
    package = folder / "konverse"
    shutil.copytree(ROOT / ".namespace" / "konverse", package, ignore=shutil.ignore_patterns("__pycache__"))
    for name in FOLDERS:
        shutil.copytree(ROOT / name, package / name, ignore=shutil.ignore_patterns("__pycache__"))
    if patch is not None:
        apply(package, patch)


def apply(package: Path, patch: Path, *options: str) -> None:
    """Switch off a rule in the package in that folder; with the option --check only look whether that can be done."""
    done = subprocess.run(
        ["git", "apply", "-C1", "-p1", *options, str(patch)],
        cwd=package,
        env={**os.environ, "GIT_CEILING_DIRECTORIES": str(package.parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise PatchFailed(f"{patch.name} does not apply: {done.stderr.strip()}")


def hunt(folder: Path, seeds_max: int = SEEDS_MAX, judge: Judge = Judge.ALL, kinds: Sequence[str] = ()) -> Fate:
    """Run seeds, of runs of these kinds, with the package in `folder` until one fails."""
    path = os.pathsep.join((str(folder), str(ROOT)))
    command = ["--seeds", str(seeds_max), "--stop", "--skip-regressions", "--json", "--judge", judge]
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
        raise PatchFailed(f"the mutant does not run, which says nothing of its rule: {fate.error}")
    return fate


def hunt_all(
    patches: Sequence[Path], seeds_max: int, jobs: int, judge: Judge = Judge.ALL
) -> Iterator[tuple[str, Fate]]:
    """Name and fate of each mutant, as soon as it is known."""
    with ThreadPoolExecutor(jobs) as threads:
        for done in as_completed([threads.submit(_hunt_one, patch, seeds_max, judge) for patch in patches]):
            yield done.result()


def _hunt_one(patch: Path, seeds_max: int, judge: Judge) -> tuple[str, Fate]:
    with tempfile.TemporaryDirectory(prefix="konverse-mutant-") as name:
        folder = Path(name)
        build(folder, patch)
        return patch.stem, hunt(folder, seeds_max, judge, having(patch))


def main() -> int:
    """Hunt, show; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.mutation", description="Hunt mutants.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="of a patch in mutants/ (default: all)")
    parser.add_argument("--seeds", type=int, default=SEEDS_MAX, metavar="N", help=f"at most (default {SEEDS_MAX})")
    parser.add_argument("--jobs", type=int, default=2, metavar="J", help="processes")
    parser.add_argument("--judge", type=Judge, choices=[*Judge], default=Judge.ALL, help="who may kill them")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    unknown = {*arguments.names} - {patch.stem for patch in mutants()}
    if unknown:
        parser.error(f"no such mutants: {', '.join(sorted(unknown))}")
    spared = unseen() if arguments.judge is Judge.VERIFIER else {}
    wanted = arguments.names or [patch.stem for patch in mutants() if patch.stem not in spared]
    patches = [patch for patch in mutants() if patch.stem in wanted]
    console = Console(stderr=arguments.json)
    hunted = hunt_all(patches, arguments.seeds, arguments.jobs, arguments.judge)
    fates: dict[str, Fate] = {}
    for name, fate in track(hunted, "mutants", len(patches), console=console, transient=True):
        fates[name] = fate
        lives = f"[red]lives[/] {escape(fate.error)}"
        console.print(f"{name}: {lives if fate.seed is None else f'seed {fate.seed}, the {fate.seeds}.'}")
    alive = [name for name, fate in fates.items() if fate.seed is None]
    if arguments.json:
        print(json.dumps({name: asdict(fate) for name, fate in sorted(fates.items())}, indent=1))
    else:
        console.print(f"{len(fates)} mutants, {len(alive)} alive after {arguments.seeds} seeds", *alive)
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main())
