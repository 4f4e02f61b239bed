"""The commands of the guide's page about the first day in production, at the faults that the page describes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import psutil
import pytest
from confluent_kafka.admin import AdminClient

from konverse.bridge.broker import Broker
from konverse.schemas.system_messages import ERROR, read_error
from tests.kit.answering import POISON, Run
from tests.kit.commands import run
from tests.kit.readme import ROOT, commands, readme
from tests.kit.servers import Servers
from tests.kit.shop import RECEIPT, connected, drain, open_shop, queue_of, sent, until
from tests.kit.topics import set_config

pytestmark = pytest.mark.stack

PAGE: Final = "docs/guide/operating.md"
TEXT: Final = (ROOT / PAGE).read_text("utf-8")
ENDS: Final = {
    "run": ("reading queue 'Orders'", signal.SIGTERM, 0),
    "transmit": ("transmitting", signal.SIGTERM, 0),
}
"""Program → a log line of it at work, the signal that stops it, and its exit code."""


def kafka(servers: Servers) -> str:
    return f"kafka://{servers.bootstrap}"


def command(servers: Servers, *arguments: str) -> str:
    """The output of a command that succeeds."""
    code, out, err = run(*arguments, KONVERSE_KAFKA=kafka(servers))
    assert code == 0, f"{arguments}: {err}"
    return out


def suspended(servers: Servers, database: str) -> set[str]:
    """Ids of the suspended conversations."""
    found = json.loads(command(servers, "suspended", "--database", database, "--json"))
    return {one["conversation"] for one in found}


def test_the_programs_to_start_run_until_they_are_stopped(servers: Servers, instance: str, tmp_path: Path) -> None:
    program = readme("import konverse\n\napp =", servers, instance, "docs/guide/workers.md")
    (tmp_path / "shop.py").write_text(program, "utf-8")
    environment = os.environ | {"KONVERSE_KAFKA": kafka(servers), "KONVERSE_INSTANCE": instance}
    with connected(servers.bootstrap, instance, instance=instance) as broker:
        open_shop(broker, partitions=4)
    for arguments, _ in commands("konverse run shop:app", instance, PAGE):
        log = tmp_path / f"{arguments[0]}.log"
        start = [sys.executable, "-c", "from konverse.bridge.cli.main import app; app()", *arguments]
        with log.open("wb") as errors:
            process = subprocess.Popen(start, cwd=tmp_path, env=environment, stderr=errors)
        working, stop, code = ENDS[arguments[0]]
        try:
            until(lambda at=log, words=working: words in at.read_text("utf-8"), working)  # type: ignore[misc]
        finally:
            process.send_signal(stop)
            ended = process.wait(60)
        assert ended == code, log.read_text("utf-8")


@pytest.mark.slow
def test_suspended_conversations_are_shown_explained_and_dealt_with(
    servers: Servers, database: str, tmp_path: Path
) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        waiting = [str(sent(broker, POISON, b"behind").id) for _ in range(4)]
        with Run(servers, database, tmp_path) as worker:
            worker.wait_for("is suspended after 5 failed attempts", 4)
            shown = [command(servers, *arguments) for arguments, _ in commands("konverse view Orders", database, PAGE)]
            assert "NO READER" not in shown[0]
            assert re.search(r"Orders +0 +8 +0 +\d+\w +4 +yes", shown[1]), "8 messages of 4 conversations are parked"
            assert all(one in shown[2] for one in waiting)
            assert "Verified" in shown[-1]
            (tmp_path / "mended").touch()
            resumed, skipped, ended, _ = waiting
            subject = {"why": resumed, "resume": resumed, "skip": skipped, "end": ended}
            for arguments, _ in commands("konverse suspended Orders", database, PAGE):
                command(servers, *(subject[arguments[0]] if word == "CONVERSATION" else word for word in arguments))
            worker.handled(5)
            assert not suspended(servers, database)
        answers = drain(broker, "Shop")
    assert [message.type for message in answers].count(RECEIPT) == 5
    (error,) = [message for message in answers if message.type == ERROR]
    assert (str(error.dialog.id), read_error(error.body)) == (ended, (4711, "cannot be handled"))


@pytest.mark.slow
def test_a_dead_worker_is_shown_and_another_one_continues(servers: Servers, database: str, tmp_path: Path) -> None:
    silent = "its owner has written nothing for"
    assert silent in TEXT
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        sent(broker, b"first")
        with Run(servers, database, tmp_path) as worker:
            worker.handled(1)
            worker.wait_for("owns the partition")
            kill_at_once(worker)
            sent(broker, b"second")
            until(lambda: silent in command(servers, "view", "Orders", "--database", database), "the view shows it")
        with Run(servers, database, tmp_path) as another:
            another.handled(2)
        assert [message.type for message in drain(broker, "Shop")] == [RECEIPT] * 2


def kill_at_once(worker: Run) -> None:
    """Kill the worker with its reader processes, as when its machine dies."""
    process = psutil.Process(worker.process.pid)
    process.suspend()
    for one in (*process.children(recursive=True), process):
        one.kill()


def test_a_changed_topic_is_named_with_its_remedy(servers: Servers, database: str, tmp_path: Path) -> None:
    admin = AdminClient({"bootstrap.servers": servers.bootstrap})
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        with Run(servers, database, tmp_path) as worker:
            worker.wait_for("owns the partition")
            set_config(admin, topic_of(broker), "retention.ms", "3600000")
            (line, *_) = worker.wait_for("retention.ms=3600000")
            assert line["level"] == "ERROR"
            said = line["message"].replace(f"{database}.{database}", "konverse.sales")
            said = said.replace(servers.bootstrap, "localhost:9092")
            assert said in " ".join(TEXT.split())
            with Run(servers, database, tmp_path) as another:
                assert another.wait() == 7
            set_config(admin, topic_of(broker), "retention.ms", "-1")
            sent(broker, b"after")
            worker.handled(1)


def topic_of(broker: Broker) -> str:
    return queue_of(broker, "Orders").topic
