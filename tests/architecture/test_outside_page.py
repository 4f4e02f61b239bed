"""The page about topics changed from outside: each cell of its tables is a test, and each test a cell."""

from __future__ import annotations

import re

import pytest

from tests.architecture.test_protocol_page import functions_of
from tests.architecture.tree import ROOT
from tests.integration import outside_catalog, outside_transmission
from tests.integration.outside import HARMS, PAGE, table
from tests.integration.outside_columns import PROBES
from tests.spark import test_outside as spark_outside

WORDS = {"goes on", "waits", "TopicMismatch", "halts", "says", "finds none", "holds", "refutes", "unknown"}
LINK = re.compile(r"\]\(\.\./(tests/[^)#]+)#([^)]+)\)")


TABLES = {
    "The queue that is sent to and read": ({*HARMS}, {*PROBES}),
    spark_outside.HEADING: ({*HARMS}, {*spark_outside.PROBES}),
    outside_catalog.HEADING: ({*outside_catalog.HARMS}, {*outside_catalog.PROBES, "way on"}),
    outside_transmission.HEADING: ({*outside_transmission.HARMS}, {*outside_transmission.PROBES, "way on"}),
}
"""Heading → rows and columns of a table whose cells are tested."""


@pytest.mark.parametrize("heading", TABLES)
def test_each_cell_of_the_table_is_tried_and_says_a_word_of_the_page(heading: str) -> None:
    cells, (rows, columns) = table(heading), TABLES[heading]
    assert {row for row, _ in cells} == rows
    assert {column for _, column in cells} == columns
    assert len(cells) == len(rows) * len(columns)
    assert {*cells.values()} <= WORDS


def test_each_row_of_the_other_tables_names_a_test_that_exists() -> None:
    page = PAGE.read_text(encoding="utf-8")
    others = [part for part in page.split("\n## ")[1:] if part.split("\n", 1)[0] not in TABLES]
    rows = [line for part in others for line in part.splitlines() if line.startswith("| ")]
    described = [row for row in rows if not row.startswith(("| What happened", "| Who |"))]
    assert described
    for row in described:
        (path, test) = LINK.findall(row)[-1]
        assert test in functions_of(ROOT / path), row
