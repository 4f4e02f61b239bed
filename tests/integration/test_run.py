"""`konverse run`: an application's handlers in processes that die, are stopped, and fail."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Collection
from pathlib import Path
from typing import Any
from uuid import UUID

import psutil
import pytest

from examples.sales import services
from konverse.bridge.broker import Broker
from konverse.bridge.cli.main import app
from konverse.bridge.owner.follower import Follower
from konverse.bridge.reader.drain_check import DrainCheck, Mark
from konverse.bridge.worker.app import App
from konverse.bridge.worker.process import WorkerProcess
from konverse.dialog.transaction.transaction import Transaction
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.system_messages import ERROR, read_error
from tests.kit.answering import HOLD, POISON, Run
from tests.kit.commands import CliRunner
from tests.kit.oracle import executions, prove_exactly_once
from tests.kit.readme import readme
from tests.kit.servers import Servers
from tests.kit.shop import (
    DEADLINE_S,
    ORDER,
    RECEIPT,
    answer_once,
    begin,
    connected,
    drain,
    open_shop,
    queue_of,
    send_orders,
    until,
)
from tests.kit.workers import read_diary

pytestmark = pytest.mark.stack


def send(broker: Broker, *bodies: bytes) -> UUID:
    """Send a conversation with these messages."""
    dialog = begin(broker)
    for body in bodies:
        dialog.send(ORDER, body)
    broker.flush()
    return dialog.id


def released(broker: Broker, name: str) -> bool:
    """Whether the last owner of every partition gave it back, so that the next one needs no care."""
    queue = queue_of(broker, name)
    for number in range(queue.partitions):
        with Follower(broker._kafka, queue, number) as following:
            following.catch_up()
            if not following.head.clean:
                return False
    return True


def run(servers: Servers, database: str, *arguments: str) -> tuple[int, str, str]:
    """Run an operator's command."""
    common = {"KONVERSE_KAFKA": f"kafka://{servers.bootstrap}", "KONVERSE_DATABASE": database, "COLUMNS": "80"}
    answered = CliRunner(env=common).invoke(app, arguments)
    return answered.exit_code, answered.stdout, answered.stderr


@pytest.mark.slow
def test_a_reader_that_is_killed_is_started_again_and_each_message_counts_once_when_the_queue_is_drained(
    servers: Servers, database: str, tmp_path: Path
) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker, partitions=2)
        sent = send_orders(broker, dialogs=6, messages=24)
        held = send(broker, b"before", HOLD, b"behind")
        sent[held.bytes] = [b"before", HOLD, b"behind"]
        with Run(servers, database, tmp_path, "--readers", "processes", "--exit-when-drained") as worker:
            entries = until(
                lambda: [one for one in read_diary(tmp_path / "diary") if one["body"] == HOLD.decode()], "one holds"
            )
            os.kill(entries[0]["pid"], signal.SIGKILL)
            (line,) = worker.wait_for("by signal SIGKILL")
            assert f"{entries[0]['pid']} " in line["message"]
            (tmp_path / "released").touch()
            assert worker.wait(100) == 0, worker.text
            assert len({line["process"] for line in worker.said("reading queue 'Orders'")}) == 3
        handled = executions(read_diary(tmp_path / "diary"))
        assert len(handled[str(held), 1]) == 2
        assert len({entry["id"] for entry in handled[str(held), 1]}) == 1
        proof = prove_exactly_once(servers.bootstrap, queue_of(broker, "Orders"), queue_of(broker, "Shop"), sent)
        assert proof.messages == proof.replies == 27


def test_on_sigterm_a_handler_finishes_and_its_partitions_are_given_back(
    servers: Servers, database: str, tmp_path: Path
) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        sent = {send(broker, HOLD).bytes: [HOLD]}
        with Run(servers, database, tmp_path) as worker:
            worker.handled(1)
            process = psutil.Process(worker.process.pid)
            for one in (*process.children(), process):  # all of them, as systemd does
                one.terminate()
            worker.wait_for("stopping")
            later = send(broker, b"for whoever comes next")
            assert not released(broker, "Orders")
            (tmp_path / "released").touch()
            assert worker.wait() == 0, worker.text
        assert [entry["body"] for entry in read_diary(tmp_path / "diary")] == [HOLD.decode()]
        assert released(broker, "Orders")
        sent[later.bytes] = [b"for whoever comes next"]
        with broker.reader("Orders", partitions=(0,), timeout=1) as reader:
            answer_once(reader)
        proof = prove_exactly_once(servers.bootstrap, queue_of(broker, "Orders"), queue_of(broker, "Shop"), sent)
        assert proof.messages == proof.replies == 2


def test_at_a_second_signal_a_handler_is_cut_off_and_nothing_of_it_counts(
    servers: Servers, database: str, tmp_path: Path
) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        send(broker, HOLD)
        with Run(servers, database, tmp_path, "--grace", "600") as worker:
            worker.handled(1)
            worker.process.send_signal(signal.SIGINT)
            worker.wait_for("stopping")
            worker.process.send_signal(signal.SIGINT)
            assert worker.wait() == 8, worker.text
            assert worker.said("killed running handlers of")
        (message,) = drain(broker, "Orders", partitions=(0,))
        assert message.body == HOLD


def test_reader_processes_stop_when_their_parent_process_is_killed(
    servers: Servers, database: str, tmp_path: Path
) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        send(broker, b"one")
        with Run(servers, database, tmp_path) as worker:
            worker.handled(1)
            (child,) = psutil.Process(worker.process.pid).children()
            worker.process.kill()
            until(lambda: not child.is_running(), "the reader process ends")
        assert released(broker, "Orders")


@pytest.mark.slow
def test_failing_conversations_are_logged_suspended_and_operated_on_from_another_process(
    servers: Servers, database: str, tmp_path: Path
) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker, partitions=2)
        resumed, skipped, ended = (send(broker, POISON, b"behind %d" % number) for number in range(3))
        send_orders(broker, dialogs=2, messages=4)
        with Run(servers, database, tmp_path) as worker:
            worker.wait_for("is suspended after 5 failed attempts", 3)
            assert {one["body"] for one in worker.handled(4)} == {f"order {number}" for number in range(4)}
            failures = [one for one in worker.said("failed (attempt") if one["conversation"] == str(resumed)]
            assert [one["attempt"] for one in failures] == [1, 2, 3, 4, 5]
            assert {(one["queue"], *one["sequences"]) for one in failures} == {("Orders", 0)}
            assert "LookupError: no such article" in failures[1]["message"]
            assert ["exception" in one for one in failures] == [True, False, False, False, True]
            assert (
                len([one for one in worker.said("is suspended") if f"`konverse resume {resumed}`" in one["message"]])
                == 1
            )

            code, out, _ = run(servers, database, "suspended")
            assert max(map(len, out.splitlines())) <= 80
            assert all(str(one) in out for one in (resumed, skipped, ended))
            code, out, _ = run(servers, database, "suspended", "Orders", "--json")
            assert code == 0
            assert {(one["conversation"], one["attempts"], one["unread"]) for one in json.loads(out)} == {
                (str(one), 5, 2) for one in (resumed, skipped, ended)
            }
            assert run(servers, database, "skip", str(skipped))[0] == 0
            code, _, err = run(servers, database, "end", str(ended), "--error", "4711", "--description", "in vain")
            assert (code, err) == (0, "")
            worker.handled(5)
            assert worker.stop() == 0
        code, _, err = run(servers, database, "resume", str(resumed), "--timeout", "0")
        assert code == 7
        assert "no reader of its queue runs" in err
        (tmp_path / "mended").touch()
        with Run(servers, database, tmp_path) as worker:
            entries = worker.handled(7)
            assert worker.stop() == 0
        assert [one["body"] for one in entries if one["conversation"] == str(resumed)] == ["poison", "behind 0"]
        assert [one["body"] for one in entries if one["conversation"] == str(skipped)] == ["behind 1"]
        assert {one["conversation"] for one in entries}.isdisjoint({str(ended)})
        errors = [message for message in drain(broker, "Shop", partitions=(0,)) if message.type == ERROR]
        assert [(one.dialog.id, read_error(one.body)) for one in errors] == [(ended, (4711, "in vain"))]
        code, out, _ = run(servers, database, "suspended")
        assert (code, "0 suspended conversations" in out) == (0, True)
        code, _, err = run(servers, database, "resume", str(resumed))
        assert code == 2
        assert "is not suspended" in err
        code, _, err = run(servers, database, "skip", str(UUID(int=1)))
        assert code == 2
        assert "no queue of database" in err


@pytest.mark.slow
def test_all_that_is_suspended_is_resumed_at_once_when_its_handler_is_mended(
    servers: Servers, database: str, tmp_path: Path
) -> None:
    every = ("resume", "--all", "--reason", "no such article")
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker, partitions=2)
        alone = [send(broker, POISON, b"behind") for _ in range(3)]
        first = begin(broker)
        related = begin(broker, related_to=first)
        for dialog in (first, related):
            dialog.send(ORDER, POISON)
        broker.flush()
        with Run(servers, database, tmp_path) as worker:
            worker.wait_for("is suspended after 5 failed attempts", 4)
            for nothing in ("--queue", "Shop"), ("--reason", "of another fault"), ("--older-than", "1h"):
                code, out, _ = run(servers, database, *every, *nothing)
                assert (code, "0 suspended conversations resumed" in out) == (0, True)
            suspended = json.loads(run(servers, database, "suspended", "--json")[1])
            assert {one["conversation"] for one in suspended} >= {str(one) for one in alone}
            (tmp_path / "mended").touch()
            code, out, _ = run(servers, database, *every, "--json")
            assert [one | {"age_s": 0} for one in json.loads(out)] == [one | {"age_s": 0} for one in suspended]
            assert (code, {one["reason"] for one in suspended}) == (0, {"LookupError: no such article"})
            entries = worker.handled(8)
            assert worker.stop() == 0
        handled = {one["conversation"] for one in entries}
        assert handled == {str(one) for one in (*alone, first.id, related.id)}
        assert run(servers, database, "suspended", "--json")[1].strip() == "[]"
    code, _, err = run(servers, database, *every, "--queue", "Typo")
    assert (code, "'Typo'" in err) == (2, True)


def test_conversations_are_ended_from_above_by_another_process(servers: Servers, database: str, tmp_path: Path) -> None:
    here = ("--queue", "Orders")
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        cleaned, _ = (send(broker, b"%d" % number) for number in range(2))
        with Run(servers, database, tmp_path) as worker:
            worker.handled(2)
            assert run(servers, database, "end", str(cleaned), "--cleanup", *here)[::2] == (0, "")
            code, out, _ = run(servers, database, "error-broker-conversations", *here)
            assert (code, "1 conversation failed" in out) == (0, True)
            assert worker.stop() == 0
    code, _, err = run(servers, database, "end", str(cleaned), "--cleanup", *here)
    assert (code, "no queue of database" in err) == (2, True)
    code, out, _ = run(servers, database, "error-broker-conversations", *here)
    assert (code, "0 conversations failed" in out) == (0, True)


def test_more_processes_than_partitions_are_refused_with_the_remedy(
    servers: Servers, database: str, tmp_path: Path
) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker, partitions=1)
    with Run(servers, database, tmp_path, "--readers", "processes") as worker:
        assert worker.wait() == 2
    for words in ("queue 'Orders' has 1 partition,", "Set max_readers to 1 or less", "--readers threads"):
        assert words in worker.text


def test_the_example_answers_until_its_queue_is_drained(servers: Servers, database: str, tmp_path: Path) -> None:
    with connected(servers.bootstrap, database) as broker:
        services.create(broker, partitions=2)
        dialog = broker.begin_dialog(services.SHOP_SERVICE, services.ORDER_SERVICE, services.ORDERING)
        for number in range(3):
            dialog.send(services.ORDER, b'{"number": %d}' % number)
        broker.flush()
        options = ("--readers", "processes", "--exit-when-drained")
        with Run(servers, database, tmp_path, *options, app="examples.sales.app:app") as worker:
            assert worker.wait() == 0, worker.text
            assert worker.said("is drained")
        receipts = [
            json.loads(one.body) for one in drain(broker, "Shop", partitions=(0, 1)) if one.type == services.RECEIPT
        ]
        assert receipts == [{"number": number, "accepted": True} for number in range(3)]


def test_the_application_of_the_readme_answers(servers: Servers, database: str) -> None:
    names: dict[str, Any] = {}
    exec(
        compile(readme("import konverse\n\napp =", servers, database, "docs/guide/workers.md"), "README.md", "exec"),
        names,
    )
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        send_orders(broker, dialogs=2, messages=4)
        with names["app"].connect() as connection:
            WorkerProcess(connection, names["app"], until_drained=True).run()
        assert [message.body for message in drain(broker, "Shop", partitions=(0,))] == [b"accepted"] * 4


def test_a_queue_whose_handler_hangs_does_not_keep_the_error_of_another_one_from_ending_the_process(
    servers: Servers, database: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("konverse.bridge.reader.handlers.HANDLER_LEAVING_MS_MAX", 100)
    application = App(f"kafka://{servers.bootstrap}", database=database)
    hangs, release = threading.Event(), threading.Event()

    @application.activate("Orders")
    def hang(_transaction: Transaction) -> None:
        hangs.set()
        release.wait(DEADLINE_S)

    @application.activate("Shop")
    def leave(_transaction: Transaction) -> None:
        assert hangs.wait(DEADLINE_S)
        raise SystemExit("no more of this")

    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        dialog = begin(broker)
        dialog.send(ORDER, b"hang")
        dialog.set_timer(0.01)
        dialog.flush()
        with application.connect() as connection:
            try:
                with pytest.raises(SystemExit, match="no more of this"):
                    WorkerProcess(connection, application, until_drained=False).run()
            finally:
                release.set()
        assert "a thread of this process ended with SystemExit: no more of this" in caplog.text
        assert "did not finish; the messages there are received again: queue 'Orders'" in caplog.text


def test_queues_are_drained_when_no_handler_has_sent_anything_to_another_one(servers: Servers, database: str) -> None:
    application, waiting = App(f"kafka://{servers.bootstrap}", database=database), threading.Event()
    answered: list[bytes] = []

    @application.activate("Orders")
    def answer(transaction: Transaction) -> None:
        assert waiting.wait(DEADLINE_S)
        for message in transaction:
            transaction.send(message.dialog, RECEIPT, message.body)

    @application.activate("Shop")
    def receive(transaction: Transaction) -> None:
        answered.extend(message.body for message in transaction)

    class Waits(DrainCheck):
        """Releases the other handler when this queue was found empty."""

        def examine(self, queue: Queue, ours: Collection[int]) -> Mark | None:
            try:
                return super().examine(queue, ours)
            finally:
                waiting.set()

    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        send_orders(broker, dialogs=1, messages=1)
        with application.connect() as connection:
            connection.operations.draining = lambda queues: Waits(  # type: ignore[method-assign]
                connection._kafka, [queue_of(broker, one) for one in queues]
            )
            WorkerProcess(connection, application, until_drained=True).run()
    assert answered == [b"order 0"]


def test_a_module_that_ends_the_program_when_it_is_imported_is_named(
    servers: Servers, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ending.py").write_text("import sys\nsys.exit(3)\n", "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    code, _, err = run(servers, database, "run", "ending:app")
    assert code == 2
    assert "'ending' ends the program when it is imported (SystemExit: 3)" in err


ENDING = """
import konverse

app = konverse.App()


@app.activate("Orders")
def leave(transaction):
    raise SystemExit("enough")
"""


def test_a_handler_that_ends_its_process_is_logged_and_the_process_is_restarted(
    servers: Servers, database: str, tmp_path: Path
) -> None:
    (tmp_path / "leaving.py").write_text(ENDING, "utf-8")
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        send(broker, b"one")
        with Run(servers, database, tmp_path, app="leaving:app", cwd=tmp_path) as worker:
            worker.wait_for(
                "a handler of the queues of leaving:app ended this process by raising SystemExit (enough)", 2
            )
            assert worker.wait_for("it is restarted")
        assert "Traceback" not in worker.text


BOTH_SIDES = f"""
from pathlib import Path

import konverse

app = konverse.App()


@app.activate("Orders", max_readers=2)
def answer(transaction):
    for message in transaction:
        transaction.send(message.dialog, {RECEIPT!r}, message.body)


@app.activate("Shop")
def note(transaction):
    for message in transaction:
        Path(bytes(message.body).decode()).touch()
"""


def test_one_cleanup_of_both_sides_is_logged_once_though_several_processes_listen(
    servers: Servers, database: str, tmp_path: Path
) -> None:
    """Each side lives in a process of its own, and a third process has neither."""
    (tmp_path / "both_sides.py").write_text(BOTH_SIDES, "utf-8")
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker, partitions=2)
        options = ("--readers", "processes")
        with Run(servers, database, tmp_path, *options, app="both_sides:app", cwd=tmp_path) as worker:
            worker.wait_for("reading queue", 3)
            cleaned = list[str]()
            for body in (b"one", b"two"):
                cleaned.append(str(send(broker, body)))
                until((tmp_path / body.decode()).exists, "the answer is received")
                assert run(servers, database, "end", cleaned[-1], "--cleanup")[::2] == (0, "")
                worker.wait_for(f"conversation {cleaned[-1]}: CLEANUP")
            assert worker.stop() == 0
            told = [line["message"].split()[1].rstrip(":") for line in worker.said(": CLEANUP, requested")]
            assert told == cleaned, worker.text
