"""Behaviours 24, 29 and 193 to 206: activation, in the form of `konverse run`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import pytest

import konverse
from konverse.bridge.broker import Broker
from konverse.bridge.worker.app import App
from konverse.bridge.worker.process import Job, WorkerProcess
from konverse.bridge.worker.supervisor import jobs
from konverse.dialog.transaction.transaction import Transaction
from konverse.schemas.errors import InvalidProcedure, InvalidSettings
from tests.kit.servers import Servers
from tests.kit.shop import DEADLINE_S, ORDER, RECEIPT, begin, drain, receive, send_orders, until

pytestmark = pytest.mark.stack


@contextmanager
def at_work(broker: Broker, handler: Callable[[Transaction], object], max_readers: int) -> Iterator[None]:
    """Run the readers of a `konverse run` process in this process while the block runs."""
    broker.activate("Orders", max_readers=max_readers, max_messages=1)(handler)
    working = WorkerProcess(broker, broker, until_drained=False)
    thread = threading.Thread(target=working.run)
    thread.start()
    try:
        yield
    finally:
        working.stop()
        thread.join(DEADLINE_S)
        assert not thread.is_alive()


class Counted:
    """A handler that counts its concurrent executions, and waits until `together` of them run, or are enough."""

    def __init__(self, together: int) -> None:
        self.most = 0
        self.handled: list[tuple[UUID, bytes]] = []
        self.threads: set[int] = set()
        self._lock = threading.Lock()
        self._running = 0
        self._enough = threading.Event()
        self._together = together

    def __call__(self, transaction: Transaction) -> None:
        with self._lock:
            self._running += 1
            self.most = max(self.most, self._running)
            self.threads.add(threading.get_ident())
            if self._running >= self._together:
                self._enough.set()
        assert self._enough.wait(DEADLINE_S)
        (message,) = transaction
        with self._lock:
            self._running -= 1
            self.handled.append((message.dialog.id, message.body))


def test_024_max_readers_has_bounds_and_0_starts_nothing(servers: Servers, database: str, broker: Broker) -> None:
    app = App(f"kafka://{servers.bootstrap}", database=database)
    for readers in (-1, 32_768):
        with pytest.raises(InvalidSettings, match="32767"):
            app.activate("Orders", max_readers=readers)
    app.activate("Shop", max_readers=32_767)(lambda transaction: None)
    idle = App(f"kafka://{servers.bootstrap}", database=database)
    idle.activate("Orders", max_readers=0)(lambda transaction: None)
    job = Job("shop:app", None, until_drained=False, grace_s=1, as_json=False)
    assert jobs(idle, job, processes=False) == jobs(idle, job, processes=True) == []
    with at_work(broker, len, 0):
        send_orders(broker, dialogs=1, messages=1)
    assert len(receive(broker, "Orders", 1)) == 1


def test_029_a_procedure_that_takes_other_parameters_is_refused() -> None:
    def two(transaction: konverse.Transaction, connection: object) -> None: ...

    def optional(transaction: konverse.Transaction, connection: object = None) -> None: ...

    def named(transaction: konverse.Transaction, *, connection: object = None) -> None: ...

    def nothing() -> None: ...

    procedures: tuple[Any, ...] = (two, optional, named, nothing)
    for procedure in procedures:
        with pytest.raises(InvalidProcedure, match=r"must take exactly one argument, the transaction") as refused:
            App().activate("Orders")(procedure)
        assert refused.value.number == 9653


def test_193_a_message_on_an_empty_queue_is_answered(broker: Broker) -> None:
    """In part: readers always run and wait for messages; a message does not start one."""
    handler = Counted(1)
    with at_work(broker, handler, 1):
        send_orders(broker, dialogs=1, messages=1)
        until(lambda: handler.handled, "it is answered")


def test_201_a_reader_that_was_idle_is_not_stopped(broker: Broker) -> None:
    handler = Counted(1)
    with at_work(broker, handler, 1):
        for number in (1, 2):  # the second message finds the reader of the first one
            send_orders(broker, dialogs=1, messages=1)
            until(lambda number=number: len(handler.handled) == number, "it is answered")  # type: ignore[misc]
    assert len(handler.threads) == 1


def test_194_never_more_than_max_readers_run(broker: Broker) -> None:
    handler = Counted(3)
    with at_work(broker, handler, 3):
        send_orders(broker, dialogs=8, messages=24)
        until(lambda: len(handler.handled) == 24, "all are handled")
    assert handler.most == 3


def test_196_of_one_conversation_one_reader_handles_at_a_time(broker: Broker) -> None:
    """In part: all readers run and wait from the beginning; none is started on demand."""
    handler = Counted(1)
    with at_work(broker, handler, 3):
        (sent,) = send_orders(broker, dialogs=1, messages=20).values()
        until(lambda: len(handler.handled) == 20, "all are handled")
    assert handler.most == 1
    assert [body for _, body in handler.handled] == sent


def test_202_a_handlers_failure_is_logged_and_its_return_value_is_ignored(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    failed = threading.Event()

    def handler(transaction: Transaction) -> object:
        for message in transaction:
            if not failed.is_set():
                failed.set()
                raise LookupError("no such article")
            transaction.send(message.dialog, RECEIPT, message.body)
        return [object()]

    dialog = begin(broker)
    dialog.send(ORDER, b"an order")
    broker.flush()
    with at_work(broker, handler, 1):
        (receipt,) = receive(broker, "Shop", 1)
    assert receipt.body == b"an order"
    (said,) = [record for record in caplog.records if "a handler of queue 'Orders' failed" in record.getMessage()]
    for words in ("attempt 1 of 5", str(dialog.id), "#0", "LookupError: no such article"):
        assert words in said.getMessage()
    assert drain(broker, "Orders") == []
