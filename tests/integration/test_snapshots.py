"""Snapshots on a real Kafka: written beside the work, used for recovery, and older records are deleted."""

from __future__ import annotations

from datetime import timedelta

import pytest
from confluent_kafka import Consumer, TopicPartition

from konverse.bridge.reader.reader import Reader
from konverse.dialog.fold.fold import Fold
from konverse.dialog.owner import snapshots as snapshotting
from konverse.dialog.state.recent import RecordColumns
from konverse.schemas.errors import AlreadyExists, InvalidSettings
from konverse.schemas.identifiers import consumer_group, journal_topic, snapshot_topic
from tests.kit.digests import digest
from tests.kit.oracle import prove_exactly_once, snapshots_of, verify
from tests.kit.servers import Servers
from tests.kit.shop import ORDER, answer_once, begin, connected, drain, open_shop, queue_of, send_orders, until, work

pytestmark = pytest.mark.stack

EVERY = 60


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshotting, "SNAPSHOT_EVERY_RECORDS", EVERY)


def log_start(servers: Servers, topic: str, number: int = 0) -> int:
    with_group = {"bootstrap.servers": servers.bootstrap, "group.id": "konverse.test"}
    consumer = Consumer(with_group)
    try:
        start: int = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=10)[0]
        return start
    finally:
        consumer.close()


def idle_fold(reader: Reader) -> Fold:
    """The state of the only partition when its reader has nothing left to do."""
    reader.settle()
    (owner,) = reader.owners

    def written() -> bool:
        work(reader)
        return not owner.snapshots.busy

    until(written, "the snapshot is written")
    return owner.fold


def test_an_owner_recovers_from_the_newest_snapshot_and_the_records_after_it(
    servers: Servers, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        sent = send_orders(broker, dialogs=20, messages=400)
        with broker.reader("Orders", batch=5, max_messages=2, timeout=1) as reader:
            assert answer_once(reader) == 400
            before = idle_fold(reader)
        written = snapshots_of(servers.bootstrap, queue_of(broker, "Orders"))
        assert written
        fed: list[int] = []
        feed = Fold.feed_data

        def noted(fold: Fold, columns: RecordColumns) -> list[tuple[int, int]]:
            fed.extend(columns.offsets)
            return feed(fold, columns)

        monkeypatch.setattr(Fold, "feed_data", noted)
        with broker.reader("Orders", partitions=(0,)) as reader:
            (owner,) = reader.owners
            assert len(owner.snapshots._durable) == 1
            before.state.now_ms = owner.fold.state.now_ms  # the only change that a CLAIM makes
            assert digest(owner.fold.state) == digest(before.state)
        assert min(fed, default=10**9) >= written[-1].ingest_to, "what the snapshot holds is not read again"
        sent |= send_orders(broker, dialogs=3, messages=9)
        with broker.reader("Orders", timeout=1) as reader:
            assert answer_once(reader) == 9
        prove_exactly_once(servers.bootstrap, queue_of(broker, "Orders"), queue_of(broker, "Shop"), sent)


def test_records_older_than_two_snapshots_are_deleted_and_conversations_continue(
    servers: Servers, database: str
) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker, keep=timedelta(0))
        dialogs = [begin(broker) for _ in range(10)]
        queue = queue_of(broker, "Orders")
        logs = (queue.topic, journal_topic(queue.topic), snapshot_topic(queue.topic))
        for turn in range(4):
            for number in range(100):
                dialogs[number % 10].send(ORDER, b"%d" % (100 * turn + number))
            broker.flush()
            with broker.reader("Orders", batch=5, timeout=1) as reader:
                assert answer_once(reader) == 100
                idle_fold(reader)
        until(lambda: all(log_start(servers, topic) for topic in logs), "all logs are truncated")
        assert len(drain(broker, "Shop")) == 400
        dialogs[0].send(ORDER, b"last")
        broker.flush()
        with broker.reader("Orders", timeout=1) as reader:
            assert answer_once(reader) == 1
        assert len(drain(broker, "Shop")) == 1
        assert verify(servers.bootstrap, [queue, queue_of(broker, "Shop")]) == [], "from the oldest snapshot on"


def test_a_registered_consumer_group_prevents_deletion_of_its_unread_records(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker, keep=timedelta(0))
        queue = queue_of(broker, "Orders")
        consumer = Consumer(
            {
                "bootstrap.servers": servers.bootstrap,
                "group.id": consumer_group(queue.topic, queue.subscription) + ".report",
            }
        )
        read_to = {queue.topic: 17, journal_topic(queue.topic): 3}
        consumer.commit(offsets=[TopicPartition(topic, 0, at) for topic, at in read_to.items()], asynchronous=False)
        consumer.close()
        for _ in range(4):
            send_orders(broker, dialogs=5, messages=100)
            with broker.reader("Orders", batch=5, timeout=1) as reader:
                assert answer_once(reader) == 100
                idle_fold(reader)
        until(lambda: log_start(servers, snapshot_topic(queue.topic)) > 0, "the snapshots are truncated")
        assert {topic: log_start(servers, topic) for topic in read_to} == read_to


def test_a_queue_that_is_there_with_another_keep_is_another_one(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database) as broker:
        made = broker.admin.create_queue("Orders", keep=timedelta(days=7))
        assert broker.admin.create_queue("Orders", if_not_exists=True) == made, "seven days are what is kept by itself"
        with pytest.raises(AlreadyExists, match="keep_ms 604800000, not -1"):
            broker.admin.create_queue("Orders", keep=None, if_not_exists=True)


def test_a_queue_cannot_be_kept_for_less_than_nothing(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database) as broker, pytest.raises(InvalidSettings, match="give 0 or more"):
        broker.admin.create_queue("Orders", keep=timedelta(days=-1))
