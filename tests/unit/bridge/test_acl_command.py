"""`konverse acl`: the printed commands grant the rights of the page, and comments name what the others are for."""

from __future__ import annotations

import json
import shlex

import pytest
from confluent_kafka.admin import AclOperation

from konverse.bridge.admin.rights import ANY, GROUP, KINDS, TOPIC, ProcessRights, Right
from konverse.bridge.cli.main import app
from tests.architecture.tree import ROOT
from tests.kit.commands import CliRunner

OPERATIONS = {operation.name.replace("_", "").lower(): operation for operation in AclOperation}


def printed(*words: str) -> str:
    done = CliRunner().invoke(app, ["acl", *words])
    assert done.exit_code == 0, done.output
    return done.output


def granted(line: str) -> set[Right]:
    """The rights that a command gives, read as `kafka-acls --help` describes its options."""
    words = shlex.split(line.removeprefix("# "))
    assert words[:2] == ["kafka-acls", "--bootstrap-server"]
    assert words[words.index("--allow-principal") + 1] == "User:a b"
    wanted = [OPERATIONS[words[at + 1].lower()] for at, word in enumerate(words) if word == "--operation"]
    kind = GROUP if "--group" in words else TOPIC
    name = words[words.index("--group" if kind is GROUP else "--topic") + 1]
    if "--resource-pattern-type" in words:
        assert words[words.index("--resource-pattern-type") + 1] == "prefixed"
        name += ANY
    return {Right(kind, name, operation) for operation in wanted}


@pytest.mark.parametrize("kind", KINDS)
def test_the_commands_grant_what_a_process_needs_and_comments_the_rest(kind: str) -> None:
    lines = printed(kind, "--principal", "User:a b", "--queue", "Orders", "--to", "Shop", "--database", "sales")
    commands = [line for line in lines.splitlines() if not line.startswith("#")]
    comments = [line for line in lines.splitlines() if line.startswith("# kafka-acls")]
    needed, *others = ProcessRights("konverse", "sales", ["Orders"], ["Shop"]).of(kind)
    assert set().union(*map(granted, commands)) == set(needed.rights)
    wanted = {right for other in others for right in other.rights} - set(needed.rights)
    assert set().union(*map(granted, comments)) == wanted
    for other in others:  # each block of comments has all that its purpose needs
        _, _, block = lines.partition(f"# {other.purpose}:\n")
        block = block.split(":\n# ", 1)[0]
        found = set().union(*map(granted, [line for line in block.splitlines() if line.startswith("# kafka-acls")]))
        assert set(other.rights) - set(needed.rights) <= found
    assert len(commands) == len({(right.resource, right.name) for right in needed.rights}), "one for each resource"


def test_json_has_each_right_with_its_purpose() -> None:
    found = json.loads(
        printed("administrator", "--principal", "User:boss", "--queue", "a b", "--instance", "one", "--json")
    )
    assert {row["principal"] for row in found} == {"User:boss"}
    assert {row["name"] for row in found if row["operation"] == "Create"} == {
        f"one.default.a-20b{end}" for end in ("", ".queue.journal", ".queue.snapshot")
    }
    (lifetime,) = [row for row in found if "route" in row["purpose"]]
    assert lifetime == {
        "principal": "User:boss", "resource": "topic", "name": "one.open", "pattern": "literal", "operation": "Write",
        "purpose": "for the lifetime of a route",
    }  # fmt: skip


def test_the_page_shows_what_the_command_prints() -> None:
    page = (ROOT / "docs" / "operating.md").read_text("utf-8")
    said = printed("auditor", "--principal", "User:audit", "--queue", "Orders", "--database", "sales")
    assert f"$ konverse acl auditor --principal User:audit --queue Orders --database sales\n{said}```" in page


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["nobody", "--principal", "User:x"], "'nobody' is not one of"),
        (["sender"], "Missing option '--principal'"),
        (["sender", "--principal", "User:x", "--queue", ""], "the queue name"),
        (["reader", "--principal", "User:x"], "name the queues of this reader with --queue"),
        (["sender", "--principal", "User:x", "--queue", "a", "--to", "a\x00b"], "control character"),
    ],
)
def test_wrong_words_are_refused(words: list[str], error: str) -> None:
    done = CliRunner().invoke(app, ["acl", *words])
    assert done.exit_code == 2
    assert error in " ".join(done.output.replace("│", " ").split())
