"""Behaviours 36, 70 to 79 and 83 to 95: RECEIVE with a WHERE, RECEIVE without a time limit, and group locks."""

from __future__ import annotations

import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import cast

import pytest

from konverse.bridge.broker import Broker
from konverse.bridge.reader.reader import Reader
from konverse.dialog.state.partition import Partition
from konverse.dialog.transaction.transaction import Transaction
from konverse.schemas.errors import (
    BadInput,
    DialogNotFound,
    InvalidSettings,
    NoPartition,
    QueueDisabled,
    QueueNotFound,
    ServiceNotFound,
)
from konverse.schemas.identifiers import Role
from tests.kit.servers import Servers
from tests.kit.shop import (
    DEADLINE_S,
    NOTE,
    ORDER,
    ORDER_SERVICE,
    RECEIPT,
    SHOP_SERVICE,
    answer,
    begin,
    begin_and_end_two,
    connected,
    drain,
    end_at_target,
    fill,
    handle,
    living,
    open_shop,
    pumped,
    receive,
    until,
    work,
)

pytestmark = pytest.mark.stack


def bodies(transaction: Transaction | None) -> list[bytes]:
    """Bodies of the transaction's messages; none without a transaction."""
    if transaction is None:
        return []
    with transaction:
        return [message.body for message in transaction]


def next_or_none(reader: Reader) -> Transaction | None:
    """The next transaction; None while the reader has not noticed that its queue is on."""
    try:
        return next(reader)
    except QueueDisabled:
        return None


def taken(reader: Reader, **where: uuid.UUID) -> Transaction:
    transaction = reader.receive(timeout=20, **where)
    assert transaction is not None, f"nothing came of {where}"
    return transaction


def give_receipts(transaction: Transaction) -> None:
    for message in transaction:
        transaction.send(message.dialog, RECEIPT)


def groups(reader: Reader) -> int:
    """Number of groups with several conversations in the reader's partition."""

    def count(state: Partition) -> int:
        return len(state.groups)

    return cast("int", reader.ask(0, count))


def test_036_a_group_with_an_unused_id_is_made_with_precisely_that_id(broker: Broker) -> None:
    group = uuid.uuid4()
    dialogs = [begin(broker, group=group) for _ in range(2)]
    for dialog in dialogs:
        dialog.send(NOTE)
    broker.flush()
    with broker.reader("Orders", timeout=1) as reader:
        for transaction in reader:
            with transaction:
                for message in transaction:
                    transaction.send(message.dialog, NOTE)
    with broker.reader("Shop") as reader:
        fill(reader, 2)
        with taken(reader, group=group) as transaction:
            assert len(list(transaction)) == 2
            assert {member.group_id for member in transaction.members} == {group.bytes}
    with pytest.raises(InvalidSettings, match="not both"):
        begin(broker, group=group, related_to=dialogs[0])


def test_070_a_receive_without_a_timeout_waits_for_a_message(broker: Broker) -> None:
    received: list[bytes] = []
    with broker.reader("Orders") as reader:
        waiting = threading.Thread(target=lambda: received.extend(bodies(next(iter(reader)))), daemon=True)
        waiting.start()
        time.sleep(2)
        assert waiting.is_alive()
        begin(broker).send(ORDER, b"at last")
        waiting.join(20)
    assert received == [b"at last"]


def test_073_a_transaction_receives_later_messages_of_its_locked_group(broker: Broker) -> None:
    dialog = begin(broker)
    dialog.send(ORDER, b"0")
    broker.flush()
    with broker.reader("Orders", timeout=1) as reader:
        with next(iter(reader)) as transaction:
            seen = [message.body for message in transaction]
            for body in (b"1", b"2", b"3"):
                dialog.send(ORDER, body)
            broker.flush()
            until(lambda: list(reader) or len(transaction.dialog.queue) == 4, "the others are ingested")
            seen += [message.body for message in transaction.receive(1)]
            more = transaction.receive()
            assert [message.sequence for message in more] == [2, 3]
            seen += [message.body for message in more]
            assert transaction.receive() == []
        reader.settle()
    assert seen == [b"0", b"1", b"2", b"3"]
    assert drain(broker, "Orders") == []


def test_075_where_names_one_dialog_or_one_group(broker: Broker) -> None:
    one = begin(broker)
    two, other = begin(broker, related_to=one), begin(broker)
    for dialog, body in ((one, b"one"), (other, b"other"), (two, b"two")):
        dialog.send(ORDER, body)
    broker.flush()
    with broker.reader("Orders", timeout=1) as orders:
        fill(orders, 3)
        answer(orders)
    with broker.reader("Shop") as reader:
        fill(reader, 3)
        assert bodies(reader.receive(dialog=two.id, timeout=20)) == [b"re two"]
        assert bodies(reader.receive(group=other.id, timeout=20)) == [b"re other"]
        assert bodies(reader.receive(group=one.id, timeout=20)) == [b"re one"]
        assert reader.receive(dialog=one.id, timeout=0) is None
        reader.settle()
    assert drain(broker, "Shop") == []


def test_075_a_request_waits_for_its_own_answer(broker: Broker) -> None:
    with broker.reader("Shop") as shop, broker.reader("Orders", timeout=3) as orders:
        shop.wait_for_partitions(1)
        working = threading.Thread(target=lambda: answer(orders), daemon=True)
        working.start()
        dialogs = [begin(broker) for _ in range(20)]
        for number, dialog in enumerate(dialogs):
            dialog.send(ORDER, b"%d" % number)
        for number, dialog in reversed([*enumerate(dialogs)]):
            assert bodies(taken(shop, dialog=dialog.id)) == [b"re %d" % number]
        working.join(30)


def test_075_processes_that_ask_at_once_each_get_their_own_answers(servers: Servers, database: str) -> None:
    with (
        connected(servers.bootstrap, database) as first,
        connected(servers.bootstrap, database) as second,
        connected(servers.bootstrap, database) as answering,
    ):
        open_shop(first, home_partitions=2)
        with (
            first.reader("Shop") as shop,
            second.reader("Shop") as another,
            answering.reader("Orders", timeout=DEADLINE_S) as orders,
            ThreadPoolExecutor(3) as pool,
        ):
            pool.submit(orders.run, give_receipts)

            def shared() -> bool:
                for reader in (shop, another):
                    work(reader)
                return len(shop.partitions) == len(another.partitions) == 1

            until(shared, "both have a partition")

            def ask(broker: Broker, reader: Reader) -> None:
                for _ in range(10):
                    dialog = begin(broker)
                    dialog.send(ORDER)
                    assert len(bodies(taken(reader, dialog=dialog.id))) == 1

            for asked in [pool.submit(ask, first, shop), pool.submit(ask, second, another)]:
                asked.result(DEADLINE_S)
            orders.close()


def test_075_a_receive_by_a_reader_without_a_partition_fails(
    servers: Servers, database: str, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("konverse.bridge.reader.join_wait.JOIN_S", 0.5)
    with connected(servers.bootstrap, database) as late, broker.reader("Shop") as one, late.reader("Shop") as another:
        dialog = begin(late)
        deadline = time.monotonic() + 2
        while time.monotonic() < deadline:  # the group knows both members by then
            work(one)
            work(another)
        having, without = (one, another) if one.partitions else (another, one)
        with pumped(having):
            for timeout in (1, None):
                with pytest.raises(NoPartition, match="'Shop' has 1 partition, and other processes read every one"):
                    without.receive(dialog=dialog.id, timeout=timeout)


def test_076_an_unknown_dialog_or_group_and_one_of_another_queue_are_errors(broker: Broker) -> None:
    dialog = begin(broker)
    dialog.send(ORDER)
    broker.flush()
    with broker.reader("Orders") as reader:
        fill(reader, 1)
        for where in ({"dialog": uuid.uuid4()}, {"group": uuid.uuid4()}, {"group": dialog.id}):
            with pytest.raises(DialogNotFound) as unknown:
                reader.receive(timeout=0.1, **where)
            assert unknown.value.number == 8426
        with pytest.raises(BadInput, match="either a dialog id or a group id"):
            reader.receive(timeout=0)
        assert bodies(reader.receive(dialog=dialog.id, timeout=20)) == [b""]


def test_078_a_receive_that_waits_fails_when_its_queue_is_dropped(
    servers: Servers, database: str, broker: Broker
) -> None:
    with connected(servers.bootstrap, database) as administrator, broker.reader("Orders") as reader:
        reader.wait_for_partitions(1)
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(next, iter(reader))
            administrator.admin.drop_service(ORDER_SERVICE)
            administrator.admin.drop_queue("Orders")
            with pytest.raises(QueueNotFound, match="'Orders' was dropped"):
                waiting.result(DEADLINE_S)


def test_077_receive_from_a_disabled_queue_fails_and_the_reader_continues_when_it_is_enabled(broker: Broker) -> None:
    """And 152: messages that come meanwhile wait at the receiver's side, and the sender does not wait."""
    dialog = begin(broker)
    dialog.send(ORDER, b"0")
    broker.admin.alter_queue("Orders", status=False)
    with broker.reader("Orders", timeout=DEADLINE_S) as reader:
        for _ in range(2):
            with pytest.raises(QueueDisabled) as refused:
                next(reader)
            assert refused.value.number == 9617
        with pytest.raises(QueueDisabled):
            reader.receive(dialog=dialog.id, timeout=0)
        dialog.send(ORDER, b"1")
        broker.flush()
        with pytest.raises(QueueDisabled):
            reader.run(lambda transaction: pytest.fail(f"received {list(transaction)}"), threads=2)
        broker.admin.alter_queue("Orders", status=True)
        received: list[bytes] = []
        while len(received) < 2:
            received += bodies(next_or_none(reader))
    assert received == [b"0", b"1"]


def test_058_a_message_for_a_queue_that_is_off_is_received_when_the_queue_is_on(broker: Broker) -> None:
    """Deviates: the message waits in the target's own queue, not in a transmission queue, and has no status text."""
    broker.admin.alter_queue("Orders", status=False)
    begin(broker).send(ORDER, b"waits")
    broker.flush()
    with broker.reader("Orders") as reader:
        fill(reader, 1)
        with pytest.raises(QueueDisabled):
            next(reader)
    broker.admin.alter_queue("Orders", status=True)
    assert [message.body for message in receive(broker, "Orders", 1)] == [b"waits"]


def test_077_messages_received_before_the_queue_was_off_are_committed(broker: Broker) -> None:
    begin(broker).send(ORDER, b"taken")
    broker.flush()
    with broker.reader("Orders") as reader:
        with next(reader) as transaction:
            broker.admin.alter_queue("Orders", status=False)
            assert [message.body for message in transaction] == [b"taken"]
        with pytest.raises(QueueDisabled):
            next(reader)
        reader.settle()
        broker.admin.alter_queue("Orders", status=True)
    assert drain(broker, "Orders") == []


@pytest.mark.parametrize("where", [False, True])
def test_078_a_receive_that_waits_fails_when_its_queue_is_disabled_by_another_process(
    servers: Servers, database: str, broker: Broker, where: bool
) -> None:
    """Deviates: a change by another process is noticed within seconds; one by the reader's own broker at once."""
    dialog = begin(broker)
    dialog.send(ORDER)
    broker.flush()
    with connected(servers.bootstrap, database) as administrator, broker.reader("Orders") as reader:
        assert bodies(next(reader)) == [b""]
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(reader.receive, dialog=dialog.id) if where else pool.submit(next, iter(reader))
            administrator.admin.alter_queue("Orders", status=False)
            with pytest.raises(QueueDisabled, match="alter_queue"):
                waiting.result(DEADLINE_S)


def test_079_a_receive_with_where_that_waits_fails_when_the_service_is_dropped(
    servers: Servers, database: str, broker: Broker
) -> None:
    dialog = begin(broker)
    dialog.send(ORDER)
    broker.flush()
    with (
        connected(servers.bootstrap, database) as administrator,
        broker.reader("Shop") as reader,
        ThreadPoolExecutor(1) as pool,
    ):
        until(lambda: living(reader) == 1, "the dialog is known at home")
        waiting = pool.submit(reader.receive, dialog=dialog.id)
        administrator.admin.drop_service(SHOP_SERVICE)
        with pytest.raises(ServiceNotFound, match=SHOP_SERVICE):
            waiting.result(DEADLINE_S)


def test_083_the_group_of_a_transaction_is_locked_and_can_be_received(broker: Broker) -> None:
    """And 84: without an available group there is none."""
    begin(broker).send(ORDER, b"0")
    broker.flush()
    with broker.reader("Orders", timeout=0) as reader:
        fill(reader, 1)
        with next(iter(reader)) as transaction:
            group = uuid.UUID(bytes=transaction.dialog.group_id)
            assert reader.receive(group=group, timeout=0.2) is None, "it is locked"
        assert bodies(reader.receive(group=group, timeout=20)) == [b"0"]
        assert next(iter(reader), None) is None


def test_087_conversations_overtake_each_other(broker: Broker) -> None:
    first, second = begin(broker), begin(broker)
    for dialog, body in ((first, b"a"), (second, b"b"), (first, b"c")):
        dialog.send(ORDER, body)
    broker.flush()
    assert [message.body for message in receive(broker, "Orders", 3)] == [b"a", b"c", b"b"]


def test_093_a_group_goes_with_its_last_conversation(broker: Broker) -> None:
    begin_and_end_two(broker)
    with broker.reader("Shop") as shop:
        until(lambda: living(shop) == 2, "both are here")
        assert groups(shop) == 1
        with pumped(shop):
            end_at_target(broker)
            end_at_target(broker)
        until(lambda: living(shop) == 0, "both are forgotten")
        assert groups(shop) == 0


def test_094_a_lock_of_the_target_does_not_keep_the_initiator_waiting(broker: Broker) -> None:
    broker.admin.create_service("//sales/Mirror", queue="Orders", contracts=["//sales/Ordering"])
    dialog = broker.begin_dialog("//sales/Mirror", "//sales/OrderService", "//sales/Ordering")
    dialog.send(ORDER, b"0")
    broker.flush()

    def reply(transaction: Transaction) -> None:
        for message in transaction:
            transaction.send(message.dialog, RECEIPT, b"re")

    handle(broker, "Orders", reply)
    dialog.send(ORDER, b"1")
    broker.flush()
    with broker.reader("Orders") as reader:
        fill(reader, 2)
        with next(iter(reader)) as one, next(iter(reader)) as other:
            assert {one.dialog.id, other.dialog.id} == {dialog.id}
            assert {one.dialog.role, other.dialog.role} == {*Role}


def test_095_locks_are_gone_with_the_connection(servers: Servers, database: str, broker: Broker) -> None:
    begin(broker).send(ORDER, b"0")
    broker.flush()
    with connected(servers.bootstrap, database) as another:
        reader = another.reader("Orders")
        transaction = next(iter(reader))
        transaction.__enter__()
        assert [message.body for message in transaction] == [b"0"]
    assert [message.body for message in receive(broker, "Orders", 1)] == [b"0"]
