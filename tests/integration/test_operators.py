"""Operators suspend, skip and end any conversation at any time, with every kind of reader process."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import cast
from uuid import UUID

import pytest

from konverse.bridge.broker import Broker
from konverse.bridge.client.dialog import Dialog
from konverse.bridge.kafka.log_reader import LogReader
from konverse.bridge.kafka.topics import Topics
from konverse.bridge.reader.reader import Reader
from konverse.dialog.transaction.received import Message
from konverse.dialog.transaction.transaction import Transaction
from konverse.schemas.errors import InvalidSettings, InvalidState, OutcomeUnknown, TopicMismatch
from konverse.schemas.identifiers import Role, instruction_topic
from konverse.schemas.system_messages import ERROR, read_error
from konverse.schemas.wire.instruction import Instruction, decode
from tests.integration.test_run import run
from tests.kit.answering import HOLD, POISON, READERS, Run, answer
from tests.kit.servers import Servers
from tests.kit.shop import (
    DEADLINE_S,
    ORDER,
    ORDER_SERVICE,
    ORDERING,
    RECEIPT,
    connected,
    drain,
    handle,
    open_shop,
    pumped,
    receive,
    sent,
    state_of,
    until,
)
from tests.kit.workers import read_diary

pytestmark = pytest.mark.stack

DESK_SERVICE = "//sales/Desk"
AT_ONCE_S = 5.0
"""An owner looks for an operator's order twice a second, and the machine may be busy."""


@contextmanager
def in_a_thread(broker: Broker, work: Callable[[Reader], None]) -> Iterator[None]:
    over = threading.Event()
    with broker.reader("Orders", max_messages=1, timeout=0.2) as reader:
        reader.wait_for_partitions(1)

        def until_over() -> None:
            while not over.is_set():
                work(reader)

        thread = threading.Thread(target=until_over)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def iterate(reader: Reader) -> None:
    """Receive like a program without `run`."""
    for transaction in reader:
        with transaction:
            answer(transaction)


@contextmanager
def reading(way: str, servers: Servers, broker: Broker, folder: Path) -> Iterator[None]:
    """Read Orders in this way, and release the handlers at the end."""
    with ExitStack() as exits:
        exits.enter_context(_reading(way, servers, broker, folder))
        exits.callback((folder / "released").touch)
        yield


@contextmanager
def _reading(way: str, servers: Servers, broker: Broker, folder: Path) -> Iterator[None]:
    if way == "konverse run":
        with Run(servers, broker.database, folder) as worker:
            worker.wait_for("reading queue 'Orders'")
            yield
    else:
        with in_a_thread(broker, iterate if way == "iterated" else lambda reader: reader.run(answer)):
            yield


def bodies(folder: Path) -> list[str]:
    return [entry["body"] for entry in read_diary(folder / "diary")]


@pytest.mark.parametrize(("way", "handlers"), [("iterated", 1), ("run", 1), ("konverse run", READERS)])
def test_operators_suspend_skip_end_and_clean_up_unsuspended_conversations_while_handlers_are_busy(  # noqa: PLR0917  # fixtures
    servers: Servers, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, handlers: int
) -> None:
    """While all handlers are busy with other groups, and behind the handler that has the group."""
    monkeypatch.setattr("tests.kit.answering.folder", tmp_path)
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        with reading(way, servers, broker, tmp_path):
            names = ("suspended", "skipped", "ended", "cleaned")
            opened = {name: sent(broker, b"first") for name in names}
            until(lambda: len(bodies(tmp_path)) == len(names), "all of them are idle")
            held = [sent(broker, HOLD) for _ in range(handlers)]
            until(lambda: bodies(tmp_path).count(HOLD.decode()) == handlers, "the handlers are busy")
            for name in ("skipped", "ended", "cleaned"):
                for number in range(2):
                    opened[name].send(ORDER, f"{name} {number}".encode())
            broker.flush()
            began = time.monotonic()
            broker.operations.suspend(opened["suspended"].id, reason="who ordered this?", queue="Orders")
            broker.operations.skip(opened["skipped"].id, queue="Orders")
            broker.operations.end(opened["ended"].id, error=4711, description="no", queue="Orders")
            broker.operations.end(opened["cleaned"].id, cleanup=True, queue="Orders")
            assert time.monotonic() - began < 4 * AT_ONCE_S
            (listed,) = [one for found in broker.operations.suspended() for one in found]
            assert (listed.conversation, listed.reason) == (opened["suspended"].id, "who ordered this?")

            opened["suspended"].send(ORDER, b"parked")
            broker.flush()
            with pytest.raises(InvalidState, match="is suspended already"):
                broker.operations.suspend(opened["suspended"].id, queue="Orders")
            with pytest.raises(OutcomeUnknown, match="a handler works on its group"):
                broker.operations.suspend(held[0].id, queue="Orders", timeout=0.5)
            (tmp_path / "released").touch()
            broker.operations.end(held[0].id, queue="Orders")  # behind the handler; the earlier order is then void
            until(lambda: "skipped 1" in bodies(tmp_path), "what was behind the skipped message")
            assert set(bodies(tmp_path)) == {"first", HOLD.decode(), "skipped 1"}
            broker.operations.resume(opened["suspended"].id)
            until(lambda: "parked" in bodies(tmp_path), "what was suspended goes on")
        errors = [one for one in drain(broker, "Shop", partitions=(0,)) if one.type == ERROR]
        assert [(one.dialog.id, read_error(one.body)) for one in errors] == [(opened["ended"].id, (4711, "no"))]


def apart(broker: Broker, *readers: Reader) -> tuple[Dialog, Reader, Reader]:
    """A conversation whose two sides live in one queue with different readers, and their readers."""

    def home_of(dialog: Dialog, role: Role) -> Reader:
        homes = lambda: next((one for one in readers if state_of(one, role, dialog)), None)  # noqa: E731
        return cast("Reader", until(homes, f"the {role.name.lower()} is known"))

    for _ in range(64):  # one conversation in two is one of these
        dialog = broker.begin_dialog(DESK_SERVICE, ORDER_SERVICE, ORDERING)
        dialog.send(ORDER, b"first")
        dialog.flush()
        initiator, target = (home_of(dialog, role) for role in Role)
        if initiator is not target:
            return dialog, initiator, target
    raise AssertionError("the two sides of no conversation have different readers")


def test_of_two_sides_in_one_queue_only_the_suspended_one_is_ended(servers: Servers, database: str) -> None:
    """Each side lives in a partition of another process. The other side receives the EndDialog."""
    with connected(servers.bootstrap, database) as broker, connected(servers.bootstrap, database) as elsewhere:
        open_shop(broker, partitions=2)
        broker.admin.create_service(DESK_SERVICE, queue="Orders")
        with (
            broker.reader("Orders", partitions=(0,)) as here,
            elsewhere.reader("Orders", partitions=(1,)) as there,
            pumped(here, there),
        ):
            dialog, initiator, target = apart(broker, here, there)
            target.operations.suspend(dialog.id)
            until(lambda: [one for part in broker.operations.suspended() for one in part], "it is suspended")
            broker.operations.end(dialog.id)
            until(lambda: state_of(initiator, Role.INITIATOR, dialog) != "CO", "the other side changes")
            assert state_of(initiator, Role.INITIATOR, dialog) == "DI"


def test_a_running_reader_obeys_operators_after_the_topic_of_their_commands_was_deleted(
    servers: Servers, database: str, instance: str
) -> None:
    topic = instruction_topic(instance)
    with connected(servers.bootstrap, database, instance=instance) as broker:
        open_shop(broker)
        dialogs = [sent(broker, b"first") for _ in range(3)]
        topics, identifiers = Topics(broker._kafka), set[bytes]()
        with broker.reader("Orders") as reader, pumped(reader):
            for dialog in dialogs:
                broker.operations.suspend(dialog.id, queue="Orders", timeout=DEADLINE_S)
                identifiers.add(topics.topic_id(topic))
                broker._kafka.admin.delete_topics([topic])[topic].result(DEADLINE_S)

                def created() -> bool:
                    with suppress(TopicMismatch):  # the deletion came between the two questions
                        return topics.partitions(topic) is not None and topics.topic_id(topic) not in identifiers
                    return False

                until(created, "the reader creates the topic")


def instructed(broker: Broker, conversation: UUID) -> list[Instruction]:
    """The instructions about a conversation that stand in their topic."""
    topic = instruction_topic(broker.settings.instance)
    with closing(LogReader(broker._kafka)) as reader:
        if Topics(broker._kafka).partitions(topic) is None:
            return []
        chunks = reader.read(topic, 0, *reader.ends(topic, 0))
        found = [decode(message.value() or b"") for messages, _ in chunks for message in messages]
    return [one for one in found if one.conversation == conversation.bytes]


def test_when_two_processes_skip_the_same_message_one_gets_an_error_that_it_dropped_nothing(
    servers: Servers, database: str
) -> None:
    with connected(servers.bootstrap, database) as broker, ThreadPoolExecutor(2) as both:
        open_shop(broker)
        dialog = sent(broker, b"0", b"1", b"2", b"3")
        with connected(servers.bootstrap, database) as first, connected(servers.bootstrap, database) as second:
            running = [
                both.submit(one.operations.skip, dialog.id, queue="Orders", timeout=60) for one in (first, second)
            ]
            until(lambda: len(instructed(broker, dialog.id)) == 2, "both instructions are written")
            with broker.reader("Orders") as reader:
                reader.wait_for_partitions(1)
                errors = [one.exception() for one in running]
                assert sorted(map(type, errors), key=str) == sorted((type(None), InvalidState), key=str), errors
                assert "this instruction dropped nothing" in str(errors)
                broker.operations.skip(dialog.id, queue="Orders", timeout=60)  # another message: it has its own say
        assert [message.body for message in drain(broker, "Orders")] == [b"2", b"3"]


def test_the_command_suspends_and_the_list_shows_attempts_age_and_the_last_error(
    servers: Servers, database: str, tmp_path: Path
) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        with Run(servers, database, tmp_path) as worker:
            failed, idle = sent(broker, POISON), sent(broker, b"good")
            worker.wait_for("is suspended after 5 failed attempts")
            worker.handled(1)
            code, out, err = run(
                servers, database, "suspend", str(idle.id), "--reason", "an audit", "--queue", "Orders"
            )
            assert (code, out, err) == (0, f"{idle.id} is suspended\n", "")
            assert worker.stop() == 0
        out = run(servers, database, "suspended")[1]
        for words in ("attempts", "age", "last error", "no such article", "an audit", str(failed.id), str(idle.id)):
            assert words in " ".join(out.replace("│", " ").split()), out
        rows = json.loads(run(servers, database, "suspended", "--json")[1])
        assert {UUID(one["conversation"]): (one["attempts"], one["reason"]) for one in rows} == {
            failed.id: (5, "LookupError: no such article"),
            idle.id: (0, "an audit"),
        }
        assert all(0 <= one["age_s"] < 60 for one in rows)


def test_all_are_resumed_only_for_a_reason_or_an_age(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        one = sent(broker, b"one")
        receive(broker, "Orders", 1)
        with in_a_thread(broker, iterate):
            broker.operations.suspend(one.id, reason="an audit", queue="Orders")
            with pytest.raises(InvalidSettings, match=r"`reason`.*`older_than`"):
                broker.operations.resume_all()
            code, out, err = run(servers, database, "resume", "--all")
            assert (code, out) == (2, "")
            assert "--reason TEXT or --older-than TIME" in " ".join(err.replace("│", " ").split())
            assert (
                broker.operations.resume_all(reason="another fault")
                == broker.operations.resume_all(older_than=600)
                == []
            )
            assert [found.conversation for found in broker.operations.resume_all(reason="AUDIT", older_than=0)] == [
                one.id
            ]
            assert not any(broker.operations.suspended())


def test_a_suspension_that_was_undone_is_not_obeyed_again_by_the_next_reader(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        dialog = sent(broker, b"0")
        with broker.reader("Orders", timeout=1) as reader:
            reader.wait_for_partitions(1)
            with pumped(reader):
                broker.operations.suspend(dialog.id, reason="look into it", queue="Orders")
                broker.operations.resume(dialog.id, queue="Orders")
            assert [message.body for transaction in reader for message in taken(transaction)] == [b"0"]
            reader.settle()
        dialog.send(ORDER, b"1")
        broker.flush()
        with connected(servers.bootstrap, database) as another, another.reader("Orders", timeout=5) as reader:
            assert [message.body for transaction in reader for message in taken(transaction)] == [b"1"]
            assert reader.operations.suspended == []


def test_a_cleanup_removes_a_side_too_that_a_handler_has_and_the_journal_does_not_know_yet(
    servers: Servers, database: str
) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        dialog = sent(broker, b"0")
        handle(broker, "Orders", lambda transaction: transaction.send(transaction.dialog, RECEIPT))
        with (
            broker.reader("Orders", timeout=1) as orders,
            broker.reader("Shop", timeout=DEADLINE_S) as shop,
            ThreadPoolExecutor(1) as pool,
        ):
            orders.wait_for_partitions(1)
            transaction = next(shop)
            with pumped(orders):
                with transaction:
                    assert [message.type for message in transaction] == [RECEIPT]
                    ending = pool.submit(broker.operations.end, dialog.id, cleanup=True)
                    with pytest.raises(TimeoutError):
                        ending.result(4.0)  # the other side is still there
                with pumped(shop):
                    ending.result()
                assert list(broker.operations.conversations()) == []


def taken(transaction: Transaction) -> list[Message]:
    """Receive all messages of a transaction, and commit."""
    with transaction:
        return [*transaction]
