"""Several threads on one reader and one dialog, and partitions that change owners while handlers run."""

from __future__ import annotations

import os
import threading
import uuid
import warnings
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from konverse.bridge.broker import Broker
from konverse.bridge.client.dialog import Dialog
from konverse.bridge.reader.reader import Reader
from konverse.dialog.transaction.transaction import Transaction
from konverse.schemas.errors import BrokerClosed, SteppedDown
from tests.kit.oracle import prove_exactly_once
from tests.kit.servers import Servers
from tests.kit.shop import (
    DEADLINE_S,
    ORDER,
    RECEIPT,
    answer,
    begin,
    connected,
    fill,
    open_shop,
    pumped,
    queue_of,
    receive,
    send_orders,
    until,
    work,
)

pytestmark = pytest.mark.stack


def worked(reader: Reader) -> bool:
    """Let the reader work. Returns whether it has exactly one partition."""
    work(reader)
    return len(reader.partitions) == 1


def test_handlers_of_several_conversations_run_at_the_same_time_and_of_one_never(
    servers: Servers, database: str
) -> None:
    together = threading.Barrier(3)
    lock = threading.Lock()
    active: set[uuid.UUID] = set()
    handled: Counter[uuid.UUID] = Counter()

    def handler(transaction: Transaction) -> None:
        dialog = transaction.dialog
        with lock:
            assert dialog.id not in active
            active.add(dialog.id)
        if handled[dialog.id] == 0:
            together.wait(DEADLINE_S)
        for message in transaction:
            assert message.sequence == handled[dialog.id]
            handled[dialog.id] += 1
            transaction.send(dialog, RECEIPT, b"%d" % message.sequence)
        with lock:
            active.remove(dialog.id)

    with connected(servers.bootstrap, database) as broker:
        open_shop(broker, partitions=2)
        sent = send_orders(broker, dialogs=3, messages=60)
        with broker.reader("Orders", timeout=1, max_messages=2) as reader:
            reader.run(handler, threads=3)
        assert set(handled.values()) == {20}
        bodies: dict[uuid.UUID, list[bytes]] = {}
        for message in receive(broker, "Shop", 60):
            bodies.setdefault(message.dialog.id, []).append(message.body)
        assert bodies == {uuid.UUID(bytes=c): [b"%d" % n for n in range(20)] for c in sent}


def test_a_handler_that_fails_stops_nothing_and_is_logged_with_its_messages(
    servers: Servers, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    failing: list[str] = []
    done: set[bytes] = set()

    def handler(transaction: Transaction) -> None:
        for message in transaction:
            if message.body == b"order 0" and len(failing) < 3:
                failing.append(message.id)
                raise LookupError("no such article")
            transaction.send(message.dialog, RECEIPT, message.body)
            done.add(message.body)

    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        send_orders(broker, dialogs=3, messages=3)
        with broker.reader("Orders", timeout=1) as reader:
            reader.run(handler, threads=2)
        assert (
            sorted(m.body for m in receive(broker, "Shop", 3)) == sorted(done) == [b"order 0", b"order 1", b"order 2"]
        )
    assert len(failing) == 3
    said = [record for record in caplog.records if "a handler of queue 'Orders' failed" in record.message]
    assert [f"attempt {attempt} of 5" in record.message for attempt, record in enumerate(said, 1)] == [True] * 3
    for record in said:
        assert failing[0] in record.message
        assert "LookupError: no such article" in record.message
    first, *others = [record.exc_info for record in said]
    assert first is not None
    assert isinstance(first[1], LookupError)
    assert others == [None, None]


def test_system_exit_in_a_handler_ends_run_while_the_other_threads_are_idle(servers: Servers, database: str) -> None:
    raised = threading.Event()

    def handler(transaction: Transaction) -> None:
        if not raised.is_set():
            raised.set()
            raise SystemExit("once")

    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        send_orders(broker, dialogs=1, messages=1)
        with broker.reader("Orders") as reader:  # without a timeout, so nothing else ends it
            with ThreadPoolExecutor(1) as pool, pytest.raises(SystemExit, match="once"):
                pool.submit(reader.run, handler, threads=3).result(DEADLINE_S)
            with next(reader) as transaction:
                assert [message.sequence for message in transaction] == [0], "the message waits as before"


def test_a_reader_that_can_get_no_partition_is_logged(
    servers: Servers, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker, partitions=2)
        for _ in range(3):
            assert "some get none" not in caplog.text
            broker.reader("Orders")
    assert "3 readers of this process share 2 partitions of queue 'Orders': some get none" in caplog.text


def test_closing_a_reader_ends_its_run(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database) as broker, ThreadPoolExecutor(1) as pool:
        open_shop(broker)
        reader = broker.reader("Orders")
        running = pool.submit(reader.run, list, threads=3)
        reader.wait_for_partitions(1, DEADLINE_S)
        reader.close()
        assert running.result(DEADLINE_S) is None
        with pytest.raises(BrokerClosed, match="was closed; make another"):
            list(reader)
        with pytest.raises(BrokerClosed):
            reader.wait_for_partitions(1)


def test_threads_that_send_on_one_dialog_get_numbers_in_the_order_in_which_it_is_received(
    servers: Servers, database: str
) -> None:
    def send(name: int) -> list[tuple[int, bytes]]:
        out = []
        for number in range(250):
            body = b"%d/%d" % (name, number)
            out.append((dialog.send(ORDER, body), body))
        return out

    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        dialog = begin(broker)
        with ThreadPoolExecutor(4) as pool:
            numbered = [pair for pairs in pool.map(send, range(4)) for pair in pairs]
        broker.flush()
        messages = receive(broker, "Orders", 1_000)
    assert [(m.sequence, m.body) for m in messages] == sorted(numbered)


def test_a_dialog_that_joins_a_group_in_use_waits_with_it(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        first = begin(broker)
        second = begin(broker, related_to=first)
        for dialog in (first, second):
            dialog.send(ORDER, b"x")
            dialog.flush()
        with broker.reader("Orders", timeout=1) as orders, broker.reader("Shop", timeout=DEADLINE_S) as shop:
            assert answer(orders) == 2
            fill(shop, 2)
            with next(shop) as transaction:
                taken = list(transaction)
                third = begin(broker, related_to=second)
                third.send(ORDER, b"x")
                third.flush()
                assert answer(orders) == 1
                fill(shop, 3)
                assert shop._take() is None, "the group was handed out twice"
                for message in taken:
                    transaction.send(message.dialog, ORDER, b"more")
            with next(shop) as transaction:
                assert [message.dialog.id for message in transaction] == [third.id]
        assert {m.dialog.id for m in taken} == {first.id, second.id}


def test_work_on_a_partition_that_is_taken_away_meanwhile_is_done_by_the_next_owner_alone(
    servers: Servers, database: str
) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker, partitions=2)
        sent = send_orders(broker, dialogs=8, messages=16)
        with broker.reader("Orders") as first:
            fill(first, 16)
            held: list[Transaction] = []
            while (transaction := first._take()) is not None:
                held.append(transaction)
            assert len(held) == 8
            with broker.reader("Orders", timeout=2) as second, pumped(first):
                until(lambda: worked(second), "a second reader gets its share")
                lost = next(iter(second.partitions))
                assert first.partitions == {0, 1} - {lost}
                for transaction in held:  # the handlers of both partitions end
                    with transaction:
                        for message in transaction:
                            transaction.send(message.dialog, RECEIPT, uuid.uuid4().bytes)
                assert answer_with_nonces(second) == sum(len(t) for t in held if t._context.partition == lost)
            with pytest.raises(SteppedDown, match="was lost or given back"):
                first.settle()
            first.settle()
        prove_exactly_once(servers.bootstrap, queue_of(broker, "Orders"), queue_of(broker, "Shop"), sent)


def answer_with_nonces(reader: Reader) -> int:
    return answer(reader, lambda message: uuid.uuid4().bytes)


def test_a_forked_child_must_connect_again_and_the_parent_continues(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        dialog = begin(broker)
        dialog.send(ORDER, b"from the parent")
        with broker.reader("Orders", timeout=1) as reader:
            reader.wait_for_partitions(1, DEADLINE_S)
            with warnings.catch_warnings():
                warnings.simplefilter(
                    "ignore", DeprecationWarning
                )  # about threads; the child only makes calls that are refused
                pid = os.fork()
            if pid == 0:
                os._exit(_refused_in_a_child(broker, dialog, reader))
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
            dialog.send(ORDER, b"still from the parent")
            dialog.flush()
            with next(reader) as transaction:
                assert len(list(transaction)) >= 1


def _refused_in_a_child(broker: Broker, dialog: Dialog, reader: Reader) -> int:
    """Number of calls of a forked child that were not refused."""
    calls: list[Callable[[], object]] = [
        lambda: dialog.send(ORDER, b"from the child"),
        lambda: begin(broker),
        lambda: broker.reader("Orders"),
        lambda: broker.admin.create_message_type("new"),
    ]
    accepted = 0
    for call in calls:
        try:
            call()
        except BrokerClosed:
            continue
        accepted += 1
    reader.close()
    broker.close()
    return accepted
