"""Behaviours 85 and 88 to 90: MOVE CONVERSATION, and several conversation groups in one transaction."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest

from konverse.bridge.broker import Broker
from konverse.bridge.client.dialog import Dialog
from konverse.bridge.reader.reader import Reader
from konverse.dialog.transaction.transaction import Transaction
from konverse.schemas.errors import GroupLocked, InvalidGroup
from konverse.schemas.identifiers import Role
from konverse.schemas.system_messages import DEFAULT
from tests.kit.servers import Servers
from tests.kit.shop import ORDER, RECEIPT, connected, drain, fill, open_shop, sent, until

pytestmark = pytest.mark.stack

MANY = 24
"""So many dialogs are in both of two partitions: the other case has a chance of 1 in 8 million."""


def taken(reader: Reader, **where: uuid.UUID) -> Transaction:
    transaction = reader.receive(timeout=20, **where)
    assert transaction is not None, f"nothing came of {where}"
    return transaction


def group_of(transaction: Transaction) -> uuid.UUID:
    return uuid.UUID(bytes=transaction.dialog.group_id)


def test_085_a_transaction_holds_two_groups_and_locks_both(broker: Broker) -> None:
    """Deviates: further groups can only come from the partition of the transaction."""
    one, two = sent(broker, b"1"), sent(broker, b"2")
    with broker.reader("Orders") as reader:
        fill(reader, 2)
        with next(iter(reader)) as first:
            second = first.next_group()
            assert second is not None
            assert {first.dialog.id, second.dialog.id} == {one.id, two.id}
            assert first.next_group() is None
            for transaction in (first, second):
                with ThreadPoolExecutor(1) as pool:
                    assert pool.submit(reader.receive, group=group_of(transaction), timeout=1.0).result() is None


def test_085_work_on_several_groups_is_committed_together_or_not_at_all(broker: Broker) -> None:
    dialogs = {sent(broker, b"1").id, sent(broker, b"2").id}
    failures: list[int] = []

    def handler(first: Transaction) -> None:
        second = first.next_group()
        assert second is not None or failures
        for transaction in filter(None, (first, second)):
            for message in transaction:
                transaction.send(message.dialog, RECEIPT, b"%d" % len(failures))
        if not failures:
            failures.append(1)
            raise ZeroDivisionError

    with broker.reader("Orders", timeout=1) as reader:
        fill(reader, 2)
        reader.run(handler)
        reader.settle()
    receipts = drain(broker, "Shop")
    assert {message.dialog.id for message in receipts} == dialogs
    assert [message.body for message in receipts] == [b"1", b"1"]


def test_088_queued_and_later_messages_are_received_with_the_new_group(broker: Broker) -> None:
    one, two = sent(broker, b"1"), sent(broker, b"2", b"3")
    with broker.reader("Orders") as reader:
        fill(reader, 3)
        with taken(reader, dialog=one.id) as transaction:
            list(transaction)
            group = group_of(transaction)
        reader.settle()
        with taken(reader, dialog=two.id) as transaction:
            assert transaction.receive(1)[0].body == b"2"
            transaction.move(transaction.dialog, group)
        reader.settle()
        two.send(ORDER, b"4")
        one.send(ORDER, b"5")
        broker.flush()
        fill(reader, 3)
        with taken(reader, group=group) as transaction:
            assert {dialog.id for dialog in transaction.dialogs} == {one.id, two.id}
            assert sorted(message.body for message in transaction) == [b"3", b"4", b"5"]
        reader.settle()
    with broker.reader("Orders", timeout=1) as reader:  # the next owner learns it from the log
        two.send(ORDER, b"6")
        broker.flush()
        with taken(reader, group=group) as transaction:
            assert [message.body for message in transaction] == [b"6"]


def test_089_a_group_of_another_queue_is_refused(broker: Broker) -> None:
    dialog = sent(broker, b"1")
    with broker.reader("Orders") as reader, taken(reader, dialog=dialog.id) as transaction:
        for group in (dialog.id, uuid.uuid4()):  # the initiator's, which is in the shop's queue, and an unused one
            with pytest.raises(InvalidGroup) as refused:
                transaction.move(transaction.dialog, group)
            assert refused.value.number == 8439


def test_089_a_group_of_another_service_of_the_queue_is_refused(broker: Broker) -> None:
    broker.admin.create_service("//sales/Other", queue="Orders", contracts=[DEFAULT])
    dialog, other = sent(broker, b"1"), broker.begin_dialog("//sales/ShopService", "//sales/Other")
    other.send(DEFAULT, b"2")
    broker.flush()
    with broker.reader("Orders") as reader:
        fill(reader, 2)
        with taken(reader, dialog=other.id) as transaction:
            group = group_of(transaction)
        with taken(reader, dialog=dialog.id) as transaction, pytest.raises(InvalidGroup, match="another service"):
            transaction.move(transaction.dialog, group)


def test_088_a_group_in_another_partition_is_joined_there(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker, partitions=2)
        with broker.reader("Orders") as reader:
            reader.wait_for_partitions(2)
            one, two, group = _in_two_partitions(broker, reader)
            with taken(reader, dialog=one.id) as transaction:
                assert transaction.receive(1)[0].body == b"0"
                transaction.move(transaction.dialog, group)
            reader.settle()
            one.send(ORDER, b"later")
            broker.flush()
            until(lambda: _waiting(reader, group) == [b"1", b"1", b"later"], "it is where its group is")
            with taken(reader, group=group) as transaction:
                assert {dialog.id for dialog in transaction.dialogs} == {one.id, two.id}
                assert sorted(message.body for message in transaction) == [b"1", b"1", b"later"]
            reader.settle()


def test_088_a_group_whose_partition_another_process_has_is_found_and_joined(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database) as broker, connected(servers.bootstrap, database) as another:
        open_shop(broker, partitions=2)
        with broker.reader("Orders") as reader:
            reader.wait_for_partitions(2)
            one, two, group = _in_two_partitions(broker, reader)
            first = _partition_of(reader, one.id)
        with broker.reader("Orders", partitions=(first,)) as here:
            fill(here, 2)
            with taken(here, dialog=one.id) as transaction:
                list(transaction)
                transaction.move(transaction.dialog, group)  # the partition of the group has no owner
            here.settle()
            one.send(ORDER, b"later")
            broker.flush()
            with another.reader("Orders", partitions=(1 - first,)) as there:
                until(lambda: _waiting(there, group, here) == [b"1", b"later"], "it is in the other process")
                with taken(there, group=group) as transaction:
                    assert {dialog.id for dialog in transaction.dialogs} == {one.id, two.id}
                    assert sorted(message.body for message in transaction) == [b"1", b"later"]


def test_090_a_group_in_another_partition_is_not_locked(servers: Servers, database: str) -> None:
    """Deviates: a conversation moved to a group in another partition locks that group only after it has arrived."""
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker, partitions=2)
        with broker.reader("Orders") as reader:
            reader.wait_for_partitions(2)
            one, two, group = _in_two_partitions(broker, reader)
            with taken(reader, dialog=one.id) as transaction:
                list(transaction)
                transaction.move(transaction.dialog, group)
                with ThreadPoolExecutor(1) as pool:
                    other = pool.submit(taken, reader, group=group).result()
                assert [dialog.id for dialog in other.dialogs] == [two.id]
                with other:
                    list(other)
            reader.settle()
            one.send(ORDER, b"later")
            broker.flush()
            until(lambda: _waiting(reader, group) == [b"later"], "the conversation is where its group is")
            with taken(reader, group=group) as transaction:
                assert {dialog.id for dialog in transaction.dialogs} == {one.id, two.id}


def test_090_both_groups_are_locked_until_the_commit(broker: Broker) -> None:
    one, two = sent(broker, b"1"), sent(broker, b"2")
    with broker.reader("Orders") as reader:
        fill(reader, 2)
        with taken(reader, dialog=two.id) as transaction:
            group = group_of(transaction)
            with pytest.raises(GroupLocked) as locked, taken(reader, dialog=one.id) as other:
                other.move(other.dialog, group)
            assert locked.value.number == 1222
        assert reader.owners[0].fold.state.attempts.troubled == {}
        with taken(reader, dialog=one.id) as transaction:
            list(transaction)
            until(lambda: _can_move(reader, transaction, group), "the other transaction is over")
            with ThreadPoolExecutor(1) as pool:
                assert pool.submit(reader.receive, dialog=two.id, timeout=1.0).result() is None
        reader.settle()
        with taken(reader, dialog=two.id) as transaction:
            assert len(transaction.dialogs) == 2


def test_090_a_handler_that_steps_back_is_called_again_and_no_attempt_is_counted(broker: Broker) -> None:
    dialogs = [sent(broker, b"%d" % number) for number in range(6)]
    calls: list[uuid.UUID] = []
    with broker.reader("Orders", timeout=2) as reader:
        fill(reader, 6)
        state = reader.owners[0].fold.state
        group = next(iter(state.live())).group_id

        def gather(transaction: Transaction) -> None:
            calls.append(transaction.dialog.id)
            list(transaction)
            for dialog in transaction.dialogs:
                transaction.move(dialog, uuid.UUID(bytes=group))
            until(lambda: len(calls) > 3, "several are at work")

        reader.run(gather, threads=4)
        reader.settle()
        assert {endpoint.group_id for endpoint in state.live()} == {group}
        assert len(state.live()) == len(dialogs)
        assert (state.attempts.troubled, state.unread) == ({}, 0)


def _can_move(reader: Reader, transaction: Transaction, group: uuid.UUID) -> bool:
    reader.keep_up()
    try:
        transaction.move(transaction.dialog, group)
    except GroupLocked:
        return False
    return True


def _partition_of(reader: Reader, conversation: uuid.UUID) -> int:
    owners = [owner for owner in reader.owners if owner.fold.state.endpoint(Role.TARGET, conversation.bytes)]
    return owners[0].identity.partition


def _in_two_partitions(broker: Broker, reader: Reader) -> tuple[Dialog, Dialog, uuid.UUID]:
    """Two conversations in two partitions, with two messages and one, and the second one's group."""
    dialogs = [sent(broker, b"0", b"1") for _ in range(MANY)]
    fill(reader, 2 * MANY)
    places = {_partition_of(reader, dialog.id): dialog for dialog in dialogs}
    assert len(places) == 2
    one, two = places.values()
    with taken(reader, dialog=two.id) as transaction:
        transaction.receive(1)
        group = group_of(transaction)
    reader.settle()
    return one, two, group


def _waiting(reader: Reader, group: uuid.UUID, *others: Reader) -> list[bytes]:
    """Bodies that wait in a group in the reader's partitions, while these readers work."""
    for one in (reader, *others):
        one.keep_up()
    members = [member for owner in reader.owners for member in owner.fold.state.members(group.bytes)]
    return sorted(entry[2] or b"" for member in members for entry in member.queue)
