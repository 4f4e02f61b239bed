"""A reader's share of a queue: the group is polled under load, partitions take turns, and a lost share is reported."""

from __future__ import annotations

import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from confluent_kafka import TopicPartition

from konverse.bridge.owner.driver import OwnerDriver
from konverse.bridge.reader.reader import Reader
from konverse.dialog.transaction.transaction import Transaction
from konverse.schemas.errors import SteppedDown
from tests.kit.servers import Servers
from tests.kit.shop import DEADLINE_S, connected, drain, fill, open_shop, pumped, send_orders, until

pytestmark = pytest.mark.stack


def test_a_reader_beyond_the_number_of_partitions_says_so_and_takes_over(
    servers: Servers, database: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("konverse.bridge.reader.assignment.NO_PARTITION_WARNING_S", 3.0)
    with connected(servers.bootstrap, database) as one, connected(servers.bootstrap, database) as two:
        open_shop(one)
        with one.reader("Orders") as first, pumped(first):
            until(lambda: first.partitions, "the first reader has the partition")
            with two.reader("Orders") as second, pumped(second):
                until(
                    lambda: "has no partition: other readers own all that the queue has (1 partition)" in caplog.text,
                    "the warning is logged",
                )
                holder, other = (first, second) if first.partitions else (second, first)  # the group chooses
                assert not other.partitions
                holder.close()
                until(lambda: other.partitions, "the other one has it")


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_a_reader_with_a_backlog_shares_it_with_one_that_comes_later(
    servers: Servers, database: str, monkeypatch: pytest.MonkeyPatch, protocol: str
) -> None:
    monkeypatch.setattr("konverse.bridge.reader.reader.UNREAD_RECORDS_MAX", 10)
    with connected(servers.bootstrap, database, group_protocol=protocol) as broker:
        open_shop(broker, partitions=2)
        send_orders(broker, dialogs=200, messages=200)
        with broker.reader("Orders", timeout=DEADLINE_S) as first:
            fill(first, 200)
            second = broker.reader("Orders")
            deadline = time.monotonic() + DEADLINE_S
            with pumped(second):
                for transaction in first:
                    # with the classic protocol, it has no partition for a moment
                    scarce = first._handing_out.scarce(first._unread_max)
                    assert not scarce or len(first.partitions) < 2, "the backlog was worked off before it was shared"
                    with transaction:
                        time.sleep(0.01)  # checked, and left waiting
                    if second.partitions:
                        break
                    assert time.monotonic() < deadline, "the second reader has got nothing"
            second.close()


def test_a_reader_that_waits_in_settle_still_takes_part_in_a_rebalance(
    servers: Servers, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker, partitions=2)
        with broker.reader("Orders") as first, ThreadPoolExecutor(1) as pool:
            first.wait_for_partitions(2)
            silent = first._driver
            monkeypatch.setattr(OwnerDriver, "settled", property(lambda driver: driver is not silent))
            settling = pool.submit(first.settle, DEADLINE_S)
            with broker.reader("Orders") as second:
                second.wait_for_partitions(1, DEADLINE_S / 2)
                assert not settling.done(), "it had nothing to wait for"
                monkeypatch.undo()
            settling.result(DEADLINE_S)


def test_partitions_take_turns_although_handlers_are_slow(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker, partitions=2)
        send_orders(broker, dialogs=80, messages=80)
        with broker.reader("Orders", timeout=DEADLINE_S) as reader:
            fill(reader, 80)
            served: Counter[int] = Counter()
            for transaction in reader:
                with transaction:
                    list(transaction)
                    time.sleep(0.01)
                served[_partition(transaction)] += 1
                if served.total() == 20:
                    break
    assert min(served[0], served[1]) >= 5, served


def test_a_partition_whose_handlers_fail_does_not_keep_the_others_waiting(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker, partitions=2)
        send_orders(broker, dialogs=80, messages=80)
        with broker.reader("Orders", timeout=DEADLINE_S) as reader:
            fill(reader, 80)
            served: Counter[int] = Counter()
            for transaction in reader:
                served[_partition(transaction)] += 1
                with suppress(LookupError), transaction:
                    raise LookupError
                if served.total() == 10:
                    break
    assert min(served[0], served[1]) >= 4, served


def _partition(transaction: Transaction) -> int:
    return transaction._context.partition


def _finish_one(reader: Reader) -> None:
    with next(reader) as transaction:
        list(transaction)


def test_settle_raises_once_for_a_partition_that_the_group_revoked(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        send_orders(broker, dialogs=2, messages=2)
        with broker.reader("Orders", timeout=DEADLINE_S) as reader:
            fill(reader, 2)
            _finish_one(reader)
            with (turn := threading.Lock()):  # as the group does while the reader polls
                reader._pumping.take(turn)
                reader._assignment._on_lost(reader._assignment.consumer, [TopicPartition(reader.queue.topic, 0)])
            with pytest.raises(SteppedDown, match="was lost or given back"):
                reader.settle(DEADLINE_S)
            reader.settle(DEADLINE_S)  # reported once


@pytest.mark.parametrize("commit", [True, False])
def test_settle_raises_only_for_a_transaction_committed_after_its_partition_was_revoked(
    servers: Servers, database: str, commit: bool
) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        send_orders(broker, dialogs=1, messages=1)
        with broker.reader("Orders", timeout=DEADLINE_S) as reader:
            with suppress(LookupError), next(reader) as transaction:
                list(transaction)
                with (turn := threading.Lock()):  # as the group does while the reader polls
                    reader._pumping.take(turn)
                    reader._assignment._on_revoke(reader._assignment.consumer, [TopicPartition(reader.queue.topic, 0)])
                if not commit:
                    raise LookupError
            if commit:
                with pytest.raises(SteppedDown, match="was lost or given back"):
                    reader.settle(DEADLINE_S)
            reader.settle(DEADLINE_S)
        assert len(drain(broker, "Orders")) == 1, "it is received again"


@pytest.mark.parametrize("claimed", [True, False])
def test_a_partition_that_was_paused_when_it_was_given_back_is_read_when_it_comes_again(
    servers: Servers, database: str, monkeypatch: pytest.MonkeyPatch, claimed: bool
) -> None:
    with connected(servers.bootstrap, database) as broker, monkeypatch.context() as patched:
        open_shop(broker)
        if not claimed:  # it is paused until it can be recovered
            patched.setattr(OwnerDriver, "take_over", lambda *_: None)
        with broker.reader("Orders", timeout=DEADLINE_S) as reader:
            share, place = reader._assignment, [TopicPartition(reader.queue.topic, 0)]
            with pumped(reader):
                until(lambda: share._assigned, "the group gives us the partition")
            with (turn := threading.Lock()):
                reader._pumping.take(turn)
                if claimed:  # too many messages wait
                    share.consumer.pause(place)
                    share._paused.add(0)
                share._on_revoke(share.consumer, place)
                share.consumer.incremental_unassign(place)
                patched.undo()
                share._on_assign(share.consumer, place)
            send_orders(broker, dialogs=1, messages=1)
            fill(reader, 1)
