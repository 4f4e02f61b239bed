"""Tables of any width, in which no word is cut: lines break between words, or each row becomes lines of its own."""

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


class Page(Console):
    """Standard output. Whoever reads may stop reading, which is no finding."""

    def on_broken_pipe(self) -> None:
        """Let the command's own way out take it; the one of the class ends with exit code 1."""
        raise BrokenPipeError


def print_table(title: str, columns: Iterable[str], rows: Iterable[Iterable[object]]) -> None:
    """Print rows under the names of their columns; numbers stand to the right.

    A table that is too wide for the terminal becomes a paragraph for each row, with a line for each column. What is no
    terminal, and has no COLUMNS, has any width.
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


def column_widths(lines: Sequence[Sequence[str]], limit: int | None) -> list[int] | None:
    """A width for each column in which its longest word has room; None when they do not fit into `limit` together."""
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
    """As wide as it is printed where the terminal's encoding does not have all characters."""
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
