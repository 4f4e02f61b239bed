"""Behaviour 19: a service moves to another queue, with everything that waits for it."""

from __future__ import annotations

import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor

import pytest

from konverse.bridge.broker import Broker
from konverse.bridge.client.dialog import Dialog
from konverse.bridge.reader.reader import Reader
from konverse.dialog.owner import relocations as moving
from konverse.dialog.transaction.received import Message
from konverse.dialog.transaction.transaction import Transaction
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.errors import NothingChanged, QueueNotFound, ServiceAltered, ServiceNotFound, StillUsed
from konverse.schemas.identifiers import Role
from tests.kit.servers import Servers
from tests.kit.shop import (
    DEADLINE_S,
    NOTE,
    ORDER,
    ORDER_SERVICE,
    SHOP_SERVICE,
    begin,
    connected,
    drain,
    fill,
    handle,
    living,
    open_shop,
    pumped,
    receive,
    sent,
    standing,
    state_of,
    until,
)

pytestmark = pytest.mark.stack


@pytest.fixture
def later(broker: Broker) -> str:
    """A second queue."""
    return broker.admin.create_queue("Later", partitions=2).name


def by_dialog(messages: list[Message]) -> dict[bytes, list[bytes]]:
    found: dict[bytes, list[bytes]] = defaultdict(list)
    for message in messages:
        found[message.dialog.conversation].append(message.body)
    return found


def lives(reader: Reader, *dialogs: Dialog, role: Role = Role.TARGET) -> bool:
    """Whether all these sides are in the reader's partitions."""
    return all(state_of(reader, role, dialog) for dialog in dialogs)


def test_019_queued_messages_are_received_on_the_new_queue_in_order(broker: Broker, later: str) -> None:
    with broker.reader("Orders") as orders:
        dialogs = [sent(broker, b"0", b"1"), sent(broker, b"0", b"1"), sent(broker)]
        first = orders.receive(dialog=dialogs[0].id, timeout=DEADLINE_S)
        assert first is not None
        with first:
            assert [message.body for message in first] == [b"0", b"1"]
        fill(orders, 2)
        assert broker.admin.alter_service(ORDER_SERVICE, queue=later).queues_before == ("Orders",)
        for dialog in dialogs:
            dialog.send(ORDER, b"2")
        broker.flush()
        with pumped(orders):
            got = by_dialog(receive(broker, later, 5))
    assert drain(broker, "Orders") == [], "nothing is left to be received"
    assert got == {
        dialogs[0].id.bytes: [b"2"], dialogs[1].id.bytes: [b"0", b"1", b"2"], dialogs[2].id.bytes: [b"2"],
    }  # fmt: skip


def test_019_readers_of_the_new_queue_also_serve_an_old_queue_without_readers(broker: Broker, later: str) -> None:
    dialogs = [sent(broker, b"%d" % number, b"more") for number in range(4)]
    broker.admin.alter_service(ORDER_SERVICE, queue=later)
    got = by_dialog(receive(broker, later, 8))
    assert got == {dialog.id.bytes: [b"%d" % number, b"more"] for number, dialog in enumerate(dialogs)}


def test_019_a_dialog_continues_after_the_move_and_the_old_queue_can_be_dropped_when_it_is_over(
    broker: Broker, later: str
) -> None:
    """And 22: DROP QUEUE is refused until all conversations that began on the queue are over, wherever they are."""
    dialog = sent(broker, b"question")
    broker.admin.alter_service(ORDER_SERVICE, queue=later)
    handle(broker, later, answer)
    assert [message.body for message in receive(broker, "Shop", 1)] == [b"re question"]
    dialog.send(ORDER, b"and more")
    dialog.end()
    broker.flush()
    refusals: list[StillUsed] = []

    def is_dropped() -> bool:
        try:
            broker.admin.drop_queue("Orders")
        except StillUsed as refusal:
            refusals.append(refusal)
            return False
        return True

    with broker.reader(later) as reader, broker.reader("Shop") as shop:
        with pumped(reader, shop):
            until(lambda: state_of(reader, Role.TARGET, dialog) == "DI", "the end has come")
            with pytest.raises(StillUsed, match="1 open conversation that moved to other queues"):
                broker.admin.drop_queue("Orders")
        handled = reader.receive(dialog=dialog.id, timeout=DEADLINE_S)
        assert handled is not None
        with handled:
            assert [message.body for message in handled] == [b"and more", b""]
            handled.end(handled.dialog)
        with pumped(reader, shop):
            try:
                until(is_dropped, "nothing needs the old queue any more")
            except AssertionError as error:
                looked_after = [standing(one) for one in broker._substitutes._open.values()]
                error.add_note("\n".join(map(str, [refusals[-1], standing(reader), standing(shop), *looked_after])))
                raise
    broker.admin.create_queue("Orders")  # the senders close their session there


def answer(transaction: Transaction) -> None:
    for message in transaction:
        transaction.send(message.dialog, NOTE, b"re " + message.body)


def test_019_new_conversations_go_to_the_new_queue_at_once(broker: Broker, later: str) -> None:
    broker.admin.alter_service(ORDER_SERVICE, queue=later)
    assert begin(broker).begin.target.topic.endswith(".Later")
    broker.admin.alter_service(SHOP_SERVICE, queue=later)
    assert begin(broker).begin.home.topic.endswith(".Later")


def test_019_a_service_moves_while_messages_are_sent_and_back_again(
    servers: Servers, database: str, broker: Broker, later: str
) -> None:
    stop, sends = threading.Event(), 0
    dialogs = [begin(broker) for _ in range(5)]
    expected: dict[bytes, list[bytes]] = defaultdict(list)
    got: dict[bytes, list[bytes]] = defaultdict(list)

    def send() -> None:
        nonlocal sends
        while not stop.wait(0.01):
            dialog = dialogs[sends % len(dialogs)]
            dialog.send(ORDER, b"%d" % sends)
            expected[dialog.id.bytes].append(b"%d" % sends)
            sends += 1
        broker.flush()

    def take(transaction: Transaction) -> None:
        for message in transaction:
            got[message.dialog.conversation].append(message.body)

    with (
        connected(servers.bootstrap, database) as first,
        connected(servers.bootstrap, database) as second,
        first.reader("Orders") as orders,
        second.reader(later) as others,
        ThreadPoolExecutor(3) as pool,
    ):
        readers = [pool.submit(reader.run, take) for reader in (orders, others)]
        sending = pool.submit(send)
        for queue, reader in ((later, others), ("Orders", orders), (later, others)):
            broker.admin.alter_service(ORDER_SERVICE, queue=queue)
            until(lambda reader=reader: lives(reader, *dialogs), f"all are in {queue}")  # type: ignore[misc]
        stop.set()
        sending.result(DEADLINE_S)
        until(lambda: sum(map(len, got.values())) >= sends, "all have come")
        for reader in (orders, others):
            reader.stop()
        for running in readers:
            running.result(DEADLINE_S)
    assert got == expected
    verification = broker.operations.verification(broker.catalog.all(Queue))
    assert verification.run()[1] == []


def test_019_a_group_moves_as_a_whole(broker: Broker, later: str) -> None:
    first = sent(broker, b"0")
    second = begin(broker, related_to=first)
    second.send(ORDER, b"1")
    broker.flush()
    with broker.reader("Shop") as shop, pumped(shop):
        until(lambda: lives(shop, first, second, role=Role.INITIATOR), "both are at home")
        broker.admin.alter_service(SHOP_SERVICE, queue=later)
        with broker.reader(later) as reader, pumped(reader):
            until(lambda: lives(reader, first, second, role=Role.INITIATOR), "both have moved")
            third = begin(broker, related_to=first)
            third.send(ORDER, b"2")
            until(lambda: lives(reader, third, role=Role.INITIATOR), "the third is with them")
            (members,) = [
                len(group.members) for owner in reader.owners for group in owner.fold.state.groups.values()
            ]  # fmt: skip
            assert members == 3


def test_019_a_dialog_is_begun_with_its_group_also_when_the_service_came_back(servers: Servers, database: str) -> None:
    """The group returns to the partition that its id chooses, not to the one that the process reads."""
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker, home_partitions=2)
        later = broker.admin.create_queue("Later").name
        with broker.reader("Shop", partitions=(0,)) as here, broker.reader(later) as reader, pumped(here, reader):
            here.wait_for_partitions(1)
            dialogs = [sent(broker, b"0") for _ in range(24)]  # so many have homes in both partitions
            until(lambda: lives(here, *dialogs, role=Role.INITIATOR), "all are at home")
            broker.admin.alter_service(SHOP_SERVICE, queue=later)
            until(lambda: lives(reader, *dialogs, role=Role.INITIATOR), "all have moved")
            with broker.reader("Shop", partitions=(1,)) as there, pumped(there):
                broker.admin.alter_service(SHOP_SERVICE, queue="Shop")
                until(lambda: there.conversations + here.conversations == len(dialogs), "all are back")
                apart = next(dialog for dialog in dialogs if lives(there, dialog, role=Role.INITIATOR))
                related = begin(broker, related_to=apart)
                related.send(ORDER, b"1")
                until(lambda: lives(there, related, role=Role.INITIATOR), "it is with its group")
                assert not lives(here, related, role=Role.INITIATOR)


def test_019_a_suspended_conversation_moves_when_it_is_resumed(broker: Broker, later: str) -> None:
    dialog = sent(broker, b"poison")

    def fails(_transaction: Transaction) -> None:
        raise LookupError

    with broker.reader("Orders") as orders, ThreadPoolExecutor(1) as pool:
        running = pool.submit(orders.run, fails)
        until(lambda: orders.operations.suspended, "it is suspended")
        broker.admin.alter_service(ORDER_SERVICE, queue=later)
        with broker.reader(later) as reader, pumped(reader):
            with pytest.raises(StillUsed):
                broker.admin.drop_queue("Orders")
            assert lives(orders, dialog)
            orders.operations.resume(dialog.id)
            until(lambda: lives(reader, dialog), "it has moved")
        orders.stop()
        running.result(DEADLINE_S)
    assert [message.body for message in receive(broker, later, 1)] == [b"poison"]


def test_079_a_receive_with_where_that_waits_fails_when_the_service_is_moved(
    servers: Servers, database: str, broker: Broker, later: str
) -> None:
    dialog = sent(broker, b"0")
    with (
        connected(servers.bootstrap, database) as administrator,
        broker.reader("Shop") as reader,
        ThreadPoolExecutor(1) as pool,
    ):
        until(lambda: living(reader) == 1, "the dialog is known at home")
        waiting = pool.submit(reader.receive, dialog=dialog.id)
        administrator.admin.alter_service(SHOP_SERVICE, queue=later)
        with pytest.raises(ServiceAltered, match=SHOP_SERVICE) as altered:
            waiting.result(DEADLINE_S)
    assert altered.value.number == 8468


def test_079_a_conversation_that_cannot_move_is_received_on_the_old_queue(
    broker: Broker, later: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With and without a WHERE, including messages that arrive while it waits."""
    monkeypatch.setattr(moving, "INSTALL_BYTES_MAX", 0)
    dialog = sent(broker, b"0")
    with broker.reader("Orders") as orders, ThreadPoolExecutor(1) as pool:
        until(lambda: living(orders), "it has come")
        broker.admin.alter_service(ORDER_SERVICE, queue=later)
        until(lambda: living(orders) and orders._driver.catalog_changes.service_moves.places, "the reader knows")
        for body in (b"0", b"1"):
            waiting = pool.submit(orders.receive, dialog=dialog.id, timeout=DEADLINE_S)
            if body == b"1":
                dialog.send(ORDER, body)
            transaction = waiting.result(DEADLINE_S)
            assert transaction is not None
            with transaction:
                assert [message.body for message in transaction] == [body]


def test_018_moving_a_service_to_its_own_queue_is_refused(broker: Broker, later: str) -> None:
    """Nor to a queue that does not exist."""
    with pytest.raises(NothingChanged) as unchanged:
        broker.admin.alter_service(ORDER_SERVICE, queue="Orders")
    assert unchanged.value.number == 8493
    with pytest.raises(QueueNotFound):
        broker.admin.alter_service(ORDER_SERVICE, queue="Nowhere")
    with pytest.raises(ServiceNotFound):
        broker.admin.alter_service("//sales/Nobody", queue=later)
