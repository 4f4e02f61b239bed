"""The parts of the seeds check: the output of a crashed program is no part."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.proof import checks
from tests.proof.checks import CHECKS, Result

WHOLE = json.dumps({"paths": {"walked": 1}, "failures": [], "choices": 5}).encode()
FAILED = json.dumps({"paths": {"walked": 1}, "failures": [{"seed": 3}], "choices": 5}).encode()


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[int, bytes]]:
    """Exit codes and outputs of the programs that make the parts, in order."""
    made: list[tuple[int, bytes]] = []

    def run(*_arguments: object, **_options: Any) -> subprocess.CompletedProcess[bytes]:
        code, out = made.pop(0)
        return subprocess.CompletedProcess((), code, out)

    monkeypatch.setattr(checks, "CACHE", tmp_path)
    monkeypatch.setattr(checks, "files_of_simulation", list)
    monkeypatch.setattr(checks, "SEEDS", 3 * checks.PART)
    monkeypatch.setattr(subprocess, "run", run)
    return made


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize(
    ("code", "out"),
    [
        (-9, WHOLE),  # it was killed after its last word
        (2, WHOLE),
        (-9, WHOLE[:20]),
        (0, WHOLE[:20]),
        (1, b""),  # a traceback ends with 1, too
        (1, b"[1]"),
    ],
)
def test_a_program_that_crashed_is_told_stops_the_check_and_leaves_no_part(
    programs: list[tuple[int, bytes]], tmp_path: Path, code: int, out: bytes
) -> None:
    programs += [(0, WHOLE), (code, out), (0, WHOLE)]
    result = CHECKS["seeds"].run("abc")
    assert not result.holds
    assert f"seeds {checks.PART} to {2 * checks.PART - 1}" in result.words
    assert f"exit {code}" in result.words
    assert len(programs) == 1
    assert files(tmp_path) == ["0.json"]
    programs[:] = [(0, WHOLE), (0, WHOLE)]  # it continues behind the last complete part
    assert CHECKS["seeds"].run("abc").holds
    assert programs == []


@pytest.mark.parametrize(
    ("printed", "words"),
    [
        ("one | 2 | 3\nall checks hold\n│ 22:2 │ 7 │\n", "all checks hold"),
        ("│ 22:2 │ 7 │\n== 5 passed ==\n", "5 passed"),
        ("", "it printed nothing"),
    ],
)
def test_of_a_program_its_last_sentence_is_kept(
    printed: str, words: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(checks, "CACHE", tmp_path)
    check = checks._program(sys.executable, "-c", f"print({printed!r})")
    assert check("a commit") == Result(holds=True, words=words)
    failing = checks._program(sys.executable, "-c", f"print({printed!r}); raise SystemExit(3)")
    assert failing("a commit") == Result(holds=False, words=f"{words} (exit 3)")


def test_a_part_with_a_seed_that_failed_is_whole(programs: list[tuple[int, bytes]], tmp_path: Path) -> None:
    programs += [(0, WHOLE), (1, FAILED), (0, WHOLE)]
    result = CHECKS["seeds"].run("abc")
    assert not result.holds
    assert "1 failed: [3]" in result.words
    assert len(files(tmp_path)) == 3


def test_seeds_are_shared_by_commits_that_leave_the_code_of_the_simulation_alone() -> None:
    files = checks.files_of_simulation()
    assert {"dialog/owner/owner.py", "schemas/wire/envelope.py", "tests/kit/simulator/world.py"} <= {*files}
    assert "bridge/broker.py" not in files
