"""Replaced owners that do not know it: stopped processes, and two that claim the same partition."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.kit.oracle import prove_exactly_once
from tests.kit.servers import Servers
from tests.kit.shop import DEADLINE_S, ORDER, answer_once, begin, connected, open_shop, queue_of, send_orders
from tests.kit.workers import Job, Worker

pytestmark = pytest.mark.stack

SESSION_TIMEOUT_MS = "6000"
TAKEN_OVER_WITHIN_S = 100.0
"""With Kafka's default settings, a broker waits 45 s for a member of a `consumer` group."""


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_stopped_worker_that_wakes_up_after_it_was_replaced_changes_nothing(
    servers: Servers, database: str, tmp_path: Path, protocol: str
) -> None:
    client = {"session.timeout.ms": SESSION_TIMEOUT_MS, "heartbeat.interval.ms": "500"}
    settings = {
        "group_protocol": protocol,
        "redis": servers.redis_url,
        "client": client if protocol == "classic" else {},
    }
    release = tmp_path / "release"
    job = Job(
        servers.bootstrap,
        database,
        str(tmp_path / "diary"),
        batch=1,  # the zombie commits before it asks its group anything
        idle_s=4,
        hold_on="order 4",
        release=str(release),
        settings=settings,
    )
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        sent = send_orders(broker, dialogs=3, messages=9)
        with Worker(job) as first:
            first.wait_for("holds")
            first.send_signal(signal.SIGSTOP)
            done = len(first.said("handled"))
            release.touch()
            with Worker(job) as second:
                second.wait_for("handled", 9 - done, TAKEN_OVER_WITHIN_S)
                first.send_signal(signal.SIGCONT)
                sent |= send_orders(broker, dialogs=3, messages=9)
                assert (first.wait(), second.wait()) == (0, 0), first.errors + second.errors
        proof = prove_exactly_once(servers.bootstrap, queue_of(broker, "Orders"), queue_of(broker, "Shop"), sent)
    assert proof.replies == 18
    assert proof.claims >= 2
    assert proof.void >= 1, "the zombie did not even try"


def test_of_two_processes_that_take_one_partition_the_first_steps_down(
    servers: Servers, database: str, tmp_path: Path
) -> None:
    release = tmp_path / "release"
    job = Job(
        servers.bootstrap,
        database,
        str(tmp_path / "diary"),
        partitions=[0],
        idle_s=None,
        hold_on="order 4",
        release=str(release),
    )
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        sent = send_orders(broker, dialogs=3, messages=9)
        with Worker(job) as first:
            first.wait_for("holds")
            with broker.reader("Orders", partitions=(0,), timeout=2) as second:
                answered = answer_once(second)
            release.touch()
            assert first.wait() == 1
            assert "SteppedDown" in first.errors
            assert "Give each process partitions of its own" in first.errors
        assert answered >= 9 - len(first.said("handled")) + 1
        proof = prove_exactly_once(servers.bootstrap, queue_of(broker, "Orders"), queue_of(broker, "Shop"), sent)
    assert (proof.replies, proof.claims) == (9, 2)


def test_readers_that_fight_for_a_partition_lose_and_double_nothing(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        sent: dict[bytes, list[bytes]] = {}
        dialog = begin(broker)
        sent[dialog.id.bytes] = []
        for number in range(12):
            body = b"%d" % number
            dialog.send(ORDER, body)
            dialog.flush()
            sent[dialog.id.bytes].append(body)
            reader = broker.reader("Orders", partitions=(0,), timeout=DEADLINE_S)
            with next(reader) as transaction:
                messages = list(transaction)
                if number % 3 == 1:  # another owner claims before this one commits
                    with broker.reader("Orders", partitions=(0,), timeout=0.2) as thief:
                        assert answer_once(thief) == len(messages)
                for message in messages:
                    transaction.send(message.dialog, "//sales/Receipt", b"%d/%d" % (number, message.sequence))
            reader.close()
        with broker.reader("Orders", timeout=1) as reader:
            assert answer_once(reader) == 0
        proof = prove_exactly_once(servers.bootstrap, queue_of(broker, "Orders"), queue_of(broker, "Shop"), sent)
    assert (proof.messages, proof.claims) == (12, 12 + 4 + 1)
    assert proof.void >= 4
