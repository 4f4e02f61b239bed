"""Topic settings by which Kafka really deletes records: retention and compaction at work, and mended afterwards."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from konverse.bridge.broker import Broker
from konverse.bridge.owner import log_starts as beginnings
from konverse.deploy import LocalStack, StackSettings
from konverse.schemas.errors import PartitionHalted, StackError, TopicMismatch
from konverse.schemas.identifiers import journal_topic
from konverse.schemas.system_messages import ERROR, read_error
from tests.kit.oracle import read_raw, snapshots_of, verify
from tests.kit.servers import missing
from tests.kit.shop import (
    DEADLINE_S,
    ORDER,
    begin,
    connected,
    drain,
    fill,
    open_shop,
    queue_of,
    receive,
    sent,
    until,
    work,
)
from tests.kit.topics import set_config

pytestmark = [pytest.mark.stack, pytest.mark.nightly, pytest.mark.xdist_group("deleting")]

FIVE = [b"%d" % number for number in range(5)]


@pytest.fixture(scope="module")
def eager() -> Iterator[str]:
    """Bootstrap address of a broker that deletes expired and compacted records at once."""
    names = ("log.retention.check.interval.ms", "log.initial.task.delay.ms", "log.cleaner.backoff.ms")
    settings = StackSettings(redis=False, broker_settings=dict.fromkeys(names, "200"))
    with ExitStack() as exits:
        try:
            stack = exits.enter_context(LocalStack.start(settings))
        except StackError as error:
            missing(error)
        yield stack.bootstrap


@pytest.fixture
def broker(eager: str, database: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    monkeypatch.setattr(beginnings, "WATCH_EVERY_S", 0.2)
    with connected(eager, database) as broker:
        open_shop(broker)
        yield broker


def offsets(bootstrap: str, topic: str) -> set[int]:
    return {record.offset for record in read_raw(bootstrap, topic, 0)}


def expire(broker: Broker, topic: str) -> None:
    """Let Kafka delete all records of a topic by their age. A new reader refuses the topic until it is mended."""
    bootstrap = broker.settings.bootstrap
    admin = AdminClient({"bootstrap.servers": bootstrap})
    set_config(admin, topic, "retention.ms", "1")
    until(lambda: not offsets(bootstrap, topic), f"the records of {topic} are expired")
    with pytest.raises(TopicMismatch, match=f"topic {topic} has retention.ms=1; .*--add-config retention.ms=-1"):
        broker.reader("Orders")
    set_config(admin, topic, "retention.ms", "-1")


def compact(broker: Broker, topic: str) -> None:
    """Let Kafka compact a topic, and mend it."""
    bootstrap = broker.settings.bootstrap
    admin = AdminClient({"bootstrap.servers": bootstrap})
    before = offsets(bootstrap, topic)
    for name, value in {"segment.ms": "100", "min.cleanable.dirty.ratio": "0.01", "cleanup.policy": "compact"}.items():
        set_config(admin, topic, name, value)

    def compacted() -> bool:
        with Producer({"bootstrap.servers": bootstrap}) as stranger:  # only full segments are compacted
            stranger.produce(topic, b"a stranger's", b"key", 0)
            assert stranger.flush(DEADLINE_S) == 0
        return not before <= offsets(bootstrap, topic)

    until(compacted, f"{topic} is compacted")
    set_config(admin, topic, "cleanup.policy", "delete")


def findings(broker: Broker) -> list[str]:
    queues = [queue_of(broker, "Orders"), queue_of(broker, "Shop")]
    return [finding.text for finding in verify(broker.settings.bootstrap, queues)]


@contextmanager
def reading(broker: Broker) -> Iterator[list[bytes]]:
    """The bodies that a reader in a thread has received and committed."""
    received: list[bytes] = []
    with broker.reader("Orders") as reader:

        def work() -> None:
            for transaction in reader:
                with transaction:
                    received.extend(message.body for message in transaction)

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield received
            reader.settle(DEADLINE_S)
        finally:
            reader.close()
            thread.join(DEADLINE_S)


def test_messages_that_expired_unread_are_named_and_their_sender_gets_an_error_when_it_sends_on(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    dialog = sent(broker, *FIVE)
    expire(broker, queue_of(broker, "Orders").topic)
    assert drain(broker, "Orders") == []
    assert "LOST: the records 0 to 4 of" in caplog.text
    (found,) = findings(broker)
    assert "the records 0 to 4 were deleted before they were received" in found
    assert drain(broker, "Shop") == [], "nobody knows of a conversation that was deleted whole"
    dialog.send(ORDER, b"further")
    dialog.flush()
    assert drain(broker, "Orders") == []
    (told,) = receive(broker, "Shop", 1)
    assert (told.type, told.dialog.id, read_error(told.body)[0]) == (ERROR, dialog.id, -9719)
    assert [bounced.body for bounced in dialog.bounced(timeout=DEADLINE_S)] == [b"further"]


def test_messages_that_expired_while_they_waited_are_given_up_and_both_sides_get_an_error(broker: Broker) -> None:
    dialog = sent(broker, *FIVE)
    with broker.reader("Orders", timeout=1) as reader:
        fill(reader, 5)
        reader.settle()
    expire(broker, queue_of(broker, "Orders").topic)
    with pytest.raises(PartitionHalted, match="konverse accept-loss Orders 0"):
        drain(broker, "Orders")
    broker.operations.accept_loss("Orders", 0)
    (told,) = receive(broker, "Shop", 1)
    assert (told.type, told.dialog.id, read_error(told.body)[0]) == (ERROR, dialog.id, -9719)


def test_a_running_reader_saves_messages_that_expire_while_they_wait(broker: Broker) -> None:
    sent(broker, *FIVE)
    with broker.reader("Orders", timeout=1) as reader:
        fill(reader, 5)
        reader.settle()
        expire(broker, queue_of(broker, "Orders").topic)

        def saved() -> bool:
            work(reader)
            return bool(snapshots_of(broker.settings.bootstrap, queue_of(broker, "Orders")))

        until(saved, "a snapshot has the messages")
    assert [message.body for message in receive(broker, "Orders", 5)] == FIVE
    sent(broker, b"new")
    assert [message.body for message in receive(broker, "Orders", 1)] == [b"new"]


def test_a_running_reader_goes_on_when_its_journal_expires_and_the_next_one_names_the_remedy(broker: Broker) -> None:
    with reading(broker) as received:
        dialog = sent(broker, *FIVE)
        until(lambda: received == FIVE, "all are received")
        expire(broker, journal_topic(queue_of(broker, "Orders").topic))
        dialog.send(ORDER, b"further")
        until(lambda: received == [*FIVE, b"further"], "each is received once")
    with pytest.raises(PartitionHalted, match="drop the queue with force=True, create it again"):
        drain(broker, "Orders")
    assert any("the journal begins at" in text for text in findings(broker))


@pytest.mark.parametrize("log", [lambda data: data, journal_topic], ids=["data", "journal"])
def test_a_running_reader_and_a_living_sender_go_on_when_a_log_is_compacted_and_verify_refutes_it(
    broker: Broker, log: Callable[[str], str]
) -> None:
    with reading(broker) as received:
        dialog = begin(broker)
        for body in FIVE:
            dialog.send(ORDER, body)
        dialog.flush()
        until(lambda: received == FIVE, "all are received")
        compact(broker, log(queue_of(broker, "Orders").topic))
        dialog.send(ORDER, b"further")
        dialog.flush()
        until(lambda: received == [*FIVE, b"further"], "each is received once")
    assert any("records were deleted there, as `cleanup.policy=compact` does" in text for text in findings(broker))
