"""Topics that an administrator changes while they are used: one log line names what and the remedy, and all goes on."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from konverse.bridge import topic_watch
from konverse.bridge.broker import Broker
from konverse.schemas.catalog import END_DIALOG, ERROR
from konverse.schemas.errors import QueueNotFound
from konverse.schemas.identifiers import journal_topic, snapshot_topic
from tests.integration.test_faults_topics import set_config
from tests.kit.servers import Servers
from tests.kit.shop import (
    DEADLINE_S,
    ORDER,
    ORDER_SERVICE,
    begin,
    connected,
    end_at_target,
    open_shop,
    queue_of,
    until,
)

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
]


@pytest.fixture
def admin(servers: Servers) -> AdminClient:
    return AdminClient({"bootstrap.servers": servers.bootstrap})


@contextmanager
def reading(broker: Broker, bodies: list[bytes]) -> Iterator[None]:
    """A thread that receives from Orders while the block runs."""
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
    """End what the other side has ended."""
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
                mended = f"kafka-configs --alter --topic {topics[part]} --add-config {setting}={needed}"
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
            until(lambda: "has 3 partitions, and queue 'Orders' has 1" in caplog.text, "the warning")
            until(lambda: len(caplog.records) >= 3, "a warning for each topic")
            dialog.send(ORDER, b"after")
            until(lambda: received == [b"before", b"after"], "the reader goes on")
        said = [record.getMessage() for record in caplog.records if "partitions, and queue" in record.getMessage()]
        assert len(said) == 3, "once for each topic"
        dialog.send(ORDER, b"next reader")
        dialog.flush()
        end_at_target(broker)
        drain_ending(broker, "Shop")
        drain_ending(broker, "Orders")
        broker.drop_service(ORDER_SERVICE)
        broker.drop_queue("Orders")
        with pytest.raises(QueueNotFound):
            broker.reader("Orders")
