from __future__ import annotations

from pathlib import Path

import pytest

from konverse.deploy.stack.follow import follow, last_part


def test_the_last_lines_of_one_log_are_shown_as_they_are(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("".join(f"line {number}\n" for number in range(10_000)))
    assert list(last_part({"kafka": log}, 2)) == ["line 9998", "line 9999"]
    assert list(last_part({"kafka": log}, 0)) == []
    assert len(list(last_part({"kafka": log}, 20_000))) == 10_000


@pytest.mark.parametrize("length", [10, 5_000])
def test_lines_of_any_length_are_whole(tmp_path: Path, length: int) -> None:
    log = tmp_path / "log"
    log.write_text(f"{'x' * length}\n" * 100)
    assert list(last_part({"kafka": log}, 50)) == ["x" * length] * 50


def test_lines_of_several_logs_carry_the_name_of_the_server(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one\n")
    logs = {"kafka": tmp_path / "a", "redis": tmp_path / "none"}
    assert list(last_part(logs, 10)) == ["kafka | one"]


def test_lines_that_are_added_follow_even_after_a_new_start(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("old\nlast\n")
    lines = follow({"kafka": log}, 1)
    assert next(lines) == "last"
    with log.open("a") as stream:
        stream.write("new\nhalf")
    assert next(lines) == "new"
    log.write_text("x\n")
    assert next(lines) == "x"
