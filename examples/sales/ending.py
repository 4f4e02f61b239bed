"""The exit codes of a demonstration."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

import typer
from rich.console import Console

from konverse.schemas.errors import BadInput, KonverseError


def end_with(console: Console, demonstrate: Callable[[], bool]) -> NoReturn:
    """Exit with 0 when the verdict holds, 1 when it does not, 2 for bad input, 3 when servers are missing or fail."""
    try:
        holds = demonstrate()
    except KonverseError as error:
        console.print(str(error), style="red", markup=False)
        raise typer.Exit(2 if isinstance(error, BadInput) else 3) from None
    raise typer.Exit(0 if holds else 1)
