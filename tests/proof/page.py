"""docs/proof.md: a row for each check."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tests.proof.checks import CHECKS, ROOT

PAGE: Final = ROOT / "docs" / "proof.md"

HEAD: Final = """# Proof

Look up here when each long check was run, on which commit and with which result. `make test` runs on every change. The
checks below take minutes to hours, so each is run on a commit of its own. `make proof` lists them;
`make proof CHECK=seeds` runs one on the present commit and writes its row. A row says nothing about later commits.
`make nightly` is the rows "mutants", "chaos", "nightly-tests", "cluster" and "recycles", 10,000 of the seeds, and 1,000
examples of each property, in one run.

| Check | Command | Date | Commit | Machine | Took | Result |
|---|---|---|---|---|---|---|
"""

NOT_RUN: Final = ("", "", "", "", "not run yet")


def new_page() -> str:
    """The page before any check was run."""
    return HEAD + "".join(row(name, NOT_RUN) for name in CHECKS)


def row(name: str, cells: Sequence[str]) -> str:
    """A line of the table. A pipe inside a cell would end the cell."""
    check = CHECKS[name]
    command = f"`{check.command}`" + (f": {check.means}" if check.means else "")
    return "| " + " | ".join(cell.replace("|", "/") for cell in (name, command, *cells)) + " |\n"


def with_row(page: str, name: str, cells: Sequence[str]) -> str:
    """The page with a new row for this check."""
    lines = page.splitlines(keepends=True)
    (at,) = (number for number, line in enumerate(lines) if line.startswith(f"| {name} |"))
    return "".join([*lines[:at], row(name, cells), *lines[at + 1 :]])
