"""Commands of `konverse`, called in the process of the test with a terminal's width of 80 columns."""

from __future__ import annotations

from functools import cache

from typer import testing
from typer.main import get_command
from typer.testing import CliRunner

from konverse.bridge.cli.main import app

__all__ = ["CliRunner", "run"]

# Typer builds all commands anew for each call, which takes longer than most of them run. They keep no state.
testing._get_command = cache(get_command)  # type: ignore[attr-defined]


def run(*arguments: str, **variables: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a command."""
    answered = CliRunner(env={"COLUMNS": "80", **variables}).invoke(app, arguments)
    return answered.exit_code, answered.stdout, answered.stderr
