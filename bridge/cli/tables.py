"""Tables that never cut a word: lines break between words, or each row becomes a paragraph."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from typing import Any, Final

import typer
from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.table import Table

GAP: Final = 2
"""Characters between two columns."""
ROWS_SHOWN: Final = 50
"""Rows of a list that has no limit of its own; `--json` prints all."""


class Page(Console):
    """Standard output. When its reader closes the pipe, the exit code must not be 1, because 1 means refuted."""

    def __init__(self, *, width: int | None = None) -> None:
        super().__init__(width=width, emoji=False)  # a part of a name such as :key: must stay as it is

    def on_broken_pipe(self) -> None:
        """Leave the error to `failures_of_output`; the method of the base class exits with code 1."""
        raise BrokenPipeError


def print_table(title: str, columns: Iterable[str], rows: Iterable[Iterable[object]]) -> None:
    """Print rows under the names of their columns; numbers are right-aligned.

    If the table is too wide for the terminal, each row becomes a paragraph with a line for each column. Without a
    terminal and without COLUMNS there is no limit.
    """
    names, told = list(columns), [list(row) for row in rows]
    page = Page()
    cells = [[f"{cell:,}" if _is_number(cell) else _escaped(str(cell), page) for cell in row] for row in told]
    typer.echo(title)
    limit = page.width if page.is_terminal or os.environ.get("COLUMNS") else None
    widths = column_widths([names, *cells], limit)
    if widths is None:
        _print_paragraphs(names, cells)
        return
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for place, (name, width) in enumerate(zip(names, widths, strict=True)):
        numbers = bool(told) and all(_is_number(row[place]) for row in told)
        table.add_column(name, justify="right" if numbers else "left", width=width)
    for row in cells:
        table.add_row(*map(escape, row))
    Page(width=sum(widths) + GAP * (len(widths) - 1) + 1).print(table)
    typer.echo("")


def print_more(count: int) -> None:
    """Print how many of `count` rows are missing from a list of the first ROWS_SHOWN."""
    if count > ROWS_SHOWN:
        typer.echo(f"… and {count - ROWS_SHOWN:,} more; --json prints all")


def column_widths(lines: Sequence[Sequence[str]], limit: int | None) -> list[int] | None:
    """Widths in which the longest word of each column has room; None if together they exceed `limit`."""
    columns = list(zip(*lines, strict=True))
    least = [max(_widest(cell.split()) for cell in column) for column in columns]
    most = [max(_widest(cell.splitlines()) for cell in column) for column in columns]
    if limit is None:
        return most
    room = limit - sum(least) - GAP * (len(columns) - 1)
    if room < 0:
        return None
    widths = list(least)
    by_need = sorted(range(len(columns)), key=lambda place: most[place] - least[place])
    for done, place in enumerate(by_need):
        more = min(most[place] - least[place], room // (len(columns) - done))
        widths[place] += more
        room -= more
    return widths


def _escaped(text: str, page: Page) -> str:
    """The text with escapes for characters that the terminal lacks, so that its width is the printed one."""
    return text.encode(page.encoding, "backslashreplace").decode(page.encoding)


def _widest(parts: Iterable[str]) -> int:
    return max(map(cell_len, parts), default=0)


def _print_paragraphs(names: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    for row in rows:
        typer.echo("")
        for name, cell in zip(names, row, strict=True):
            typer.echo(f"{name}: {', '.join(cell.splitlines())}")
    typer.echo("")


def _is_number(cell: object) -> bool:
    return isinstance(cell, int)


def print_json(value: Any) -> None:
    """Print one JSON document, indented as all commands indent."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))
