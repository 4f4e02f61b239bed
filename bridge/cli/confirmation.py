"""Confirmation of actions that cannot be undone: asked on a terminal; elsewhere --yes is required."""

from __future__ import annotations

import sys

import typer


def check_answer(option: str, *, yes: bool, asks: bool = True) -> None:
    """Raise typer.BadParameter if --yes is missing and there is no terminal for the question."""
    if not (yes or (asks and sys.stdin.isatty())):
        raise typer.BadParameter("there is no terminal to ask for confirmation: add --yes", param_hint=option)


def confirmed(question: str, *, yes: bool) -> bool:
    """Ask on standard error, unless --yes has answered. The end of the input means no."""
    if yes:
        return True
    try:
        return typer.confirm(question, err=True)
    except typer.Abort as aborted:
        if isinstance(aborted.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from None
        typer.echo("", err=True)
        return False
