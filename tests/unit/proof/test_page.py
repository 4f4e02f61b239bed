"""The page of proofs has a row for each check, and writing one row keeps the others."""

from __future__ import annotations

import re

import pytest

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


@pytest.mark.parametrize("name", CHECKS)
def test_a_command_can_be_typed_and_its_explanation_stands_beside_it(name: str) -> None:
    check = CHECKS[name]
    assert re.fullmatch(r"make [\w-]+( [A-Z]+=\w+)*", check.command)
    assert row(name, CELLS).split(" | ")[1] == f"`{check.command}`" + (f": {check.means}" if check.means else "")


def test_the_properties_that_need_spark_are_excepted_in_words() -> None:
    assert "without those that need a Spark session" in row("properties", CELLS)
