"""The page of proofs has a row for each check, and keeps the others when one is written."""

from __future__ import annotations

import re

from tests.proof.checks import CHECKS
from tests.proof.page import HEAD, PAGE, new_page, row, with_row

CELLS = ("2026-01-31", "abcdef0", "2 cores", "90 min", "holds: all | of it")


def test_the_page_has_the_head_and_a_row_for_each_check() -> None:
    page = PAGE.read_text("utf-8")
    assert page.startswith(HEAD)
    assert re.findall(r"^\| ([\w-]+) \| `", page, re.MULTILINE) == [*CHECKS]


def test_a_row_takes_the_place_of_the_one_before() -> None:
    page = with_row(with_row(new_page(), "chaos", CELLS), "chaos", (*CELLS[:-1], "FAILS: one lost"))
    assert page.count("| chaos |") == 1
    assert "FAILS: one lost" in page
    assert page.count("not run yet") == len(CHECKS) - 1


def test_a_pipe_in_a_result_ends_no_cell() -> None:
    assert row("seeds", CELLS).count(" | ") == row("seeds", (*CELLS[:-1], "holds")).count(" | ")
