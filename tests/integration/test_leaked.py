"""`konverse conversations`: sides, forgotten sides, and their end."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest

from konverse.bridge.broker import Broker
from konverse.bridge.client.dialog import Dialog
from konverse.schemas.errors import BadInput, BrokerClosed, OutcomeUnknown, QueueNotFound
from tests.conformance.test_cleanup import cleaned, worked
from tests.integration.test_commands import COMMAND
from tests.kit.commands import run
from tests.kit.oracle import verify
from tests.kit.servers import Servers
from tests.kit.shop import (
    DEADLINE_S,
    ORDER,
    ORDER_SERVICE,
    begin,
    connected,
    drain,
    end_at_target,
    open_shop,
    queue_of,
    sent,
    until,
)

pytestmark = pytest.mark.stack

DAY_S = 86_400


@pytest.mark.parametrize("days", [-10, 10])
def test_conversation_ages_follow_kafka_time_and_not_the_local_clock(
    servers: Servers, database: str, monkeypatch: pytest.MonkeyPatch, days: int
) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        fire_and_forget(broker)
        real = time.time
        monkeypatch.setattr(time, "time", lambda: real() + days * DAY_S)
        assert list(broker.operations.leaked(older_than=DAY_S)) == []
        until(lambda: broker.operations.leaked(older_than=0.5), "it is old enough by Kafka's time")


def fire_and_forget(broker: Broker) -> Dialog:
    """The shop sends and ends at once. The order service takes both and does nothing."""
    dialog = sent(broker, b"0")
    dialog.end()
    broker.flush()
    drain(broker, "Shop")
    assert len(drain(broker, "Orders")) == 2
    return dialog


def ended_by_the_target(broker: Broker, error: int = 0) -> Dialog:
    dialog = sent(broker, b"0")
    end_at_target(broker, error)
    return dialog


def never_ended(broker: Broker) -> Dialog:
    dialog = ended_by_the_target(broker)
    assert len(drain(broker, "Shop")) == 1
    return dialog


def silent(broker: Broker) -> Dialog:
    dialog = sent(broker, b"0")
    assert len(drain(broker, "Orders")) == 1
    return dialog


def without_target(broker: Broker) -> Dialog:
    dialog = sent(broker, b"0")
    cleaned(broker, "Orders")
    return dialog


def only_begun(broker: Broker) -> Dialog:
    dialog = begin(broker)
    broker.flush()
    return dialog


def half_ended(broker: Broker) -> Dialog:
    """The shop has ended, and its queue has no reader."""
    dialog = silent(broker)
    dialog.end()
    broker.flush()
    return dialog


@contextmanager
def working(broker: Broker) -> Iterator[None]:
    """Run readers of both queues, which follow operators."""
    with broker.reader("Orders") as orders, broker.reader("Shop") as shop:
        for reader in (orders, shop):
            reader.wait_for_partitions(1)
        with worked(orders, shop):
            yield


def leaks(broker: Broker, older_than: float = 0.0, queue: str | None = None) -> list[tuple[str, str, str]]:
    return sorted(
        (one.role, one.state, one.cause) for one in broker.operations.leaked(older_than=older_than, queue=queue)
    )


@pytest.mark.parametrize(
    ("forget", "expected"),
    [
        (fire_and_forget, [("target", "DI", "fire and forget")]),
        (ended_by_the_target, [("initiator", "DI", "end unread")]),
        (lambda broker: ended_by_the_target(broker, error=1), [("initiator", "ER", "end unread")]),
        (never_ended, [("initiator", "DI", "not ended")]),
        (silent, [("initiator", "SO", "silent"), ("target", "CO", "silent")]),
        (without_target, [("initiator", "SO", "never answered")]),
        (only_begun, [("initiator", "SO", "never answered")]),
        (half_ended, [("target", "CO", "end not passed on")]),
    ],
    ids=["thrown", "unread end", "unread error", "not ended", "silent", "no target", "nothing sent", "not passed on"],
)
def test_a_leaked_conversation_is_reported_once_it_is_old_and_can_be_ended(
    servers: Servers, database: str, forget: Callable[[Broker], Dialog], expected: list[tuple[str, str, str]]
) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        forgotten = forget(broker)
        assert leaks(broker) == expected
        assert leaks(broker, 3_600.0) == []
        assert {one.conversation for one in broker.operations.leaked(older_than=0.0)} == {forgotten.id}
        with working(broker):
            until(
                lambda: broker.operations.end_leaked(broker.operations.leaked(older_than=0.0)) == [forgotten.id],
                "it is ended",
            )
        assert [*broker.operations.conversations()] == []
        assert verify(servers.bootstrap, [queue_of(broker, "Orders"), queue_of(broker, "Shop")]) == []


def test_a_side_that_waits_for_a_handler_a_timer_or_its_lifetime_is_not_reported_as_leaked(
    servers: Servers, database: str
) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        for options in ({}, {"lifetime": DAY_S}):
            begin(broker, **options).send(ORDER)
        broker.flush()
        assert leaks(broker) == []
        drain(broker, "Orders")
        assert leaks(broker) == [("initiator", "SO", "silent"), ("target", "CO", "silent")]
        reminded = silent(broker)
        reminded.set_timer(DAY_S)
        broker.flush()
        assert {str(reminded.id)}.isdisjoint(str(one.conversation) for one in broker.operations.leaked(older_than=0.0))


def test_a_conversation_active_since_the_listing_is_not_ended(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        dialog = silent(broker)
        found = broker.operations.leaked(older_than=0.0)
        dialog.send(ORDER, b"one more")
        dialog.flush()
        assert broker.operations.end_leaked(found) == []
        assert len(broker.operations.conversations("Orders")) == 1


def test_ending_leaked_sides_without_a_running_reader_reports_that_none_runs(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        silent(broker)
        with pytest.raises(OutcomeUnknown, match="no reader of its queue runs"):
            broker.operations.end_leaked(broker.operations.leaked(older_than=0.0), timeout=0.1)


def test_wrong_questions_are_refused(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker, keep=timedelta(days=7))
        silent(broker)
        with pytest.raises(QueueNotFound):
            broker.operations.leaked(queue="Typo")
        with pytest.raises(QueueNotFound):
            broker.operations.conversations("Typo")
        with pytest.raises(BadInput, match="older_than"):
            broker.operations.leaked(older_than=-1.0)
        with pytest.raises(BadInput, match="keeps received messages for 604,800 s"):
            broker.operations.leaked(older_than=8.0 * DAY_S)
        with pytest.raises(BadInput, match="leaked"):
            broker.operations.end_leaked([str(broker.database)])  # type: ignore[list-item]  # an invalid id
        assert broker.operations.end_leaked([]) == []
    with pytest.raises(BrokerClosed):
        broker.operations.leaked()


def test_the_conversations_command_reports_leaked_sides_as_text_and_as_json(servers: Servers, database: str) -> None:
    here = ("--kafka", f"kafka://{servers.bootstrap}", "--database", database)
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        code, out, err = run("conversations", *here)
        assert (code, "0 sides of conversations" in out, err) == (0, True, "")
        assert run("conversations", "--leaked", *here) == (0, "0 forgotten sides of conversations\n", "")
        assert run("conversations", "--leaked", "--end", "--yes", "--json", *here) == (0, "[]\n", "")
        forgotten = fire_and_forget(broker)
    code, out, err = run("conversations", *here)
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 80
    assert "2 sides of conversations" in out
    code, out, err = run("conversations", "--leaked", "--older-than", "0s", *here)
    assert (code, err) == (0, "")
    assert out.startswith(
        f"1 forgotten side of conversations: 1 fire and forget\n{forgotten.id}\n  target //sales/Order"
    )
    assert "(fire and forget)" in out
    code, out, err = run("conversations", "--leaked", *here)
    assert (code, out, err) == (0, "0 forgotten sides of conversations\n", "")
    rows: list[dict[str, Any]] = json.loads(run("conversations", "--leaked", "--older-than", "0", "--json", *here)[1])
    assert [(one["conversation"], one["role"], one["cause"], one["unread"]) for one in rows] == [
        (str(forgotten.id), "target", "fire and forget", 0)
    ]
    assert rows[0]["remedy"].endswith("wait for the other side to end first.")


def test_sides_are_chosen_by_queue_service_and_state(servers: Servers, database: str) -> None:
    here = ("--json", "--kafka", f"kafka://{servers.bootstrap}", "--database", database)
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        silent(broker)

    def sides(*choice: str) -> list[tuple[str, str]]:
        code, out, err = run("conversations", *choice, *here)
        assert (code, err) == (0, "")
        return sorted((one["queue"], one["state"]) for one in json.loads(out))

    assert sides() == [("Orders", "CO"), ("Shop", "SO")]
    assert sides("--queue", "Shop") == [("Shop", "SO")]
    assert sides("--service", ORDER_SERVICE) == [("Orders", "CO")]
    assert sides("--state", "CO") == [("Orders", "CO")]
    assert sides("--state", "DI") == []
    assert sides("--leaked", "--older-than", "0", "--queue", "Shop") == [("Shop", "SO")]
    for wrong, told in (
        (("--queue", "Typo"), "Typo"),
        (("--service", "//Typo"), "Typo"),
        (("--state", "XX"), "is not one of"),
        (("--older-than", "1h"), "add --leaked"),
        (("--end",), "add --leaked"),
        (("--leaked", "--end"), "add --yes"),
        (("--leaked", "--older-than", "soon"), "is not a duration"),
    ):
        code, out, err = run("conversations", *wrong, *here)
        assert (code, out) == (2, "")
        assert told in " ".join(err.replace("│", " ").split())


def test_ending_leaked_conversations_needs_confirmation_on_a_terminal_or_the_option_yes(
    servers: Servers, database: str
) -> None:
    here = ("--older-than", "0", "--kafka", f"kafka://{servers.bootstrap}", "--database", database)
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        forgotten = fire_and_forget(broker)
        refused = on_a_terminal(b"n\n", "conversations", "--leaked", "--end", *here)
        assert "End 1 conversation?" in refused
        assert "no conversation was ended" in refused
        assert len(broker.operations.conversations()) == 2
        with working(broker):
            code, out, err = run("conversations", "--leaked", "--end", "--yes", "--json", *here)
            assert (code, err) == (0, "1 conversation ended\n")
        assert [(one["conversation"], one["ended"]) for one in json.loads(out)] == [(str(forgotten.id), True)]
        assert len(broker.operations.conversations()) == 0


def on_a_terminal(answer: bytes, *arguments: str) -> str:
    """The command's output on a terminal, with `answer` as input."""
    ours, theirs = pty.openpty()
    with subprocess.Popen([*COMMAND, *arguments], stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        said, deadline = b"", time.monotonic() + DEADLINE_S
        while b"?" not in said:
            assert time.monotonic() < deadline, said
            said += os.read(ours, 1_000)
        os.write(ours, answer)
        while True:
            try:
                said += os.read(ours, 1_000)
            except OSError:  # the other end was closed
                break
        assert process.wait(DEADLINE_S) == 0
    os.close(ours)
    return said.decode()
