"""Tables that can be read on a terminal of 80 columns: no borders, names folded and never cut."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table


class Page(Console):
    """Standard output. Whoever reads may stop reading, which is no finding."""

    def on_broken_pipe(self) -> None:
        """Let the command's own way out take it; the one of the class ends with exit code 1."""
        raise BrokenPipeError


def print_table(title: str, columns: dict[str, int | None], rows: Iterable[Iterable[object]]) -> None:
    """Print rows; `columns` are their names, each with the width that it must have, or None for text that is folded.

    Numbers stand to the right.
    """
    table = Table(
        title=escape(title),
        title_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
        show_edge=False,
    )
    told = [list(row) for row in rows]
    for place, (name, width) in enumerate(columns.items()):
        numbers = bool(told) and all(isinstance(row[place], int) for row in told)
        table.add_column(
            name, justify="right" if numbers else "left", overflow="fold", min_width=width, no_wrap=width is not None
        )
    for row in told:
        table.add_row(*(f"{cell:,}" if isinstance(cell, int) else escape(str(cell)) for cell in row))
    Page().print(table)
    typer.echo("")


def print_json(value: Any) -> None:
    """Print one JSON document, indented as all commands indent."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))
