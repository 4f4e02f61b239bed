"""Topics that an administrator creates, changes, deletes or recreates: errors are exact, and nothing is lost."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from konverse.bridge.broker import Broker
from konverse.bridge.catalog.objects import SYSTEM_TYPES
from konverse.bridge.kafka.topics import DATA_CONFIG, JOURNAL_CONFIG
from konverse.bridge.reader.reader import Reader
from konverse.schemas.catalog.objects import MessageType
from konverse.schemas.errors import OutcomeUnknown, PartitionHalted, TopicMismatch
from konverse.schemas.identifiers import catalog_topic, data_topic, journal_topic, snapshot_topic, transmission_topic
from tests.kit.servers import Servers
from tests.kit.shop import (
    DEADLINE_S,
    ORDER,
    ORDER_SERVICE,
    ORDERING,
    RECEIPT,
    begin,
    connected,
    fill,
    open_shop,
    queue_of,
    receive,
    send_orders,
)
from tests.kit.topics import create, delete, set_config

pytestmark = pytest.mark.stack


@pytest.fixture
def admin(servers: Servers) -> AdminClient:
    return AdminClient({"bootstrap.servers": servers.bootstrap})


@pytest.mark.parametrize("part", ["data", "journal"])
def test_a_topic_that_is_missing_is_named(servers: Servers, database: str, admin: AdminClient, part: str) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker, partitions=3)
        topic = queue_of(broker, "Orders").topic
        topic = journal_topic(topic) if part == "journal" else topic
        delete(admin, topic)
        with pytest.raises(TopicMismatch) as caught:
            broker.reader("Orders")
        assert f"topic {topic} does not exist any more: its records are gone" in str(caught.value)
        follow_the_remedy(broker, str(caught.value), partitions=3)


def follow_the_remedy(broker: Broker, said: str, *, partitions: int = 1) -> None:
    """Do what the error demands; then messages arrive."""
    assert "A topic restored from a backup has another id in Kafka, and is refused too." in said
    assert "Drop the queue, which gives up its messages: drop_queue('Orders', force=True). Then create it again" in said
    broker.admin.drop_service(ORDER_SERVICE)
    broker.admin.drop_queue("Orders", force=True)
    broker.admin.create_queue("Orders", partitions=partitions)
    broker.admin.create_service(ORDER_SERVICE, queue="Orders", contracts=[ORDERING])
    begin(broker).send(ORDER, b"to the next queue")
    assert [message.body for message in receive(broker, "Orders", 1)] == [b"to the next queue"]


@pytest.mark.parametrize("watched", [False, True], ids=["next reader", "running reader"])
def test_a_missing_snapshot_topic_is_created_again_empty_by_the_command_that_the_error_names(
    servers: Servers, database: str, admin: AdminClient, watched: bool
) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker, partitions=2)
        send_orders(broker, dialogs=1, messages=1)
        topic = snapshot_topic(queue_of(broker, "Orders").topic)
        if watched:
            with broker.reader("Orders") as reader:
                fill(reader, 1)
                delete(admin, topic)
                with pytest.raises(TopicMismatch, match=f"topic {topic} was deleted while it was read") as caught:
                    receive_all(reader)
        else:
            delete(admin, topic)
            with pytest.raises(TopicMismatch, match=f"topic {topic} does not exist any more") as caught:
                broker.reader("Orders")
        said = str(caught.value)
        assert "It holds snapshots alone: create it again, empty" in said
        command = f"kafka-topics --bootstrap-server {servers.bootstrap} --create --topic {topic} --partitions 2"
        assert command in said
        config = dict(re.findall(r"--config (\S+?)=(\S+)", said))
        create(admin, topic, 2, config)
        begin(broker).send(ORDER, b"more")
        assert b"more" in [message.body for message in receive(broker, "Orders", 1 if watched else 2)]


@pytest.mark.parametrize("part", ["data", "journal"])
def test_a_topic_that_was_made_again_is_not_taken_for_the_first(
    servers: Servers, database: str, admin: AdminClient, part: str
) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        send_orders(broker, dialogs=1, messages=3)
        topic, config = queue_of(broker, "Orders").topic, DATA_CONFIG
        if part == "journal":
            topic, config = journal_topic(topic), JOURNAL_CONFIG
        delete(admin, topic)
        create(admin, topic, 1, config)
        with pytest.raises(TopicMismatch, match="deleted and created again since the queue was created") as caught:
            broker.reader("Orders")
        assert topic in str(caught.value)
        follow_the_remedy(broker, str(caught.value))


@pytest.mark.parametrize(
    ("part", "case"),
    [
        ("data", ("cleanup.policy=compact", "delete")),
        ("journal", ("cleanup.policy=compact", "delete")),
        ("journal", ("message.timestamp.type=CreateTime", "LogAppendTime")),
        ("journal", ("retention.ms=3600000", "-1")),
        ("data", ("retention.ms=3600000", "-1")),
        ("journal", ("max.message.bytes=900000", JOURNAL_CONFIG["max.message.bytes"])),
        ("data", ("max.message.bytes=900000", "1000000")),
        ("data", ("retention.bytes=1000000", "-1")),
    ],
)
def test_a_topic_with_other_settings_is_refused_with_the_command_that_mends_it(
    admin: AdminClient, servers: Servers, database: str, part: str, case: tuple[str, str]
) -> None:
    setting, needed = case
    name, value = setting.split("=")
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        send_orders(broker, dialogs=1, messages=1)
        topic = queue_of(broker, "Orders").topic
        topic = journal_topic(topic) if part == "journal" else topic
        set_config(admin, topic, name, value)
        with pytest.raises(TopicMismatch) as caught:
            broker.reader("Orders")
        assert f"topic {topic} has {name}={value}; konverse needs {needed}" in str(caught.value)
        command = f"kafka-configs --bootstrap-server {servers.bootstrap} --alter --topic {topic}"
        assert f"{command} --add-config {name}={needed}" in str(caught.value)
        set_config(admin, topic, name, needed)
        assert len(receive(broker, "Orders", 1)) == 1


def test_topics_that_an_administrator_made_before_are_used_when_they_fit(
    servers: Servers, database: str, admin: AdminClient
) -> None:
    topic = data_topic(database, database, "Orders")
    for name, config in (
        (topic, DATA_CONFIG),
        (journal_topic(topic), {**JOURNAL_CONFIG, "max.message.bytes": "10485760"}),
        (snapshot_topic(topic), JOURNAL_CONFIG),
    ):
        create(admin, name, 2, config)
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker, partitions=2)
        begin(broker).send(ORDER, b"x")
        assert len(receive(broker, "Orders", 1)) == 1


def test_a_queue_is_not_put_on_topics_with_another_number_of_partitions(
    servers: Servers, database: str, admin: AdminClient
) -> None:
    create(admin, data_topic(database, database, "Orders"), 3, DATA_CONFIG)
    with (
        connected(servers.bootstrap, database) as broker,
        pytest.raises(TopicMismatch, match="has 3 partitions, not 2; partitions are fixed when a queue is created"),
    ):
        broker.admin.create_queue("Orders", partitions=2)


def test_a_data_log_that_was_cut_behind_our_back_stops_the_partition_with_an_alarm(
    servers: Servers, database: str, admin: AdminClient
) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        send_orders(broker, dialogs=2, messages=6)
        receive(broker, "Orders", 6)
        topic = queue_of(broker, "Orders").topic
        place = TopicPartition(topic, 0, 4)
        admin.delete_records([place])[place].result(DEADLINE_S)
        with (
            broker.reader("Orders", timeout=DEADLINE_S) as reader,
            pytest.raises(PartitionHalted, match="does not hold offset 0 any more"),
        ):
            next(reader)


def test_a_truncated_journal_without_a_snapshot_halts_the_partition(
    servers: Servers, database: str, admin: AdminClient
) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        send_orders(broker, dialogs=2, messages=6)
        receive(broker, "Orders", 6)
        topic = journal_topic(queue_of(broker, "Orders").topic)
        place = TopicPartition(topic, 0, 1)
        admin.delete_records([place])[place].result(DEADLINE_S)
        with (
            broker.reader("Orders", timeout=DEADLINE_S) as reader,
            pytest.raises(PartitionHalted, match="begins at 1 and there is no intact snapshot"),
        ):
            next(reader)


def test_a_data_log_that_is_made_again_under_a_reader_stops_it_with_a_typed_error(
    servers: Servers, database: str, admin: AdminClient
) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        send_orders(broker, dialogs=2, messages=6)
        topic = queue_of(broker, "Orders").topic
        with broker.reader("Orders", timeout=DEADLINE_S) as reader:
            fill(reader, 6)
            with next(reader) as transaction:
                list(transaction)
            delete(admin, topic)
            create(admin, topic, 1, DATA_CONFIG)
            with pytest.raises(TopicMismatch, match="deleted and created again since the queue was created"):
                reader.run(list)


def receive_all(reader: Reader) -> None:
    for transaction in reader:
        with transaction:
            list(transaction)


@pytest.mark.parametrize("again", [False, True], ids=["deleted", "made again"])
def test_a_topic_that_goes_under_a_running_reader_ends_it(
    servers: Servers, database: str, admin: AdminClient, again: bool
) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        send_orders(broker, dialogs=2, messages=4)
    with connected(servers.bootstrap, database) as broker:
        topic = queue_of(broker, "Orders").topic
        with broker.reader("Orders") as reader:
            with next(reader) as transaction:
                list(transaction)
            delete(admin, topic)
            if again:
                create(admin, topic, 1, DATA_CONFIG)
            with pytest.raises(TopicMismatch, match=topic) as caught:
                receive_all(reader)
        assert ("created again" if again else "was deleted while it was read") in str(caught.value)
        assert "drop_queue('Orders', force=True)" in str(caught.value)


def test_settling_does_not_say_done_while_a_destination_refuses(
    servers: Servers, database: str, admin: AdminClient
) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        send_orders(broker, dialogs=3, messages=3)
    with connected(servers.bootstrap, database) as broker:
        delete(admin, queue_of(broker, "Shop").topic)
        reader = broker.reader("Orders")
        for _ in range(3):
            with next(reader) as transaction:
                for message in transaction:
                    transaction.send(message.dialog, RECEIPT, b"x")
        with pytest.raises(OutcomeUnknown, match="has not acknowledged all finished work"):
            reader.settle(3)
        reader.close()


@pytest.fixture
def instance(database: str, admin: AdminClient) -> Iterator[str]:
    """An instance of the test's own, whose catalog it may damage."""
    yield database
    for name in admin.list_topics(timeout=10).topics:
        if name.startswith(f"{database}."):
            delete(admin, name)


@pytest.mark.parametrize("part", ["data", "journal", "snapshot"])
def test_a_transmission_queue_whose_topics_would_lose_something_is_refused(
    servers: Servers, database: str, instance: str, admin: AdminClient, part: str
) -> None:
    topic = transmission_topic(instance)
    topic = {"data": topic, "journal": journal_topic(topic), "snapshot": snapshot_topic(topic)}[part]
    with connected(servers.bootstrap, database, instance=instance) as broker:
        broker.transmitter().close()
        set_config(admin, topic, "retention.ms", "1000000")
        with pytest.raises(TopicMismatch, match=f"topic {re.escape(topic)} has retention.ms=1000000"):
            broker.transmitter()


def test_a_queue_whose_snapshots_would_be_lost_is_refused(servers: Servers, database: str, admin: AdminClient) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        topic = snapshot_topic(queue_of(broker, "Orders").topic)
        set_config(admin, topic, "retention.ms", "1000000")
        with pytest.raises(TopicMismatch, match=f"topic {re.escape(topic)} has retention.ms=1000000"):
            broker.reader("Orders")


@pytest.mark.parametrize("refilled", [0, 9])
def test_a_catalog_that_was_made_again_is_not_taken_for_the_first(
    servers: Servers, database: str, instance: str, admin: AdminClient, refilled: int
) -> None:
    with connected(servers.bootstrap, database, instance=instance) as broker:
        open_shop(broker)
        delete(admin, catalog_topic(instance))
        create(admin, catalog_topic(instance), 1, JOURNAL_CONFIG)
        with connected(servers.bootstrap, database, instance=instance) as another:
            for number in range(refilled):
                another.admin.create_message_type(f"type {number}")
        with pytest.raises(TopicMismatch, match=r"holds the catalog, was deleted and created again"):
            broker.admin.create_message_type("one more")
    with connected(servers.bootstrap, database, instance=instance) as broker:
        kinds = {kind.name for kind in broker.catalog.all(MessageType)} - SYSTEM_TYPES
        assert kinds == {"DEFAULT", *(f"type {number}" for number in range(refilled))}


def test_a_catalog_that_was_cut_is_named(servers: Servers, database: str, instance: str, admin: AdminClient) -> None:
    with connected(servers.bootstrap, database, instance=instance) as broker:
        open_shop(broker)
    place = TopicPartition(catalog_topic(instance), 0, 3)
    admin.delete_records([place])[place].result(DEADLINE_S)
    with (
        connected(servers.bootstrap, database, instance=instance) as broker,
        pytest.raises(TopicMismatch, match="holds the catalog, does not hold offset 0 any more"),
    ):
        broker.catalog.all(MessageType)
