"""The checks, and how each is run."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, NamedTuple

from rich.console import Console
from rich.progress import track

ROOT: Final = Path(__file__).resolve().parents[2]
CACHE: Final = ROOT / ".cache" / "proof"

SEEDS: Final = 50_000
PART: Final = 2_500
"""Seeds of one part. An interrupted check continues behind the last complete part of the same code."""
EXAMPLES: Final = 20_000
WORDS_MIN: Final = 3
"""A printed line with so many words is a sentence, and no row of a table or picture."""


_SIMULATION: Final = (sys.executable, "-m", "tests.simulation")


class Result(NamedTuple):
    """Result of a check."""

    holds: bool
    words: str


class Check(NamedTuple):
    """A row of the page."""

    command: str
    """The command as a reader would type it."""
    run: Callable[[str], Result]
    """Runs the check on a commit."""
    means: str = ""
    """Details that the command does not show."""


def _program(*arguments: str, **environment: str) -> Callable[[str], Result]:
    """A check that runs a program. The result is its exit code and its last sentence, or else its last line."""

    def run(_commit: str) -> Result:
        CACHE.mkdir(parents=True, exist_ok=True)
        log = CACHE / "last.log"
        with log.open("w", encoding="utf-8") as out:
            code = subprocess.run(
                arguments,
                cwd=ROOT,
                env={**os.environ, **environment},
                stdout=out,
                stderr=subprocess.STDOUT,
                check=False,
            ).returncode
        printed = log.read_text("utf-8", "replace").splitlines()
        lines = [line.strip(" =") for line in printed if any(map(str.isalnum, line))]
        sentences = [line for line in lines if sum(map(str.isalpha, line.split())) >= WORDS_MIN]
        last = [*lines[-1:], *sentences[-1:]]
        return Result(
            code == 0, (last[-1] if last else "it printed nothing") + ("" if code == 0 else f" (exit {code})")
        )

    return run


_LOADED: Final = """
import sys
from tests.simulation.__main__ import main
sys.argv[1:] = ["--seeds", "1", "--skip-regressions", "--jobs", "1", "--json"]
main()
print(*sorted({module.__file__ for module in [*sys.modules.values()] if getattr(module, "__file__", None)}), sep="\\n")
"""
"""Runs a seed, and prints the files of all modules that it has loaded."""


def files_of_simulation() -> list[str]:
    """The files of this tree that a seed runs, relative to its root."""
    done = subprocess.run([sys.executable, "-c", _LOADED], cwd=ROOT, capture_output=True, text=True, check=True)
    here = f"{ROOT}{os.sep}"
    files = (line.removeprefix(here) for line in done.stdout.splitlines() if line.startswith(here))
    return [file for file in files if not file.startswith(".venv")]


def _digest(files: Iterable[str]) -> str:
    """A digest of these files. Commits that leave all of them alone share their seeds."""
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file}\0".encode() + (ROOT / file).read_bytes())
    return digest.hexdigest()[:16]


def _seeds(_commit: str) -> Result:
    """Run all seeds in parts, and require every path of all parts together."""
    folder = CACHE / f"seeds-{_digest(files_of_simulation())}"
    folder.mkdir(parents=True, exist_ok=True)
    paths, failed, choices = Counter[str](), [], 0
    for first in track(range(0, SEEDS, PART), "seeds", console=Console(stderr=True)):
        part = folder / f"{first}.json"
        if not part.exists():
            crash = _write_part(part, first)
            if crash:
                return Result(False, crash)
        found = json.loads(part.read_text("utf-8"))
        paths.update(found["paths"])
        failed += [failure["seed"] for failure in found["failures"]]
        choices += found["choices"]
    never = [path for path, times in paths.items() if not times]
    words = f"{SEEDS:,} seeds, {choices:,} choices, {len(failed)} failed"
    words += f": {failed[:10]}" if failed else ""
    words += f"; never walked: {', '.join(never)}" if never else f", each of {len(paths)} paths walked"
    return Result(not (failed or never), words)


def _write_part(part: Path, first: int) -> str:
    """Run the seeds of a part and keep a complete result. Returns a text about a crash, else an empty string."""
    done = subprocess.run(
        [*_SIMULATION, "--first", str(first), "--seeds", str(PART), "--skip-regressions", "--json"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        check=False,
    )
    try:
        whole = done.returncode in {0, 1} and json.loads(done.stdout).keys() >= {"paths", "failures", "choices"}
    except (ValueError, AttributeError):  # a traceback ends with 1, too, and writes no JSON
        whole = False
    if not whole:
        return f"the simulator crashed in seeds {first} to {first + PART - 1} (exit {done.returncode})"
    unfinished = part.with_suffix(".unfinished")
    unfinished.write_bytes(done.stdout)
    unfinished.replace(part)
    return ""


_PYTHON: Final = sys.executable
_PYTEST: Final = (_PYTHON, "-m", "pytest", "-q")

CHECKS: Final = {
    "seeds": Check("make proof CHECK=seeds", _seeds, f"{SEEDS:,} seeds of the simulator, all paths"),
    "mutants": Check("make mutants", _program("make", "mutants")),
    "properties": Check(
        "make proof CHECK=properties",
        _program(
            *_PYTEST,
            *("--numprocesses", "2"),
            "tests/properties",
            "tests/unit",
            "tests/spark",
            "-m",
            "not stack",
            KONVERSE_TEST_EXAMPLES=f"{EXAMPLES}",
        ),
        f"{EXAMPLES:,} examples of each, without those that need a Spark session",
    ),
    "chaos": Check("make chaos PROFILE=matrix", _program("make", "chaos", "PROFILE=matrix")),
    "nightly": Check("make nightly", _program("make", "nightly")),
    "compose": Check("make test-compose", _program("make", "test-compose")),
    "demo": Check("make demo", _program("make", "demo")),
    "demo-routing": Check("make demo-routing", _program("make", "demo-routing")),
    "demo-spark": Check("make demo-spark", _program("make", "demo-spark")),
    "bench": Check("make bench", _program("make", "bench")),
}
