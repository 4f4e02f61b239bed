"""Questions before what cannot be undone: asked on a terminal, answered by --yes elsewhere."""

from __future__ import annotations

import sys

import typer


def check_answer(option: str, *, yes: bool, asks: bool = True) -> None:
    """Raise typer.BadParameter where --yes is missing and no question can be answered: only a terminal can be asked."""
    if not (yes or (asks and sys.stdin.isatty())):
        raise typer.BadParameter("there is nobody to be asked here: add --yes", param_hint=option)


def confirmed(question: str, *, yes: bool) -> bool:
    """Ask on standard error, unless --yes has answered; the end of the input is a no."""
    if yes:
        return True
    try:
        return typer.confirm(question, err=True)
    except typer.Abort as aborted:
        if isinstance(aborted.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from None
        typer.echo("", err=True)
        return False
