"""Behaviours 64 to 95: RECEIVE and conversation groups."""

from __future__ import annotations

import time

import pytest

from konverse.bridge.broker import Broker
from tests.kit.shop import NOTE, ORDER, begin, drain, fill, receive, send_orders

pytestmark = pytest.mark.stack


def test_064_a_transaction_has_messages_of_one_group_only(broker: Broker) -> None:
    related = begin(broker)
    dialogs = [related, begin(broker, related_to=related), begin(broker)]
    for _ in range(3):
        for dialog in dialogs:
            dialog.send(ORDER)
    broker.flush()
    with broker.reader("Orders", timeout=2) as reader:
        fill(reader, 9)
        for transaction in reader:
            with transaction:
                assert len({message.dialog.group_id for message in transaction}) == 1


def test_065_a_transaction_receives_all_ready_messages_or_top_n(broker: Broker) -> None:
    send_orders(broker, dialogs=1, messages=5)
    with broker.reader("Orders", timeout=2, max_messages=2) as reader:
        fill(reader, 5)
        sizes = []
        for transaction in reader:
            with transaction:
                sizes.append(len(list(transaction)))
    assert sizes == [2, 2, 1]
    send_orders(broker, dialogs=1, messages=5)
    with broker.reader("Orders", timeout=2) as reader:
        fill(reader, 5)
        with next(iter(reader)) as transaction:
            assert len(list(transaction)) == 5


def test_066_the_messages_of_a_dialog_come_in_the_order_in_which_they_were_sent(broker: Broker) -> None:
    sent = send_orders(broker, dialogs=3, messages=60)
    taken: dict[bytes, list[tuple[int, bytes]]] = {}
    for message in receive(broker, "Orders", 60, max_messages=7):
        taken.setdefault(message.dialog.conversation, []).append((message.sequence, message.body))
    assert taken == {conversation: list(enumerate(bodies)) for conversation, bodies in sent.items()}


def test_067_all_of_one_dialog_come_before_those_of_the_next(broker: Broker) -> None:
    first = begin(broker)
    dialogs = [first, begin(broker, related_to=first), begin(broker, related_to=first)]
    for _ in range(4):
        for dialog in dialogs:
            dialog.send(NOTE)
    broker.flush()
    with broker.reader("Orders", timeout=2) as reader:
        fill(reader, 12)
        with next(iter(reader)) as transaction:
            order = [message.dialog.id for message in transaction]
    runs = [name for at, name in enumerate(order) if at == 0 or order[at - 1] != name]
    assert len(runs) == len(set(runs))


def test_068_an_empty_queue_gives_nothing(broker: Broker) -> None:
    with broker.reader("Orders", timeout=0) as reader:
        assert list(reader) == []


def test_069_a_reader_waits_until_its_time_is_over_or_a_message_comes(broker: Broker) -> None:
    with broker.reader("Orders", timeout=1.5) as reader:
        reader.wait_for_partitions(1)
        list(reader)
        began = time.monotonic()
        assert list(reader) == []
        assert time.monotonic() - began >= 1.4
        begin(broker).send(ORDER)
        broker.flush()
        began = time.monotonic()
        next(iter(reader))
        assert time.monotonic() - began < 1.4


def test_071_groups_that_a_transaction_has_are_passed_over(broker: Broker) -> None:
    """And 72: a second transaction gets another group."""
    send_orders(broker, dialogs=2, messages=4)
    with broker.reader("Orders", timeout=2) as reader:
        fill(reader, 4)
        turns = iter(reader)
        with next(turns) as first:
            locked = first.dialog.conversation
            assert len(list(first)) == 2
            with next(turns) as second:
                assert second.dialog.conversation != locked
                list(second)
            assert next(turns, None) is None, "both groups were taken"


def test_074_committed_messages_are_gone_and_rolled_back_messages_wait_as_before(broker: Broker) -> None:
    send_orders(broker, dialogs=1, messages=3)
    seen = []
    with broker.reader("Orders", timeout=3) as reader:
        fill(reader, 3)
        for transaction in reader:
            try:
                with transaction:
                    seen.append([(message.dialog.id, message.sequence, message.body) for message in transaction])
                    if len(seen) == 1:
                        raise ZeroDivisionError
            except ZeroDivisionError:
                continue
    assert len(seen) == 2
    assert seen[0] == seen[1]
    assert drain(broker, "Orders") == []


def test_081_a_message_is_received_once(broker: Broker) -> None:
    send_orders(broker, dialogs=5, messages=50)
    assert len(receive(broker, "Orders", 50)) == 50
    assert drain(broker, "Orders") == []


def test_091_groups_are_those_of_one_side(broker: Broker) -> None:
    """And 92: the first message that arrives creates a group at the target."""
    first = begin(broker)
    second = begin(broker, related_to=first)
    for dialog in (first, second):
        dialog.send(ORDER)
    broker.flush()
    groups = {message.dialog.group_id for message in receive(broker, "Orders", 2)}
    assert len(groups) == 2
    assert first.begin.group == second.begin.group
