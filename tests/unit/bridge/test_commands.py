"""The command line: what is refused before anybody is asked, and when nobody reads to the end."""

from __future__ import annotations

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from konverse.bridge.cli.main import app

PROGRAM = """
import sys
from konverse.bridge.cli.main import app
from konverse.bridge.cli.tables import print_json, print_table

@app.command("spam")
def spam(how: str) -> None:
    for _ in range(200):
        if how == "json":
            print_json(["x" * 80] * 100)
        else:
            print_table("title", {"a": None}, [["x" * 80]] * 100)

app()
"""


@pytest.mark.parametrize("how", ["json", "table"])
def test_whoever_stops_reading_does_not_make_it_say_refuted(how: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "spam", how], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as command:
        assert command.stdout is not None
        assert command.stderr is not None
        command.stdout.readline()
        command.stdout.close()
        said = command.stderr.read()
    assert (command.returncode, said) == (141, "")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "give the id of a conversation, or --all"),
        (["00000000-0000-4000-8000-000000000007", "--all"], "give the id of a conversation, or --all"),
        (["00000000-0000-4000-8000-000000000007", "--json"], "this lists what --all resumes"),
    ],
)
def test_resume_is_for_one_conversation_or_for_all(arguments: list[str], words: str) -> None:
    refused = CliRunner(env={"COLUMNS": "120"}).invoke(app, ["resume", *arguments])
    assert refused.exit_code == 2
    assert words in refused.stderr
