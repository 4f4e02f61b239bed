"""The `konverse` command: errors, exit codes, commands of other packages."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest
import typer

from konverse.bridge.cli.main import KonverseGroup, app
from konverse.bridge.runtime.exit_codes import exit_code
from konverse.deploy.cli import remedy
from konverse.deploy.host.folders import StackHome, stack_folder
from konverse.deploy.host.processes import ProcessId
from konverse.deploy.servers.state import ServerState, StackState
from konverse.schemas.errors import InvalidName, KafkaUnavailable, KonverseError, TopicMismatch
from konverse.schemas.stack_errors import PortTaken
from tests.kit.commands import CliRunner


def failing(error: Exception) -> typer.Typer:
    """A command that raises, in a group that handles errors as konverse does."""
    made = typer.Typer(cls=KonverseGroup)

    @made.callback()
    def options(*, debug: bool = False) -> None:
        """Take the option that decides about tracebacks."""

    @made.command()
    def fail() -> None:
        raise error

    return made


@pytest.mark.parametrize(
    ("error", "code"),
    [(KafkaUnavailable("no Kafka"), 6), (InvalidName("no name"), 2), (PortTaken("taken"), 3), (TopicMismatch("x"), 7)],
)
def test_an_error_is_one_line_and_an_exit_code(
    error: KonverseError, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    answer = CliRunner().invoke(failing(error), ["fail"])
    said, *remedies = answer.stderr.splitlines()
    assert (answer.exit_code, said, answer.stdout) == (code, f"konverse: {error}", "")
    where = "konverse: the address is that of --kafka, else of KONVERSE_KAFKA or konverse.toml"
    assert remedies == ([where] if isinstance(error, KafkaUnavailable) else [])
    assert exit_code(error) == code


def test_with_debug_the_error_itself_comes_through() -> None:
    answer = CliRunner().invoke(failing(PortTaken("taken")), ["--debug", "fail"])
    assert isinstance(answer.exception, PortTaken)


def test_an_unexpected_error_is_shown_and_exits_with_code_70() -> None:
    answer = CliRunner().invoke(failing(ValueError("a bug")), ["fail"])
    assert "ValueError: a bug" in answer.stderr
    assert answer.exit_code == 70, "1 means that something was refuted"


def test_the_version_is_that_of_the_distribution() -> None:
    answer = CliRunner().invoke(app, ["--version"])
    assert answer.exit_code == 0
    assert answer.stdout.startswith("konverse ")


def test_an_unknown_command_is_wrong_usage() -> None:
    assert CliRunner().invoke(app, ["no-such-command"]).exit_code == 2


def test_the_command_that_a_stack_names_can_be_pasted_into_a_shell(tmp_path: Path) -> None:
    place = tmp_path / "my stack's; folder"
    answer = CliRunner().invoke(app, ["stack", "status", "--directory", str(place)])
    assert answer.exit_code == 5
    command = answer.stdout.strip().partition("Start one with: ")[2]
    assert shlex.split(command) == ["konverse", "stack", "up", "--directory", str(place)]


def test_a_stack_that_runs_is_named_even_if_the_state_of_another_one_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    broken, running = (StackHome(stack_folder(name)) for name in ("a-broken-one", "mine"))
    for home in (broken, running):
        home.create()
    broken.state.write_text("{")
    server = ServerState("redis", "redis", 6379, process=ProcessId.of(os.getpid()))
    StackState("mine", "an-id", (server,)).save(running.state)
    assert remedy(KafkaUnavailable("no Kafka")) == (
        "the local stack 'mine' runs; use it with: export KONVERSE_REDIS=redis://127.0.0.1:6379/0"
    )
