"""The command line: input that is refused without a server, and output whose reader stops early."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from konverse.bridge.cli.main import app
from tests.kit.commands import CliRunner

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
def test_a_closed_output_pipe_does_not_make_a_command_report_refuted(how: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "spam", how], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as command:
        assert command.stdout is not None
        assert command.stderr is not None
        command.stdout.readline()
        command.stdout.close()
        said = command.stderr.read()
    assert (command.returncode, said) == (141, "")


@pytest.mark.parametrize("how", ["json", "table"])
@pytest.mark.parametrize("encoding", ["latin-1", "cp1252"])
def test_characters_missing_from_the_terminal_encoding_are_printed_as_escapes(how: str, encoding: str) -> None:
    program = PROGRAM.replace("range(200)", "range(1)").replace('"x" * 80', '"Größe \\u5927 \\ud800"')
    command = subprocess.run(
        [sys.executable, "-c", program, "spam", how],
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": encoding},
    )
    assert (command.returncode, command.stderr) == (0, b"")
    assert "Größe \\u5927 \\ud800" in command.stdout.decode(encoding)


@pytest.mark.parametrize(
    "arguments", [["spam", "json"], ["spam", "table"], ["--help"], ["spam", "--help"]], ids=" ".join
)
def test_a_full_disk_is_another_failure_and_the_text_says_so(arguments: list[str]) -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        command = subprocess.run(
            [sys.executable, "-c", PROGRAM, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert command.returncode == 7
    assert (
        command.stderr == "konverse: the output cannot be written: No space left on device; make room and try again\n"
    )


@pytest.mark.parametrize("arguments", [["spam", "json"], ["nosuch"]], ids=" ".join)
def test_a_full_disk_under_standard_error_too_is_another_failure(arguments: list[str]) -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        command = subprocess.run([sys.executable, "-c", PROGRAM, *arguments], stdout=full, stderr=full, check=False)
    assert command.returncode == 7


def test_help_written_to_a_closed_pipe_exits_with_code_141() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = subprocess.run(
        [sys.executable, "-c", PROGRAM, "--help"], stdout=writer, stderr=subprocess.PIPE, check=False
    )
    os.close(writer)
    assert (command.returncode, command.stderr) == (141, b"")


@pytest.mark.parametrize(
    "arguments",
    [
        ["accept-loss", "Orders", "0"],
        ["conversations", "--leaked", "--end"],
        ["conversations", "--leaked", "--end", "--json"],
    ],
    ids=" ".join,
)
def test_a_confirmation_without_a_terminal_is_a_usage_error(arguments: list[str]) -> None:
    refused = CliRunner(env={"COLUMNS": "120"}).invoke(app, arguments)
    assert refused.exit_code == 2
    assert "there is no terminal to ask for confirmation: add --yes" in refused.stderr


@pytest.mark.parametrize(
    ("typed", "code", "last"), [(b"n\n", 0, "declined"), (b"\x04", 0, "declined"), (b"\x03", 130, "")]
)
def test_a_declined_question_is_done_and_an_interrupted_one_is_interrupted(typed: bytes, code: int, last: str) -> None:
    program = """
from konverse.bridge.cli.confirmation import confirmed
from konverse.bridge.cli.main import app

@app.command("ask")
def ask() -> None:
    if not confirmed("Really?", yes=False):
        print("declined")

app()
"""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", "import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0)" + program, "ask"],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as command:
        assert command.stderr is not None
        assert command.stdout is not None
        assert command.stderr.read(7) == b"Really?"
        os.write(ours, typed)
        assert command.stdout.read().decode().strip() == last
    os.close(ours)
    os.close(theirs)
    assert command.returncode == code


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "give the id of a conversation, or --all"),
        (["00000000-0000-4000-8000-000000000007", "--all"], "give the id of a conversation, or --all"),
        (["00000000-0000-4000-8000-000000000007", "--json"], "--json lists the conversations that --all resumes"),
    ],
)
def test_resume_is_for_one_conversation_or_for_all(arguments: list[str], words: str) -> None:
    refused = CliRunner(env={"COLUMNS": "120"}).invoke(app, ["resume", *arguments])
    assert refused.exit_code == 2
    assert words in refused.stderr


@pytest.mark.parametrize(("cause", "code"), [("KeyboardInterrupt()", 130), ("LookupError()", 70), ("None", 70)])
def test_ctrl_c_inside_a_client_in_c_ends_a_command_like_any_other(cause: str, code: int) -> None:
    """CPython raises SystemError from it where a function in C has returned a value nevertheless."""
    program = f"""
from konverse.bridge.cli.main import app

@app.command("waits")
def waits() -> None:
    raise SystemError("<method 'poll'> returned a result with an exception set") from {cause}

app()
"""
    command = subprocess.run([sys.executable, "-c", program, "waits"], capture_output=True, text=True, check=False)
    assert (command.returncode, "Traceback" in command.stderr) == (code, code == 70)
