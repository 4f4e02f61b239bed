"""`konverse list`, `view` and `verify`, used by people and scripts."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

from konverse.deploy.host.processes import ProcessId
from konverse.deploy.servers.state import ServerState, StackState
from tests.kit.commands import run
from tests.kit.servers import Servers
from tests.kit.shop import DEADLINE_S, ORDER, answer, begin, connected, open_shop, pumped, send_orders, until

COMMAND = [sys.executable, "-c", "from konverse.bridge.cli.main import app; app()"]
NOBODY = "kafka://127.0.0.1:1"


@pytest.mark.stack
def test_a_database_without_queues_is_not_verified_and_those_that_are_there_are_named(
    servers: Servers, database: str
) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
    kafka = f"kafka://{servers.bootstrap}"
    code, out, err = run("verify", "--kafka", kafka, "--database", "typo")
    assert (code, out) == (2, "")
    assert "there is no database 'typo' (databases: " in err


NOBODYS = str(uuid.UUID(int=7))


@pytest.mark.stack
@pytest.mark.parametrize(
    "command",
    [
        ["list"],
        ["suspended"],
        ["conversations"],
        ["conversations", "--leaked"],
        ["view", "conversation_endpoints"],
        ["view", "services", "--json"],
        ["view", "Orders"],
        ["why", NOBODYS],
        ["suspend", NOBODYS],
        ["resume", NOBODYS],
        ["resume", "--all", "--older-than", "0s"],
        ["skip", NOBODYS],
        ["end", NOBODYS],
        ["error-broker-conversations"],
        ["accept-loss", "Orders", "0", "--yes"],
        ["verify"],
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_every_command_refuses_a_database_that_does_not_exist(servers: Servers, command: list[str]) -> None:
    code, out, err = run(*command, "--kafka", f"kafka://{servers.bootstrap}", "--database", "typo")
    assert (code, out) == (2, "")
    assert err.count("there is no database 'typo' (databases: ") == 1


@pytest.mark.stack
@pytest.mark.parametrize("command", [["list"], ["suspended"], ["conversations"]], ids=lambda command: command[0])
def test_a_command_on_a_database_without_queues_succeeds_and_reports_once_that_it_has_none(
    servers: Servers, database: str, command: list[str]
) -> None:
    with connected(servers.bootstrap, database) as broker:
        broker.admin.create_message_type("Order")
    code, _, err = run(*command, "--kafka", f"kafka://{servers.bootstrap}", "--database", database)
    assert code == 0
    assert err.count(f"there is no queue in database {database!r} (databases: ") == 1


@pytest.mark.stack
def test_without_redis_the_logs_are_verified_unless_redis_was_asked_for(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
    common = ["verify", "--kafka", f"kafka://{servers.bootstrap}", "--database", database, "--json"]
    code, out, err = run(*common, KONVERSE_REDIS="redis://127.0.0.1:1")
    assert (code, json.loads(out)["holds"], json.loads(out)["view_compared"]) == (0, True, False)
    assert "the view is not compared" in err
    code, out, err = run(*common, "--redis", "redis://127.0.0.1:1")
    assert (code, out) == (6, "")
    assert "does not answer" in err


@pytest.mark.stack
def test_a_queue_without_a_reader_is_reported_with_its_waiting_offsets_with_and_without_redis(
    servers: Servers, database: str
) -> None:
    common = ["--kafka", f"kafka://{servers.bootstrap}", "--database", database]
    view, redis = ["view", "Orders", *common], ["--redis", servers.redis_url]
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        send_orders(broker, dialogs=1, messages=3)  # the sender's session ends with one more record
    code, out, _ = run(*view)
    assert code == 0
    assert "NO READER, there never was one; 4 offsets wait" in out
    assert "need Redis" in out
    code, out, err = run(*view, "--json")
    assert (code, json.loads(out)["partitions"]["0"]) == (
        0,
        {
            "owner": None,
            "reader": False,
            "reader_unknown": None,
            "since": None,
            "silent_s": None,
            "stuck": False,
            "unread": 0,
            "waiting": 4,
            "held_up": None,
            "forged": 0,
            "forged_at": None,
            "unreadable": None,
        },
    )
    assert "need Redis" in err
    code, out, _ = run("verify", "Orders", *common)
    assert code == 0
    last = " ".join(out.split()).partition("Verified")[2]
    assert last == " up to what owners have ingested; 4 offsets that no owner has ingested were not judged"
    verified = json.loads(run("verify", "Orders", *common, "--json")[1])["partitions"]
    assert max(partition["waiting_offsets"] for partition in verified.values()) == 4

    with connected(servers.bootstrap, database, redis=servers.redis_url) as broker:
        with broker.reader("Orders", timeout=1) as reader:
            answer(reader)
            shown = json.loads(run(*view, *redis, "--json")[1])["partitions"]["0"]
            assert (shown["reader"], shown["since"], len(shown["owner"])) == (True, None, 32)
        send_orders(broker, dialogs=1, messages=2)
    code, out, err = run(*view, *redis)
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 80
    assert "NO READER, since 20" in out
    assert "3 offsets wait" in out
    assert shown["owner"][:8] not in out


@pytest.mark.stack
def test_the_view_of_an_unknown_conversation_says_where_it_may_be_and_which_reader_is_missing(
    servers: Servers, database: str
) -> None:
    common = ["--kafka", f"kafka://{servers.bootstrap}", "--database", database, "--redis", servers.redis_url]
    with connected(servers.bootstrap, database, redis=servers.redis_url) as broker:
        open_shop(broker)
        code, out, err = run("view", NOBODYS, *common)
        assert (code, out) == (2, "")
        assert f"has conversation {NOBODYS}: it is over on both sides, or it belongs to other databases" in err
        assert "ingested" not in err, "no data waits"
        dialog = begin(broker)
        dialog.send(ORDER)
        broker.flush()
        code, out, err = run("view", str(dialog.id), *common)
        assert (code, out) == (2, "")
        assert f"no queue of database {database!r} has conversation {dialog.id}" in err
        assert "its BEGIN is in the 2 offsets of logs that no owner has ingested" in err
        assert "No reader runs for 'Orders', 'Shop': start one (`konverse run`)" in err
        with broker.reader("Orders", timeout=1) as reader:
            answer(reader)
        assert str(dialog.id) in run("view", str(dialog.id), *common)[1]


@pytest.mark.stack
def test_the_view_of_a_queue_and_of_a_conversation_do_not_show_an_outdated_redis(
    servers: Servers, database: str
) -> None:
    place = ["--kafka", f"kafka://{servers.bootstrap}", "--database", database, "--redis", servers.redis_url]
    with connected(servers.bootstrap, database, redis=servers.redis_url) as broker:
        open_shop(broker)
        with broker.reader("Orders", timeout=1) as reader:
            (conversation,) = send_orders(broker, dialogs=1, messages=2)
            answer(reader)
    commands = (["view", "Orders", *place], ["view", str(uuid.UUID(bytes=conversation)), *place])
    for command in commands:
        code, out, err = run(*command)
        assert (code, err, "come from the logs" in out) == (0, "", False)
    with connected(servers.bootstrap, database) as broker, broker.reader("Orders", timeout=1) as reader:
        send_orders(broker, dialogs=1, messages=3)
        answer(reader)
    for command in commands:
        code, out, err = run(*command)
        assert (code, err) == (0, "")
        assert "Orders/0: Redis is behind the logs; the rows come from the logs" in out
    rows = json.loads(run(*commands[0], "--json")[1])["conversations"]
    assert sorted(row["consumed"] for row in rows) == [2, 3]


@pytest.mark.stack
def test_command_output_fits_into_80_columns_and_json_values_have_types(servers: Servers, database: str) -> None:
    common = ["--kafka", f"kafka://{servers.bootstrap}", "--database", database]
    with connected(servers.bootstrap, database, redis=servers.redis_url) as broker:
        open_shop(broker, partitions=2)
        sent = send_orders(broker, dialogs=2, messages=4)
        with broker.reader("Orders", timeout=1) as reader:
            answer(reader)
        with broker.reader("Orders") as reader, pumped(reader):
            until(lambda: len(broker.view("Orders").rows(0) + broker.view("Orders").rows(1)) == 2, "the view is there")
            view = ["view", "Orders", *common, "--redis", servers.redis_url]
            shown, as_json = run(*view), run(*view, "--json")
    listed, verified = run("list", *common), run("verify", *common)
    for code, out, err in (shown, listed, verified):
        assert (code, err) == (0, "")
        assert max(map(len, out.splitlines())) <= 80
        assert "…" not in out
    for conversation in sent:
        assert conversation.hex() in shown[1].replace("-", "")
    for words in ("Orders/0", "conversations", "accepted", "duplicates"):
        assert words in verified[1]
    rows: list[dict[str, Any]] = json.loads(as_json[1])["conversations"]
    assert [row["timer_due_ms"] for row in rows] == [None] * len(rows)
    catalog: dict[str, Any] = json.loads(run("list", *common, "--json")[1])
    assert set(catalog) == {
        *("message_types", "xml_schema_collections", "contracts", "queues", "services", "routes", "broker_priorities"),
        "routing_tables",
    }
    assert catalog["routes"][0] == {
        "name": "AutoCreatedLocal",
        "address": "LOCAL",
        "service_name": "",
        "broker_instance": "",
        "mirror_address": "",
        "expires": "never",
    }
    assert next(queue["partitions"] for queue in catalog["queues"] if queue["name"] == "Orders") == 2
    assert {
        "name": "//sales/Ordering",
        "sent_by": {"//sales/Order": "INITIATOR", "//sales/Receipt": "TARGET", "//sales/Note": "ANY"},
    } in catalog["contracts"]
    assert ["//sales/Ordering"] in [service["contracts"] for service in catalog["services"]]


def test_a_stack_that_runs_is_named_when_kafka_is_looked_for_elsewhere(tmp_path: Path) -> None:
    folder = tmp_path / "konverse" / "stack" / "default"
    folder.mkdir(parents=True)
    server = ServerState("kafka", "kafka", 23456, 1, 23457, ProcessId.of(os.getpid()))
    StackState("default", "cluster", (server,)).save(folder / "stack.json")
    code, _, err = run("list", "--kafka", NOBODY, XDG_STATE_HOME=str(tmp_path), KONVERSE_CONNECT_TIMEOUT_S="0.2")
    assert code == 6
    assert "the local stack 'default' runs; use it with: export KONVERSE_KAFKA=kafka://127.0.0.1:23456\n" in err


def test_waiting_for_kafka_is_shown_on_a_terminal_and_ctrl_c_ends_it_at_once() -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen([*COMMAND, "list", "--kafka", NOBODY], stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        said = b""
        deadline = time.monotonic() + DEADLINE_S
        while b"Waiting up to 10 s for Kafka at 127.0.0.1:1" not in said:
            assert time.monotonic() < deadline, said
            said += os.read(ours, 1_000)
        interrupted = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_S) == 130
        assert time.monotonic() - interrupted < 3
    os.close(ours)
