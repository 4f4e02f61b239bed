"""The parts of a check: kept for the code that they ran, and never made of the output of a crashed program."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.proof import checks
from tests.proof.checks import CHECKS, Result

WHOLE = json.dumps({"paths": {"walked": 1, "rare": 0}, "failures": [], "choices": 5}).encode()
RARE = json.dumps({"paths": {"walked": 0, "rare": 1}, "failures": [], "choices": 5}).encode()
FAILED = json.dumps({"paths": {"walked": 1, "rare": 0}, "failures": [{"seed": 3}], "choices": 5}).encode()


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[int, bytes]]:
    """Exit codes and outputs of the programs that make the parts, in order."""
    made: list[tuple[int, bytes]] = []

    def run(*_arguments: object, **_options: Any) -> subprocess.CompletedProcess[bytes]:
        code, out = made.pop(0)
        return subprocess.CompletedProcess((), code, out)

    monkeypatch.setattr(checks, "PARTS", tmp_path / "parts.json")
    monkeypatch.setattr(checks, "files_of_simulation", list)
    monkeypatch.setattr(checks, "SEEDS", 3 * checks.PART)
    monkeypatch.setattr(subprocess, "run", run)
    return made


def parts_of(check: str, folder: Path) -> list[str]:
    return sorted(json.loads((folder / "parts.json").read_text("utf-8"))[check])


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
def test_a_crashed_program_stops_the_check_with_its_exit_code_and_leaves_no_part(
    programs: list[tuple[int, bytes]], tmp_path: Path, code: int, out: bytes
) -> None:
    programs += [(0, WHOLE), (code, out), (0, WHOLE)]
    result = CHECKS["seeds"].run("abc")
    assert not result.holds
    assert f"seeds {checks.PART} to {2 * checks.PART - 1}" in result.words
    assert f"exit {code}" in result.words
    assert len(programs) == 1
    assert parts_of("seeds", tmp_path) == ["0"]
    programs[:] = [(0, WHOLE), (0, RARE)]  # it continues behind the last complete part
    assert CHECKS["seeds"].run("abc") == Result(True, "7,500 seeds, 15 choices, 0 failed, each of 2 paths walked")
    assert programs == []


def test_a_path_that_no_part_walked_fails_the_check(programs: list[tuple[int, bytes]]) -> None:
    programs += [(0, WHOLE)] * 3
    result = CHECKS["seeds"].run("abc")
    assert (result.holds, "never walked: rare" in result.words) == (False, True)


def test_a_part_of_other_code_is_run_again(programs: list[tuple[int, bytes]], tmp_path: Path) -> None:
    programs += [(0, WHOLE), (0, WHOLE), (0, RARE)]
    assert CHECKS["seeds"].run("abc").holds
    file = tmp_path / "parts.json"
    kept = json.loads(file.read_text("utf-8"))
    kept["seeds"]["0"]["digest"] = "of other code"
    file.write_text(json.dumps(kept), "utf-8")
    programs += [(1, FAILED)]
    assert not CHECKS["seeds"].run("abc").holds
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
    assert parts_of("seeds", tmp_path) == [str(number * checks.PART) for number in range(3)]


def test_seeds_are_shared_by_commits_that_leave_the_code_of_the_simulation_alone() -> None:
    files = checks.files_of_simulation()
    assert {"dialog/owner/owner.py", "schemas/wire/envelope.py", "tests/kit/simulator/world.py"} <= {*files}
    assert "bridge/broker.py" not in files


@pytest.mark.parametrize(
    ("source", "same"),
    [
        ('"""Another head."""\nA = 1\n"""What A is."""\ndef f():\n    """Another."""\n    return A  # why\n', True),
        ("A = 2\ndef f():\n    return A\n", False),
        ("A = 1\ndef f():\n    return A + 0\n", False),
        ('A = 1\ndef f():\n    print("text")\n    return A\n', False),
    ],
)
def test_comments_and_docstrings_are_no_code(source: str, *, same: bool) -> None:
    assert (checks.code_of(source) == checks.code_of('"""Head."""\nA = 1\ndef f():\n    return A\n')) is same


def test_as_many_parts_as_said_run_at_once_and_each_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(checks, "PARTS", tmp_path / "parts.json")
    both = threading.Barrier(2, timeout=30)

    def one(name: str) -> dict[str, Any]:
        return {"name": name, "turn": both.wait()}

    names = ("a", "b", "c", "d")
    found = checks.Parts("seeds").run(dict.fromkeys(names, "digest"), one, at_once=2)
    assert [part["name"] for part in found] == parts_of("seeds", tmp_path) == [*names]


def test_each_check_keeps_its_own_log() -> None:
    assert checks.log_name("make", "chaos", "PROFILE=matrix") == "chaos-profile-matrix.log"
    assert checks.log_name("make", "cluster") == "cluster.log"


def test_a_part_that_has_failed_is_run_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(checks, "PARTS", tmp_path / "parts.json")
    answers = [False, True]
    for expected in (False, True, True):
        (part,) = checks.Parts("properties").run({"a": "digest"}, lambda _: {"holds": answers.pop(0)})
        assert part["holds"] is expected
    assert answers == []


def test_a_file_whose_properties_all_need_a_session_of_spark_holds(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(checks, "CACHE", tmp_path)
    monkeypatch.setattr(checks, "ROOT", tmp_path)
    (tmp_path / "test_sessions.py").write_text("import pytest\npytestmark = pytest.mark.stack\ndef test(): ...\n")
    (tmp_path / "test_wrong.py").write_text("def test(): assert False\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = stack\n")
    assert checks._properties_of("test_sessions.py") == {"holds": True, "passed": 0}
    assert checks._properties_of("test_wrong.py")["holds"] is False


def test_each_file_with_properties_is_a_part(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert {"tests/properties/test_acceptance.py", "tests/spark/test_batch_rows.py"} <= {
        *checks.files_with_properties()
    }
    assert all("/test_" in file for file in checks.files_with_properties())
    file = "tests/properties/test_numbers.py"
    monkeypatch.setattr(checks, "PARTS", tmp_path / "parts.json")
    monkeypatch.setattr(checks, "CACHE", tmp_path)
    monkeypatch.setattr(checks, "EXAMPLES", 3)
    monkeypatch.setattr(checks, "files_with_properties", lambda: [file])
    result = CHECKS["properties"].run("abc")
    assert result.holds
    assert result.words.startswith("1 files, ")
    loaded = checks.files_of("tests.proof.importing", file)
    assert {file, "schemas/wire/varint.py"} <= {*loaded}
    assert "bridge/broker.py" not in loaded


@pytest.mark.parametrize(
    ("printed", "result"),
    [
        (["a b c d", "Verdict: each order once", "conversation role messages bytes"], "Verdict: each order once"),
        (
            ["slowest 20 durations", "5.0s call tests of some kind", "=== 869 passed in 1350.59s ==="],
            "869 passed in 1350.59s",
        ),
        (["6 failed, 863 passed in 3s", "make: Error 1"], "6 failed, 863 passed in 3s"),
        (["all checks do hold", "[ 244.2 s]"], "all checks do hold"),
        (["", "----"], "it printed nothing"),
    ],
)
def test_the_result_of_a_program_is_its_last_verdict_or_else_its_last_sentence(printed: list[str], result: str) -> None:
    assert checks.result_in(printed) == result
