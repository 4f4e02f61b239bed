"""Comparisons of speed; the benchmark has the figures."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import pytest

from konverse.bridge.broker import Broker
from tests.kit.shop import send_orders

pytestmark = pytest.mark.stack

MESSAGES = 2_000


class Work(NamedTuple):
    """Cost of receiving all messages."""

    seconds: float
    cpu_s: float
    """CPU of the receiving thread, which other processes on the machine do not affect."""
    transactions: int
    commits: int


def receive_all(broker: Broker, dialogs: int, **options: Any) -> Work:
    """Receive MESSAGES messages of `dialogs` dialogs that wait in the queue."""
    send_orders(broker, dialogs=dialogs, messages=MESSAGES)
    with broker.reader("Orders", timeout=20, **options) as reader:
        reader.wait_for_partitions(1)
        (owner,) = reader.owners
        before = owner.counters.commits
        began, cpu_began, received, transactions = time.perf_counter(), time.thread_time(), 0, 0
        for transaction in reader:
            with transaction:
                received += len(list(transaction))
            transactions += 1
            if received == MESSAGES:
                break
        reader.settle()
        cpu_s = time.thread_time() - cpu_began
        return Work(time.perf_counter() - began, cpu_s, transactions, owner.counters.commits - before)


def test_235_batched_commits_beat_single_ones_groups_beat_both_and_long_dialogs_beat_short_ones(broker: Broker) -> None:
    """In part: set-based receiving with Spark is not compared here; `make bench` prints its figures."""
    basic = receive_all(broker, 20, batch=1, max_messages=1)
    batched = receive_all(broker, 20, batch=100, max_messages=1)
    groups = receive_all(broker, 20)
    short = receive_all(broker, MESSAGES)
    assert basic.transactions == batched.transactions == short.transactions == MESSAGES
    assert groups.transactions < MESSAGES / 10
    assert basic.commits > 5 * batched.commits
    assert batched.commits > 2 * groups.commits
    assert basic.seconds > 2 * batched.seconds
    assert batched.seconds > groups.seconds
    assert batched.cpu_s > 2 * groups.cpu_s
    assert short.cpu_s > 2 * groups.cpu_s
