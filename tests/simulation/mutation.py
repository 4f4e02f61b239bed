"""Products with one rule switched off: a patch on a copy of the sources, run until the simulator finds it out.

The patches in `mutants/` say in their first line which rule they switch off. A mutant that no seed kills means that the
simulator does not prove its rule.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
PATCHES: Final = ROOT / "tests" / "simulation" / "mutants"
FOLDERS: Final = ("schemas", "dialog", "routing")
SEEDS_MAX: Final = 300
TIMEOUT_S: Final = 100.0


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


def build(folder: Path, patch: Path | None, folders: Sequence[str] = FOLDERS) -> None:
    """A package `konverse` in `folder`: the pure core, or more, as it is or with one patch."""
    package = folder / "konverse"
    shutil.copytree(ROOT / ".namespace" / "konverse", package, ignore=shutil.ignore_patterns("__pycache__"))
    for name in folders:
        shutil.copytree(ROOT / name, package / name, ignore=shutil.ignore_patterns("__pycache__"))
    if patch is None:
        return
    done = subprocess.run(
        ["git", "apply", "-C1", "-p1", str(patch)],
        cwd=package,
        env={**os.environ, "GIT_CEILING_DIRECTORIES": str(folder.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise PatchFailed(f"{patch.name} does not apply: {done.stderr.strip()}")


def hunt(folder: Path, seeds_max: int = SEEDS_MAX) -> Fate:
    """Run seeds with the package in `folder` until one fails."""
    path = os.pathsep.join((str(folder), str(ROOT)))
    command = ["--seeds", str(seeds_max), "--stop", "--skip-regressions", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulation", *command],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    if done.returncode not in (0, 1) or not done.stdout:
        raise RuntimeError(f"the simulator did not run: {done.stderr}")
    result = json.loads(done.stdout)
    assert Path(result["konverse"]).is_relative_to(folder), "it ran with another package than the mutant"
    if not result["failures"]:
        return Fate(None, result["seeds"], "")
    return Fate(result["failures"][0]["seed"], result["seeds"], result["failures"][0]["error"])
