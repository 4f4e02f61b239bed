"""Values of options that no command can use are refused before it connects; all others arrive as they were given."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args, get_type_hints

import pytest
import typer

from konverse.bridge.cli import explain, routing_table
from konverse.bridge.cli.main import app
from konverse.schemas.catalog.table_entries import Target
from tests.kit.commands import CliRunner

NOWHERE = {"COLUMNS": "200", "KONVERSE_KAFKA": "kafka://localhost:1", "KONVERSE_CONNECT_TIMEOUT_S": "0.3"}
"""Environment of a command that has no Kafka: it exits with 6 once it has tried to connect."""
CONVERSATION = "00000000-0000-4000-8000-000000000007"
ARGUMENTS = {"suspend": [CONVERSATION], "skip": [CONVERSATION], "end": [CONVERSATION], "run": ["no_module:app"]}


def float_options(group: typer.Typer, *path: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """Each option of the type float: the names of its command, and its own."""
    for each in group.registered_groups:
        assert each.typer_instance is not None
        yield from float_options(each.typer_instance, *path, str(each.name))
    for command in group.registered_commands:
        assert command.callback is not None
        for option, kind in get_type_hints(command.callback).items():
            if float in (kind, *get_args(kind)):
                yield (*path, command.name or command.callback.__name__), f"--{option}"


FLOAT_OPTIONS = [*float_options(app)]


def test_the_options_in_seconds_are_found() -> None:
    assert {(("run",), "--grace"), (("router", "watch"), "--every"), (("end",), "--timeout")} <= {*FLOAT_OPTIONS}


@pytest.mark.parametrize("value", ["nan", "inf", "1e300"])
@pytest.mark.parametrize(("command", "option"), FLOAT_OPTIONS, ids=str)
def test_a_number_of_seconds_that_nothing_can_wait_for_is_wrong_usage(
    command: tuple[str, ...], option: str, value: str
) -> None:
    arguments = ARGUMENTS.get(command[-1], ["//a/service"] if command[-1] == "watch" else [])
    refused = CliRunner(env=NOWHERE).invoke(app, [*command, *arguments, option, value])
    assert refused.exit_code == 2, refused.output
    assert f"Invalid value for '{option}': " in refused.stderr
    if value != "nan":  # a newer typer refuses it itself, because of the minimum
        assert "give a number of seconds, at most 9,223,372,036" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["resume", "--all", "--older-than", "xx"], "--older-than: 'xx' is not a duration"),
        (["resume", "--all", "--older-than", f"{'9' * 400}d"], "--older-than: give a number of seconds, at most"),
        (["verify", "--since", "0001-01-01"], "--since: 1-01-01 is not a possible time of a record"),
        (["conversations", "--state", "XX"], "--state: 'XX' is not one of"),
    ],
    ids=str,
)
def test_an_impossible_value_is_wrong_usage_without_kafka_too(arguments: list[str], words: str) -> None:
    refused = CliRunner(env=NOWHERE).invoke(app, arguments)
    assert (refused.exit_code, words in refused.stderr) == (2, True), refused.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["suspend", CONVERSATION, "--reason", "a\udcff"],
        ["end", CONVERSATION, "--error", "1", "--description", "a\udcff"],
        ["router", "explain", "-", "--classifier", "regular_expression:a\udcff"],
    ],
    ids=["reason", "description", "classifier"],
)
def test_a_text_that_is_not_utf8_is_wrong_usage(arguments: list[str]) -> None:
    refused = CliRunner(env=NOWHERE).invoke(app, arguments, input=b"")
    assert (refused.exit_code, "is not UTF-8" in refused.stderr) == (2, True), refused.stderr


@pytest.mark.parametrize(
    ("given", "key"), [("a customer", b"a customer"), ("größe", "größe".encode()), ("a\udcff", b"a\xff")]
)
def test_a_key_is_explained_with_the_bytes_of_the_command_line(
    given: str, key: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys: list[bytes] = []

    def explained(read: Any) -> SimpleNamespace:
        keys.append(read.dialog.key)
        return SimpleNamespace(key=None, table=None, decision=SimpleNamespace(reason="none"))

    monkeypatch.setattr(explain, "connected", lambda *_, **__: nullcontext(SimpleNamespace(network=None)))
    monkeypatch.setattr(explain, "bound", lambda *_: SimpleNamespace(explain=explained))
    answer = CliRunner().invoke(app, ["router", "explain", "-", "--key", given], input=b"")
    assert (answer.exit_code, keys) == (0, [key]), answer.stderr


@pytest.mark.parametrize("command", ["create", "set"])
@pytest.mark.parametrize("ends", [b"\n", b"\r\n"], ids=["LF", "CRLF"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["plain", "BOM"])
def test_a_table_on_standard_input_is_read_as_from_a_file(
    command: str, ends: bytes, mark: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[dict[str, Target]] = []

    def create_routing_table(name: str, entries: dict[str, Target], **_: object) -> SimpleNamespace:
        written.append(entries)
        return SimpleNamespace(name=name, version=1, entries=entries)

    def alter_routing_table(name: str, *, set: dict[str, Target], **_: object) -> SimpleNamespace:  # noqa: A002
        return create_routing_table(name, set)

    admin = SimpleNamespace(create_routing_table=create_routing_table, alter_routing_table=alter_routing_table)
    monkeypatch.setattr(routing_table, "connected", lambda *_, **__: nullcontext(SimpleNamespace(admin=admin)))
    table = mark + ends.join([b"key,service", "größe,//a".encode(), b'"two', b'lines",//b', b""])
    (tmp_path / "table.csv").write_bytes(table)
    for place in ("-", str(tmp_path / "table.csv")):
        answer = CliRunner().invoke(app, ["table", command, "T", "--file", place], input=table)
        assert answer.exit_code == 0, answer.stderr
    assert written == [{"größe": Target("//a"), "two\nlines": Target("//b")}] * 2


def test_a_table_on_standard_input_that_is_not_utf8_is_refused() -> None:
    refused = CliRunner(env=NOWHERE).invoke(app, ["table", "create", "T", "--file", "-"], input=b"a,\xff")
    assert refused.exit_code == 2
    assert refused.stderr == "konverse: - is not encoded in UTF-8: invalid start byte at byte 2\n"
