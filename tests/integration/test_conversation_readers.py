"""Readers on a real Kafka: the messages that they take, keep and give back."""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from contextlib import suppress
from uuid import UUID

import pytest

from konverse.bridge.reader import assignment as share
from konverse.bridge.reader import reader as receiving
from konverse.dialog.transaction.transaction import Transaction
from konverse.schemas.errors import BadInput, InvalidState
from tests.kit.servers import Servers
from tests.kit.shop import (
    DEADLINE_S,
    ORDER,
    RECEIPT,
    begin,
    connected,
    drain,
    fill,
    open_shop,
    receive,
    send_orders,
    until,
)

pytestmark = pytest.mark.stack


def test_messages_of_an_unfinished_transaction_are_received_again_after_the_reader_closes(
    servers: Servers, database: str
) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        send_orders(broker, dialogs=2, messages=2)
        reader = broker.reader("Orders", timeout=DEADLINE_S)
        fill(reader, 2)
        forgotten: Transaction = next(reader)
        with next(reader) as finished:
            done = list(finished)
        reader.close()
        with forgotten:
            list(forgotten)  # too late: the partition was given back
        (again,) = drain(broker, "Orders")
    assert again.dialog.id != done[0].dialog.id


def test_leaving_out_the_flush_sends_everything_at_close(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
    with connected(servers.bootstrap, database) as sender:
        dialog = begin(sender)
        for number in range(100):
            dialog.send(ORDER, b"%d" % number)
    with connected(servers.bootstrap, database) as broker:
        assert [m.body for m in receive(broker, "Orders", 100)] == [b"%d" % n for n in range(100)]


def test_a_conversation_that_is_begun_twice_is_one_conversation(servers: Servers, database: str) -> None:
    conversation = uuid.uuid4()
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        for number in range(2):
            begin(broker, conversation_id=conversation).send(ORDER, b"%d" % number)
            broker.flush()
        taken = receive(broker, "Orders", 2)
    assert {m.dialog.id for m in taken} == {conversation}
    assert [(m.sequence, m.body) for m in taken] == [(0, b"0"), (1, b"1")]


def test_a_conversation_id_has_the_same_home_in_processes_that_read_different_partitions(
    servers: Servers, database: str
) -> None:
    conversations = [uuid.uuid4() for _ in range(8)]
    with connected(servers.bootstrap, database) as broker, connected(servers.bootstrap, database) as restarted:
        open_shop(broker, home_partitions=4)
        homes = [begin(broker, conversation_id=each).begin.home for each in conversations]
        with restarted.reader("Shop", partitions=(1,)):
            assert [begin(restarted, conversation_id=each).begin.home for each in conversations] == homes
    assert len({home.partition for home in homes}) > 1


def test_replies_come_back_to_a_partition_that_this_process_reads(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker, home_partitions=4)
        with broker.reader("Shop", partitions=(2,), timeout=1) as shop:
            shop.wait_for_partitions(1, DEADLINE_S)
            homes = {begin(broker).begin.home.partition for _ in range(20)}
        until(lambda: shop.closed, "the reader closes")
        everywhere = {begin(broker).begin.home.partition for _ in range(50)}
    assert homes == {2}
    assert len(everywhere) > 1


def test_a_conversation_whose_handler_always_fails_does_not_hold_up_the_others(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        poison = begin(broker)
        poison.send(ORDER, b"poison")
        good = [begin(broker) for _ in range(5)]
        for dialog in good:
            dialog.send(ORDER, b"early")
        broker.flush()
        failures = 0
        answered: list[bytes] = []
        late = False
        with broker.reader("Orders", timeout=DEADLINE_S) as reader:
            for transaction in reader:
                try:
                    with transaction:
                        for message in transaction:
                            if message.body == b"poison":
                                raise ValueError(message.body)
                            answered.append(message.body)
                except ValueError:
                    failures += 1
                if len(answered) == 5 and not late:
                    late = True
                    for dialog in good:
                        dialog.send(ORDER, b"late")
                if len(answered) == 10:
                    break
            reader.settle()
        assert answered == [b"early"] * 5 + [b"late"] * 5
        assert failures < 1_000, "it is not handed out again at once"
        with broker.reader("Orders", timeout=1) as reader, next(reader) as transaction:
            assert [message.body for message in transaction] == [b"poison"], "and it is not lost"


def test_a_transaction_that_is_left_as_it_was_is_handed_out_again(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        begin(broker).send(ORDER, b"x")
        broker.flush()
        with broker.reader("Orders", timeout=DEADLINE_S) as reader:
            for _ in range(3):
                with next(reader):
                    pass
            with next(reader) as transaction:
                assert [message.body for message in transaction] == [b"x"]


def test_a_reader_with_a_timeout_of_zero_receives_waiting_messages(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        for options in ({}, {"partitions": (0,)}):
            begin(broker).send(ORDER, b"x")
            broker.flush()
            bodies: list[bytes] = []
            with broker.reader("Orders", timeout=0, **options) as reader:  # type: ignore[arg-type]
                for transaction in reader:
                    with transaction:
                        bodies += [message.body for message in transaction]
            assert bodies == [b"x"]


def test_a_transaction_is_worked_on_in_its_with_block_alone(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        begin(broker).send(ORDER, b"x")
        broker.flush()
        with broker.reader("Orders", timeout=DEADLINE_S) as reader:
            transaction = next(reader)
            with pytest.raises(InvalidState, match="write `with transaction:`"):
                transaction.send(transaction.dialog, RECEIPT, b"never")
            with transaction:
                transaction.send(transaction.dialog, RECEIPT, b"sent")


def test_a_skipped_transaction_comes_again_although_another_group_is_always_ready(
    servers: Servers, database: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("konverse.dialog.owner.handing_out.REST_MS", 1)
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        skipped = begin(broker)
        skipped.send(ORDER, b"skipped once")
        broker.flush()
        send_orders(broker, dialogs=200, messages=2_000)
        times = others = 0
        bodies: list[bytes] = []
        with broker.reader("Orders", max_messages=1, timeout=DEADLINE_S) as reader:
            fill(reader, 2_001)
            while times < 2:
                assert reader._handing_out.ready, f"{others} of the others were received before it"
                transaction = next(reader)
                if transaction.dialog.id == skipped.id:
                    times += 1
                    if times == 1:
                        continue
                else:
                    others += 1
                with transaction:
                    bodies = [message.body for message in transaction]
                if others % 50 == 0:
                    reader.settle()  # the next messages of these conversations are ready again
        assert bodies == [b"skipped once"]
        assert f"the transaction of conversation {skipped.id} of queue 'Orders' was skipped" in caplog.text


def test_a_batch_has_ready_messages_of_several_groups_each_in_its_own_transaction(
    servers: Servers, database: str
) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        send_orders(broker, dialogs=5, messages=20)
        sizes: list[int] = []
        taken: Counter[uuid.UUID] = Counter()
        with broker.reader("Orders", timeout=2.0) as reader:
            for batch in reader.batches(8):
                sizes.append(len(batch))
                for transaction in batch:
                    with suppress(LookupError), transaction:
                        messages = list(transaction)
                        if len(sizes) == 1 and transaction is batch[0]:
                            raise LookupError("the first one is rolled back, and comes again")
                        taken[transaction.dialog.id] += len(messages)
        assert len(taken) == 5
        assert set(taken.values()) == {4}
        assert max(sizes) == 2
        with pytest.raises(BadInput), broker.reader("Orders") as reader:
            reader.batches(0)


def test_a_reader_closes_although_its_client_never_leaves_the_group(
    servers: Servers, database: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    release, left = threading.Event(), threading.Event()
    monkeypatch.setattr(share, "LEAVE_S", 0.2)
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        reader = broker.reader("Orders")
        reader.wait_for_partitions(1)
        consumer = reader._assignment.consumer

        class Stuck:
            def __getattr__(self, name: str) -> object:
                return getattr(consumer, name)

            def close(self) -> None:
                release.wait(DEADLINE_S)
                consumer.close()
                left.set()

        monkeypatch.setattr(reader._assignment, "consumer", Stuck())
        reader.close()
        assert reader.closed
        assert "has not left its consumer group" in caplog.text
        release.set()
        assert left.wait(DEADLINE_S)


def test_a_batch_is_as_large_as_was_asked_for_when_so_much_waits(
    servers: Servers, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiving, "GATHER_S", 5.0)
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker, partitions=2)
        send_orders(broker, dialogs=20, messages=9_000)
        sizes: list[int] = []
        with broker.reader("Orders", timeout=1.0) as reader:
            reader.wait_for_partitions(2)
            for batch in reader.batches(4_000):
                sizes.append(0)
                for transaction in batch:
                    with transaction:
                        sizes[-1] += len(list(transaction))
    assert sum(sizes) == 9_000
    assert min(sizes[:2]) >= 4_000, "one fetch has a thousand"


def test_a_group_that_an_iteration_passes_over_comes_again(
    servers: Servers, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Before its `with` block begins: by `continue`, out of a batch, and by a thread that has ended since."""
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        send_orders(broker, dialogs=4, messages=4)
        handled = Counter[UUID]()
        with broker.reader("Orders", timeout=DEADLINE_S) as reader:
            thread = threading.Thread(target=lambda: next(reader))
            thread.start()
            thread.join()
            for count, transaction in enumerate(reader):
                if count < 2:
                    continue
                with transaction:
                    handled.update(message.dialog.id for message in transaction)
                if len(handled) == 2:
                    break
            for count, batch in enumerate(reader.batches(2)):
                for each in batch if count else ():
                    with each:
                        handled.update(message.dialog.id for message in each)
                if len(handled) == 4:
                    break
        assert [*handled.values()] == [1] * 4
        assert drain(broker, "Orders") == []
    assert sum("Enter `with transaction:`" in line for line in caplog.messages) == 1


def test_a_transaction_that_was_passed_over_is_refused_and_one_that_ended_is_not_entered_again(
    servers: Servers, database: str
) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        send_orders(broker, dialogs=1, messages=1)
        with broker.reader("Orders", timeout=DEADLINE_S) as reader:
            passed = next(reader)
            with suppress(KeyError), next(reader) as again:
                raise KeyError
            for over in (passed, again):
                with pytest.raises(InvalidState, match="over"), over:
                    pass
                with pytest.raises(InvalidState, match="over"):
                    list(over)
        assert [message.type for message in drain(broker, "Orders")] == [ORDER]
