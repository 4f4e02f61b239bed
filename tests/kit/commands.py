"""Commands of `konverse`, called in the process of the test with a terminal's width of 80 columns."""

from __future__ import annotations

from typer.testing import CliRunner

from konverse.bridge.cli.main import app


def run(*arguments: str, **variables: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a command."""
    answered = CliRunner(env={"COLUMNS": "80", **variables}).invoke(app, arguments)
    return answered.exit_code, answered.stdout, answered.stderr
