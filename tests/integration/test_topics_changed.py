"""Topics changed by an administrator in use: one log line names the change and the remedy, and everything goes on."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from konverse.bridge.broker import Broker
from konverse.bridge.client.dialog import Dialog
from konverse.bridge.kafka import topic_watch
from konverse.schemas.errors import PartitionHalted, QueueNotFound, TopicMismatch
from konverse.schemas.identifiers import journal_topic, snapshot_topic
from konverse.schemas.system_messages import END_DIALOG, ERROR
from tests.kit.oracle import verify
from tests.kit.servers import Servers
from tests.kit.shop import (
    DEADLINE_S,
    ORDER,
    ORDER_SERVICE,
    ORDERING,
    begin,
    connected,
    end_at_target,
    open_shop,
    queue_of,
    receive,
    until,
)
from tests.kit.topics import create, delete, set_config

pytestmark = pytest.mark.stack

CHANGES = [
    ("data", "cleanup.policy", "compact", "delete"),
    ("journal", "cleanup.policy", "compact,delete", "delete"),
    ("snapshot", "cleanup.policy", "compact", "delete"),
    ("data", "retention.ms", "3600000", "-1"),
    ("journal", "retention.bytes", "1000000", "-1"),
    ("journal", "message.timestamp.type", "CreateTime", "LogAppendTime"),
    ("data", "max.message.bytes", "900000", "1000000"),
    ("data", "min.insync.replicas", "2", "1"),
    ("snapshot", "retention.ms", "3600000", "-1"),
    ("snapshot", "max.message.bytes", "50", "1000000"),
    ("snapshot", "message.timestamp.type", "CreateTime", "LogAppendTime"),
]


@pytest.fixture
def admin(servers: Servers) -> AdminClient:
    return AdminClient({"bootstrap.servers": servers.bootstrap})


@contextmanager
def reading(broker: Broker, bodies: list[bytes]) -> Iterator[None]:
    """Receive from Orders in a thread while the block runs."""
    reader = broker.reader("Orders")

    def work() -> None:
        for transaction in reader:
            with transaction:
                bodies.extend(message.body for message in transaction)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        reader.close()
        thread.join(DEADLINE_S)


def drain_ending(broker: Broker, queue: str) -> None:
    """End the dialogs that the other side has ended."""
    with broker.reader(queue, timeout=1) as reader:
        for transaction in reader:
            with transaction:
                for message in transaction:
                    if message.type in (END_DIALOG, ERROR):
                        transaction.end(message.dialog)


def test_a_running_reader_names_each_changed_setting_its_value_and_the_command_that_mends_it(
    servers: Servers,
    database: str,
    admin: AdminClient,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topic_watch, "WATCH_EVERY_S", 0.2)
    received: list[bytes] = []
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        topic = queue_of(broker, "Orders").topic
        topics = {"data": topic, "journal": journal_topic(topic), "snapshot": snapshot_topic(topic)}
        dialog = begin(broker)
        with caplog.at_level(logging.WARNING), reading(broker, received):
            dialog.send(ORDER, b"before")
            until(lambda: received, "the first order")
            for part, setting, value, needed in CHANGES:
                set_config(admin, topics[part], setting, value)
                line = f"topic {topics[part]} has {setting}={value}"
                until(lambda line=line: line in caplog.text, line)  # type: ignore[misc]
                to = f"--bootstrap-server {servers.bootstrap} --alter --topic {topics[part]}"
                mended = f"kafka-configs {to} --add-config {setting}={needed}"
                assert mended in caplog.text
                set_config(admin, topics[part], setting, needed)
            lines = [record.getMessage() for record in caplog.records if record.name == "konverse.reader"]
            assert len(lines) == len(CHANGES), f"each is named once: {lines}"
            dialog.send(ORDER, b"after")
            until(lambda: received == [b"before", b"after"], "the reader goes on when all is mended")


def test_partitions_that_were_added_are_left_alone_with_one_warning_and_the_queue_can_be_dropped(
    servers: Servers,
    database: str,
    admin: AdminClient,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topic_watch, "WATCH_EVERY_S", 0.2)
    received: list[bytes] = []
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        topic = queue_of(broker, "Orders").topic
        dialog = begin(broker)
        with caplog.at_level(logging.WARNING), reading(broker, received):
            dialog.send(ORDER, b"before")
            until(lambda: received, "the first order")
            for name in (topic, journal_topic(topic), snapshot_topic(topic)):
                admin.create_partitions([NewPartitions(name, 3)])[name].result(DEADLINE_S)
            until(lambda: "has 3 partitions, but queue 'Orders' has 1" in caplog.text, "the warning")
            until(lambda: len(caplog.records) >= 3, "a warning for each topic")
            dialog.send(ORDER, b"after")
            until(lambda: received == [b"before", b"after"], "the reader goes on")
        said = [record.getMessage() for record in caplog.records if "partitions, but queue" in record.getMessage()]
        assert len(said) == 3, "once for each topic"
        dialog.send(ORDER, b"next reader")
        dialog.flush()
        end_at_target(broker)
        drain_ending(broker, "Shop")
        drain_ending(broker, "Orders")
        broker.admin.drop_service(ORDER_SERVICE)
        broker.admin.drop_queue("Orders")
        with pytest.raises(QueueNotFound):
            broker.reader("Orders")


def test_a_reader_whose_queue_was_dropped_closes_at_once_and_says_nothing_more(
    servers: Servers, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    with connected(servers.bootstrap, database) as broker:
        broker.admin.create_queue("Orders")
        reader = broker.reader("Orders")
        reader.wait_for_partitions(1)
        with connected(servers.bootstrap, database) as another:
            another.admin.drop_queue("Orders")
        with pytest.raises(QueueNotFound, match="was dropped while it was read"):
            next(reader)
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            began = time.monotonic()
            reader.close()
            took = time.monotonic() - began
        assert took < 5, "a journal that is gone is not waited for: its time would be 15 s (append_timeout_s)"
        assert not {record.name for record in caplog.records} & {
            "konverse.journal",
            "konverse.owner",
            "konverse.reader",
        }


def send_and_flush(dialog: Dialog) -> None:
    dialog.send(ORDER, b"for the first queue")
    dialog.flush()


def deleted(admin: AdminClient, topic: str) -> None:
    delete(admin, topic)


def made_again(admin: AdminClient, topic: str) -> None:
    delete(admin, topic)
    create(admin, topic, 1, {})


def cut(admin: AdminClient, topic: str) -> None:
    place = TopicPartition(topic, 0, 2)
    admin.delete_records([place])[place].result(DEADLINE_S)


@pytest.mark.parametrize(
    ("harm", "part"),
    [
        (deleted, "data"),
        (made_again, "data"),
        (deleted, "journal"),
        (made_again, "journal"),
        (cut, "data"),
        (cut, "journal"),
    ],
)
def test_a_queue_whose_topics_are_gone_or_cut_is_refuted_dropped_with_force_and_its_name_used_again(
    servers: Servers, database: str, admin: AdminClient, harm: Callable[[AdminClient, str], None], part: str
) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        begin(broker).send(ORDER, b"0")
        old = begin(broker)
        old.send(ORDER, b"1")
        broker.flush()
        receive(broker, "Orders", 2)
        topic = queue_of(broker, "Orders").topic
        topic = journal_topic(topic) if part == "journal" else topic
        harm(admin, topic)
        findings = verify(servers.bootstrap, [queue_of(broker, "Orders")])
        assert any(topic in f"{finding.partition}: {finding.text}" or finding.rule == "cut" for finding in findings)
        broker.admin.drop_service(ORDER_SERVICE)
        with pytest.raises((TopicMismatch, PartitionHalted), match=r"drop_queue\('Orders', force=True\)"):
            broker.admin.drop_queue("Orders")
        broker.admin.drop_queue("Orders", force=True)
        with pytest.raises(QueueNotFound):
            broker.reader("Orders")
        broker.admin.create_queue("Orders")
        broker.admin.create_service(ORDER_SERVICE, queue="Orders", contracts=[ORDERING])
        with pytest.raises(TopicMismatch, match="never received"):
            send_and_flush(old)
        fresh = begin(broker)
        fresh.send(ORDER, b"a new queue")
        fresh.flush()
        assert [message.body for message in receive(broker, "Orders", 1)] == [b"a new queue"]
        assert verify(servers.bootstrap, [queue_of(broker, "Orders")]) == []
