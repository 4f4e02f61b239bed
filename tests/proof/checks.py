"""The checks, and how each is run."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple
from xml.etree import ElementTree as ET

from rich.console import Console
from rich.progress import track

ROOT: Final = Path(__file__).resolve().parents[2]
CACHE: Final = ROOT / ".cache" / "proof"
PARTS: Final = ROOT / "tests" / "proof" / "parts.json"

SEEDS: Final = 50_000
PART: Final = 2_500
"""Seeds of one part. An interrupted check continues with the parts that the same code has not run yet."""
EXAMPLES: Final = 20_000
NO_TESTS: Final = 5
"""Exit code of pytest when it has selected no test."""
_VERDICT: Final = re.compile(r"^(Verdict|Verified|Held)\b|\b\d+ passed\b")
"""Begins or is a line in which a demo, the chaos campaign or pytest gives its result."""
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


def _program(*arguments: str) -> Callable[[str], Result]:
    """A check that runs a program. The result is its exit code and its last sentence, or else its last line."""

    def run(_commit: str) -> Result:
        CACHE.mkdir(parents=True, exist_ok=True)
        log = CACHE / log_name(*arguments)
        with log.open("w", encoding="utf-8") as out:
            code = subprocess.run(
                arguments,
                cwd=ROOT,
                stdout=out,
                stderr=subprocess.STDOUT,
                check=False,
            ).returncode
        words = result_in(log.read_text("utf-8", "replace").splitlines())
        return Result(code == 0, words + ("" if code == 0 else f" (exit {code})"))

    return run


def log_name(*arguments: str) -> str:
    """The name of the file that keeps what this command line has printed; each check has its own."""
    return re.sub(r"[^a-z]+", "-", " ".join(arguments[1:]).lower())[:60].strip("-") + ".log"


def result_in(printed: Iterable[str]) -> str:
    """The result in what a program has printed: its last verdict, or else its last sentence, or else its last line."""
    lines = [line.strip(" =") for line in printed if any(map(str.isalnum, line))]
    verdicts = [line for line in lines if _VERDICT.search(line)]
    sentences = [line for line in lines if sum(map(str.isalpha, line.split())) >= WORDS_MIN]
    last = [*lines[-1:], *sentences[-1:], *verdicts[-1:]]
    return last[-1] if last else "it printed nothing"


_LOADED: Final = """
import contextlib, io, runpy, sys
sys.argv = sys.argv[1:]
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    runpy.run_module(sys.argv[0], run_name="__main__")
print(*sorted({module.__file__ for module in [*sys.modules.values()] if getattr(module, "__file__", None)}), sep="\\n")
"""
"""Runs a module, and prints the files of all modules that it has loaded."""


def files_of(*command: str) -> list[str]:
    """The files of this tree that `python -m …` loads, relative to its root."""
    done = subprocess.run(
        [sys.executable, "-c", _LOADED, *command], cwd=ROOT, capture_output=True, text=True, check=True
    )
    here = f"{ROOT}{os.sep}"
    files = (line.removeprefix(here) for line in done.stdout.splitlines() if line.startswith(here))
    return sorted(file for file in files if not file.startswith(".venv"))


def files_of_simulation() -> list[str]:
    """The files of this tree that a seed runs, relative to its root."""
    return files_of("tests.simulation", "--seeds", "1", "--skip-regressions", "--jobs", "1", "--json")


def digest_of(files: Iterable[str]) -> str:
    """A digest of the code in these files. Commits that change at most comments and docstrings share their parts."""
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file}\0".encode() + code_of((ROOT / file).read_text("utf-8")))
    return digest.hexdigest()[:16]


def code_of(source: str) -> bytes:
    """The syntax tree of a module without comments and docstrings."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            body[:] = [one for one in body if not _is_text(one)]
    return ast.dump(tree).encode()


def _is_text(node: ast.AST) -> bool:
    """Whether a statement is a string alone: a docstring, or the text under a constant."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


class Parts:
    """Results of the parts of a check, kept in PARTS with the digest of the code that they ran.

    The file is committed, so a check may run in several sittings and on several machines. A part is run again when its
    code has changed. One that has "holds": false is run again in any case, because the check itself may have changed.
    """

    def __init__(self, check: str) -> None:
        self._check = check

    def run(
        self, wanted: Mapping[str, str], one: Callable[[str], dict[str, Any]], *, at_once: int = 1
    ) -> list[dict[str, Any]]:
        """The results of all parts, `wanted` by name and digest. Runs those that are not known yet, `at_once` of them.

        Raises what `one` raises; no further part begins then.
        """
        known = self._known()
        held = {name: part["digest"] for name, part in known.items() if part.get("holds", True)}
        unknown = [name for name, digest in wanted.items() if held.get(name) != digest]
        with ThreadPoolExecutor(at_once) as threads:
            begun = ((name, threads.submit(one, name)) for name in unknown)
            running = dict(islice(begun, at_once))
            for _ in track(unknown, self._check, console=Console(stderr=True)):
                wait(running.values(), return_when=FIRST_COMPLETED)
                name = next(name for name, part in running.items() if part.done())
                self._keep({**self._known(), name: {"digest": wanted[name], **running.pop(name).result()}}, wanted)
                running.update(islice(begun, 1))
        return [self._known()[name] for name in wanted]

    def _known(self) -> dict[str, dict[str, Any]]:
        return _kept_parts().get(self._check, {})

    def _keep(self, parts: dict[str, dict[str, Any]], wanted: Mapping[str, str]) -> None:
        """Write the file anew, without parts that are wanted no more."""
        kept = _kept_parts() | {self._check: {name: part for name, part in parts.items() if name in wanted}}
        unfinished = PARTS.with_suffix(".unfinished")
        unfinished.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n", "utf-8")
        unfinished.replace(PARTS)


def _kept_parts() -> dict[str, dict[str, dict[str, Any]]]:
    return json.loads(PARTS.read_text("utf-8")) if PARTS.exists() else {}


class _CrashedError(Exception):
    """A program of a part ended without a result."""


def _seeds(_commit: str) -> Result:
    """Run all seeds in parts, and require every path of all parts together."""
    digest = digest_of(files_of_simulation())
    try:
        parts = Parts("seeds").run({str(first): digest for first in range(0, SEEDS, PART)}, _seeds_from)
    except _CrashedError as crash:
        return Result(False, str(crash))
    failed = [seed for part in parts for seed in part["failed"]]
    never = set.intersection(*(set(part["never"]) for part in parts))
    words = f"{SEEDS:,} seeds, {sum(part['choices'] for part in parts):,} choices, {len(failed)} failed"
    words += f": {failed[:10]}" if failed else ""
    words += f"; never walked: {', '.join(sorted(never))}" if never else f", each of {parts[0]['paths']} paths walked"
    return Result(not (failed or never), words)


def _seeds_from(first: str) -> dict[str, Any]:
    """Run the seeds of a part. Raises _CrashedError unless the simulator printed a complete result."""
    done = subprocess.run(
        [*_SIMULATION, "--first", first, "--seeds", str(PART), "--skip-regressions", "--json"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        check=False,
    )
    found: Any = None
    try:
        found = json.loads(done.stdout)
        whole = done.returncode in {0, 1} and found.keys() >= {"paths", "failures", "choices"}
    except (ValueError, AttributeError):  # a traceback ends with 1, too, and writes no JSON
        whole = False
    if not whole:
        last = int(first) + PART - 1
        raise _CrashedError(f"the simulator crashed in seeds {first} to {last} (exit {done.returncode})")
    return {
        "choices": found["choices"],
        "failed": [failure["seed"] for failure in found["failures"]],
        "paths": len(found["paths"]),
        "never": sorted(path for path, times in found["paths"].items() if not times),
    }


def _properties(_commit: str) -> Result:
    """Run each file with properties that need no Spark session, with many examples."""
    wanted = {file: digest_of(files_of("tests.proof.importing", file)) for file in files_with_properties()}
    parts = Parts("properties").run(wanted, _properties_of, at_once=2)  # the cores that the page counts in
    failed = [file for file, part in zip(wanted, parts, strict=True) if not part["holds"]]
    words = f"{len(wanted)} files, {sum(part['passed'] for part in parts):,} properties and tests passed"
    return Result(not failed, words + (f"; failed: {', '.join(failed)}" if failed else ""))


def files_with_properties() -> list[str]:
    """Test files that use hypothesis, relative to the root of the tree."""
    folders = ("tests/properties", "tests/unit", "tests/spark")
    files = (file for folder in folders for file in (ROOT / folder).rglob("test_*.py"))
    return sorted(str(file.relative_to(ROOT)) for file in files if "from hypothesis import" in file.read_text("utf-8"))


def _properties_of(file: str) -> dict[str, Any]:
    report = CACHE / f"{Path(file).stem}.xml"
    CACHE.mkdir(parents=True, exist_ok=True)
    report.unlink(missing_ok=True)
    done = subprocess.run(
        [*_PYTEST, file, "-m", "not stack", f"--junit-xml={report}"],
        cwd=ROOT,
        env={**os.environ, "KONVERSE_TEST_EXAMPLES": f"{EXAMPLES}"},
        stdout=sys.stderr,
        check=False,
    )
    counts = ET.parse(report).getroot()[0].attrib if report.exists() else {}
    passed = int(counts.get("tests", 0)) - sum(int(counts.get(kind, 0)) for kind in ("errors", "failures", "skipped"))
    # all properties of a file may need a Spark session: then there is nothing to run, and nothing that fails
    return {"holds": done.returncode in {0, NO_TESTS}, "passed": passed}


_PYTHON: Final = sys.executable
_PYTEST: Final = (_PYTHON, "-m", "pytest", "-q")

CHECKS: Final = {
    "seeds": Check("make proof CHECK=seeds", _seeds, f"{SEEDS:,} seeds of the simulator, all paths"),
    "mutants": Check("make mutants", _program("make", "mutants")),
    "properties": Check(
        "make proof CHECK=properties",
        _properties,
        f"{EXAMPLES:,} examples of each, without those that need a Spark session",
    ),
    "chaos": Check("make chaos PROFILE=matrix", _program("make", "chaos", "PROFILE=matrix")),
    "nightly-tests": Check("make nightly-tests", _program("make", "nightly-tests"), "the tests that take minutes each"),
    "cluster": Check("make cluster", _program("make", "cluster"), "the conformance tests on three brokers"),
    "recycles": Check(
        "make recycles", _program("make", "recycles"), "100,000 conversations of pools, simulated and on Kafka"
    ),
    "compose": Check("make test-compose", _program("make", "test-compose")),
    "demo": Check("make demo", _program("make", "demo")),
    "demo-routing": Check("make demo-routing", _program("make", "demo-routing")),
    "demo-spark": Check("make demo-spark", _program("make", "demo-spark")),
    "bench": Check("make bench", _program("make", "bench")),
}
