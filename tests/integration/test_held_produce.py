"""A COMMIT that arrives after another process took over must not count, although its owner sent it before its death."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from konverse.bridge.verifier.journal import JournalJudge
from konverse.bridge.verifier.records import Record
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.identifiers import journal_topic
from konverse.schemas.wire.journal import Commit
from tests.chaos.proxy import Action, Trap
from tests.chaos.rig import Rig
from tests.kit.oracle import prove_exactly_once, read_raw
from tests.kit.shop import answer_once, connected, open_shop, queue_of, send_orders
from tests.kit.workers import Job, Worker

pytestmark = [pytest.mark.stack]

PATIENCE_S = 60.0


def judged(bootstrap: str, queue: Queue) -> JournalJudge:
    """The judged journal of the queue's only partition."""
    judge = JournalJudge((queue.incarnation, queue.data_topic_id, queue.journal_topic_id))
    for record in read_raw(bootstrap, journal_topic(queue.topic), 0):
        judge.judge(Record(record.offset, None, record.value, 0))
    return judge


def test_a_commit_that_arrives_after_its_owner_was_replaced_does_not_count(
    proxied: Rig, database: str, tmp_path: Path
) -> None:
    direct = proxied.stack.bootstrap
    with connected(direct, database) as broker:
        open_shop(broker)
        orders, shop = queue_of(broker, "Orders"), queue_of(broker, "Shop")
        sent = send_orders(broker, dialogs=3, messages=9)
        first_commit = Trap(Action.HOLD, topic=journal_topic(orders.topic), nth=2)  # the CLAIM goes before it
        proxied.proxies["owner"].trap(first_commit)
        log = str(tmp_path / "diary")
        with Worker(Job(proxied.bootstrap("owner"), database, log, partitions=[0], idle_s=None)) as first:
            assert first_commit.caught.wait(PATIENCE_S), first.errors
            first.send_signal(signal.SIGKILL)
            assert first.wait() == -signal.SIGKILL
            assert first.said("handled")
        with Worker(Job(proxied.bootstrap("next owner"), database, log, partitions=[0], idle_s=1.0)) as second:
            second.wait_for("handled", 9)
            first_commit.release()
            assert first_commit.answered.wait(PATIENCE_S), "the broker has not taken what was held"
            sent |= send_orders(broker, dialogs=2, messages=4)
            assert second.wait() == 0, second.errors
        judge = judged(direct, orders)
        proof = prove_exactly_once(direct, orders, shop, sent)
    assert first_commit.request is not None
    (late,) = [each for each in judge.judged if not each.counts]
    assert isinstance(late.decision, Commit)
    assert (late.record.body or b"") in first_commit.request.data
    assert late.decision.owner == next(iter(judge.claims)), "it is not the first owner's"
    assert late.record.offset > judge.claims[judge.owner], "it was there before the second owner"
    assert (proof.messages, proof.replies, proof.claims, proof.void) == (13, 13, 2, 1)


def test_a_produce_that_arrives_twice_counts_once(proxied: Rig, database: str) -> None:
    """The proxy parses our clients' requests, and nothing bypasses it."""
    with connected(proxied.bootstrap("owner"), database) as broker:
        open_shop(broker)
        orders, shop = queue_of(broker, "Orders"), queue_of(broker, "Shop")
        traps = [
            proxied.proxies["owner"].trap(Trap(Action.DOUBLE, topic=topic))
            for topic in (orders.topic, journal_topic(orders.topic), shop.topic)
        ]
        sent = send_orders(broker, dialogs=1, messages=5)
        with broker.reader("Orders", timeout=1) as reader:
            assert answer_once(reader) == 5
        proof = prove_exactly_once(proxied.stack.bootstrap, orders, shop, sent)
    assert all(trap.answered.wait(PATIENCE_S) for trap in traps)
    assert (proof.messages, proof.replies) == (5, 5)
