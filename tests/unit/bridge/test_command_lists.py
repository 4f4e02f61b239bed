"""Lists of the command line end after fifty rows and say so; --json prints all."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from types import SimpleNamespace
from uuid import UUID

import pytest

from konverse.bridge.admin.instructions import Suspended
from konverse.bridge.admin.leaks import Leaked
from konverse.bridge.admin.loss import Loss, LostConversation
from konverse.bridge.cli import accept_loss, conversations, operate
from konverse.bridge.cli.main import app
from konverse.bridge.views.rows import ServiceRow
from konverse.bridge.views.view_result import View
from tests.kit.commands import CliRunner


def suspended(count: int) -> list[list[Suspended]]:
    """Suspended conversations in two partitions."""
    each = [
        Suspended(
            "Orders", number % 2, UUID(int=number), "target", "//orders", "//shop", 5, 1, "//order", "no bread", 60.0
        )
        for number in range(count)
    ]
    return [each[::2], each[1::2]]


def lost(count: int) -> Loss:
    """A loss that `count` conversations may have lived through."""
    each = (LostConversation(UUID(int=number), "target", None, None, known=False, waiting=0) for number in range(count))
    return Loss("Orders", 0, 0, 7, 8, 1, tuple(each))


def opened(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Have the commands find `count` conversations, without Kafka."""
    operations = SimpleNamespace(suspended=lambda _: suspended(count), lost=lambda *_: lost(count))
    for command in (operate, accept_loss):
        monkeypatch.setattr(command, "opened", lambda *_, **__: nullcontext(SimpleNamespace(operations=operations)))


@pytest.mark.parametrize("arguments", [["suspended"], ["accept-loss", "Orders", "0"]], ids=" ".join)
@pytest.mark.parametrize(("count", "shown", "more"), [(50, 50, ""), (51, 50, "… and 1 more; --json prints all\n")])
def test_a_list_ends_after_fifty_rows_and_says_so(
    arguments: list[str], count: int, shown: int, more: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(monkeypatch, count)
    monkeypatch.setattr(accept_loss, "check_answer", lambda *_, **__: None)
    monkeypatch.setattr(accept_loss, "confirmed", lambda *_, **__: False)
    answer = CliRunner(env={"COLUMNS": "200"}).invoke(app, arguments)
    assert answer.exit_code == 0, answer.stderr
    assert sum(line.startswith("00000000-") for line in answer.stdout.splitlines()) == shown
    assert (f"{count} suspended conversations" in answer.stdout) or (f"{count} conversations as" in answer.stdout)
    assert ("more; --json" in answer.stdout) is bool(more)
    assert more in answer.stdout


@pytest.mark.parametrize("arguments", [["suspended"], ["accept-loss", "Orders", "0"]], ids=" ".join)
def test_json_has_all_rows(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    opened(monkeypatch, 120)
    answer = CliRunner().invoke(app, [*arguments, "--json"])
    printed = json.loads(answer.stdout)
    assert len(printed if isinstance(printed, list) else printed["conversations"]) == 120


class Ended(list[UUID]):
    """Ids of conversations that were ended, in no index."""

    def __contains__(self, _: object) -> bool:
        raise AssertionError("the ids are searched through once for each forgotten side")


def test_json_says_of_each_forgotten_side_whether_its_conversation_was_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    def side(number: int) -> Leaked:
        names = ("target", "//orders", "//shop", "DEFAULT", "CO")
        return Leaked("Orders", 0, UUID(int=number), *names, 1, 0, None, None, 3_600.0, "silent", "why", "remedy")

    operations = SimpleNamespace(
        leaked=lambda **_: View([side(number) for number in range(3)]),
        end_leaked=lambda *_, **__: Ended([UUID(int=1)]),
    )
    broker = SimpleNamespace(operations=operations)
    monkeypatch.setattr(conversations, "opened", lambda *_, **__: nullcontext(broker))
    answer = CliRunner().invoke(app, ["conversations", "--leaked", "--end", "--yes", "--json"])
    assert answer.exit_code == 0, answer.output
    assert [one["ended"] for one in json.loads(answer.stdout)] == [False, True, False]


@pytest.mark.parametrize(
    ("conditions", "names"),
    [
        (["name=a"], ["a"]),
        (["name=a", "service_id=1"], ["a"]),
        (["name=a", "name=b"], []),
        (["name=b", "name=b"], ["b"]),
    ],
)
def test_a_row_of_a_view_has_all_values_that_are_asked_for(
    conditions: list[str], names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [ServiceRow("a", 1, 7), ServiceRow("b", 2, 7)]
    broker = SimpleNamespace(views=SimpleNamespace(services=lambda: View(rows)))
    monkeypatch.setattr(sys.modules["konverse.bridge.cli.view"], "opened", lambda *_, **__: nullcontext(broker))
    arguments = [word for condition in conditions for word in ("--where", condition)]
    answer = CliRunner().invoke(app, ["view", "services", *arguments, "--json"])
    assert answer.exit_code == 0, answer.output
    assert [json.loads(line)["name"] for line in answer.stdout.splitlines()] == names
