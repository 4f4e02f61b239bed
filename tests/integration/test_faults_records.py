"""Foreign records in the data log, in the journal and in the catalog."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Iterator
from dataclasses import replace
from uuid import uuid4

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from konverse.bridge.broker import Broker
from konverse.bridge.catalog.objects import SYSTEM_TYPES
from konverse.dialog.state.partition import Statistics
from konverse.schemas.catalog.objects import MessageType, Queue
from konverse.schemas.errors import AlreadyExists
from konverse.schemas.identifiers import catalog_topic, journal_topic, session_writer, snapshot_topic
from konverse.schemas.wire.envelope import HEADER, decode, encode_envelope
from konverse.schemas.wire.records import FIRST
from tests.kit.oracle import prove_exactly_once, read_queue, read_raw
from tests.kit.servers import Servers
from tests.kit.shop import (
    DEADLINE_S,
    ORDER,
    answer,
    begin,
    connected,
    fill,
    open_shop,
    pumped,
    queue_of,
    send_orders,
    until,
    work,
)

pytestmark = pytest.mark.stack

Header = list[tuple[str, str | bytes | None]]


@pytest.fixture
def producer(servers: Servers) -> Iterator[Producer]:
    """A plain producer without konverse."""
    with Producer({"bootstrap.servers": servers.bootstrap}) as plain:
        yield plain


def write(producer: Producer, queue: Queue, headers: Header, body: bytes = b"not an order") -> None:
    producer.produce(queue.topic, body, b"some key", 0, headers=headers)


def statistics_after(broker: Broker, count: int) -> tuple[Statistics, int]:
    """Answer `count` orders. Returns the owner's statistics and its position in the data log."""
    with broker.reader("Orders", timeout=2) as reader:
        answered = answer(reader, lambda message: message.dialog.conversation + message.body)
        (owner,) = reader.owners
        assert answered == count
        return owner.fold.state.statistics, owner.fold.state.ingest_to


def test_records_without_a_header_of_ours_are_ignored_and_counted(
    servers: Servers, database: str, producer: Producer
) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        queue = queue_of(broker, "Orders")
        sent: dict[bytes, list[bytes]] = {}
        plain: list[Header] = [[], [("trace", b"x")], [(HEADER, None)], [(HEADER.upper(), b"x")], [("", b"")]]
        for headers in plain:
            write(producer, queue, headers)
            producer.produce(queue.topic, None, None, 0)  # a tombstone without a key
            producer.flush()
            sent |= send_orders(broker, dialogs=1, messages=2)
        statistics, _ = statistics_after(broker, 10)
        assert (statistics.accepted, statistics.foreign, statistics.malformed) == (10, 10, 0)
        prove_exactly_once(servers.bootstrap, queue, queue_of(broker, "Shop"), sent)


def test_records_with_random_bytes_for_a_header_are_ignored_and_counted(
    servers: Servers, database: str, producer: Producer
) -> None:
    random_bytes = random.Random(20_261_121).randbytes
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        queue = queue_of(broker, "Orders")
        sent = send_orders(broker, dialogs=3, messages=6)
        honest = [dict(record.headers)[HEADER] or b"" for record in read_raw(servers.bootstrap, queue.topic, 0)]
        first = next(header for header in honest if decode(header).flags & FIRST)
        hostile = [random_bytes(size) for size in range(200)]
        hostile += [first[:size] for size in range(len(first))]
        hostile += [first + b"\0", b"\xff" * 4_096, b"\0" * 5_000, first[:39] + b"\xff" * 60]
        for header in hostile:
            write(producer, queue, [(HEADER, header)])
        producer.flush()
        sent |= send_orders(broker, dialogs=3, messages=6)
        statistics, ingested = statistics_after(broker, 12)
        assert statistics.accepted == 12
        assert statistics.malformed + statistics.foreign == len(hostile)
        assert statistics.malformed > 200
        assert ingested == 12 + len(hostile)
        prove_exactly_once(servers.bootstrap, queue, queue_of(broker, "Shop"), sent)


def test_records_for_another_incarnation_copies_and_records_out_of_turn_change_nothing(
    servers: Servers, database: str, producer: Producer
) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        queue = queue_of(broker, "Orders")
        sent = send_orders(broker, dialogs=2, messages=8)
        records = read_raw(servers.bootstrap, queue.topic, 0)
        envelopes = [decode(dict(record.headers)[HEADER] or b"") for record in records]
        for envelope, record in zip(envelopes, records, strict=True):
            write(producer, queue, [(HEADER, encode_envelope(envelope))], record.value)  # a copy
            for forged in (
                envelope._replace(tag=b"else"),
                envelope._replace(tag=b"else", counter=len(envelopes)),
                envelope._replace(counter=envelope.counter + 1_000),
                envelope._replace(writer=b"w" * 16, counter=5),
            ):
                write(producer, queue, [(HEADER, encode_envelope(forged))])
        producer.flush()
        more = send_orders(broker, dialogs=2, messages=8)
        statistics, _ = statistics_after(broker, 16)
        assert statistics == Statistics(accepted=16, foreign=16, duplicates=8, gaps=16)
        prove_exactly_once(servers.bootstrap, queue, queue_of(broker, "Shop"), sent | more)


def test_an_owner_writes_only_to_data_topics_of_queues_even_when_a_record_names_another_topic(
    servers: Servers, database: str, producer: Producer, caplog: pytest.LogCaptureFixture
) -> None:
    """A message for an unknown conversation goes back to the home that it names, with its body (109)."""
    payments = f"{database}-payments"
    admin = AdminClient({"bootstrap.servers": servers.bootstrap})
    admin.create_topics([NewTopic(payments, 1)])[payments].result()
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        queue = queue_of(broker, "Orders")
        sent = send_orders(broker, dialogs=1, messages=2)
        honest = [decode(dict(one.headers)[HEADER] or b"") for one in read_raw(servers.bootstrap, queue.topic, 0)]
        message, own = next((one, home) for one in honest if (home := one.suffix.home) is not None)
        ours = [journal_topic(queue.topic), snapshot_topic(queue.topic), catalog_topic(broker.settings.instance)]
        ends = {topic: len(read_raw(servers.bootstrap, topic, 0)) for topic in ours}
        for number, name in enumerate((*ours, payments, f"{database}-nobody")):
            home = replace(own, topic=name)
            forged = message._replace(
                writer=session_writer(round(time.time() * 1_000), number),
                counter=0,
                conversation=uuid4().bytes,
                suffix=message.suffix._replace(home=home),
            )
            write(producer, queue, [(HEADER, encode_envelope(forged))], b"a record of the stranger's choice")
        producer.flush()
        started = time.monotonic()
        statistics, _ = statistics_after(broker, 2)
        assert time.monotonic() - started < DEADLINE_S / 2, "the partition was not done with what goes nowhere"
        assert (statistics.accepted, statistics.malformed) == (2, 3)
        assert [line for line in caplog.messages if "has no queue there" in line]
        assert read_raw(servers.bootstrap, payments, 0) == []
        for topic in ours:
            added = read_raw(servers.bootstrap, topic, 0)[ends[topic] :]
            assert [one for one in added if HEADER in dict(one.headers)] == []
        prove_exactly_once(servers.bootstrap, queue, queue_of(broker, "Shop"), sent)


def test_transactions_of_a_plain_producer_in_the_same_log_move_nothing(servers: Servers, database: str) -> None:
    settings = {"bootstrap.servers": servers.bootstrap, "transactional.id": database}
    with connected(servers.bootstrap, database) as broker, Producer(settings) as plain:
        open_shop(broker)
        queue = queue_of(broker, "Orders")
        plain.init_transactions(DEADLINE_S)
        sent: dict[bytes, list[bytes]] = {}
        for number in range(6):
            plain.begin_transaction()
            plain.produce(queue.topic, b"theirs", b"k", 0)
            plain.flush()
            sent |= send_orders(broker, dialogs=1, messages=2)
            if number % 2:
                plain.commit_transaction(DEADLINE_S)
            else:
                plain.abort_transaction(DEADLINE_S)
        statistics, _ = statistics_after(broker, 12)
        assert (statistics.accepted, statistics.foreign) == (12, 3)
        statistics, _ = statistics_after(broker, 0)  # recovered from a log that ends with a marker
        assert (statistics.accepted, statistics.foreign) == (12, 3)
        prove_exactly_once(servers.bootstrap, queue, queue_of(broker, "Shop"), sent)


def test_an_open_transaction_that_keeps_the_next_owner_from_its_journal_is_named_and_loses_nothing(
    servers: Servers, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {"bootstrap.servers": servers.bootstrap, "transactional.id": database}
    with connected(servers.bootstrap, database, connect_timeout_s=2) as broker, Producer(settings) as stranger:
        open_shop(broker)
        topic = journal_topic(queue_of(broker, "Orders").topic)
        sent = send_orders(broker, dialogs=1, messages=2)
        statistics_after(broker, 2)
        stranger.init_transactions(DEADLINE_S)
        stranger.begin_transaction()
        stranger.produce(topic, b"a stranger's", partition=0)
        stranger.flush(DEADLINE_S)
        sent |= send_orders(broker, dialogs=1, messages=1)
        with broker.reader("Orders") as reader:

            def is_named() -> bool:
                work(reader)
                return f"an open transaction of a foreign producer holds up {topic}/0" in caplog.text

            until(is_named, "a warning names the transaction")
            assert not reader.partitions, "an owner leads only behind its own CLAIM"
        stranger.abort_transaction(DEADLINE_S)
        statistics_after(broker, 1)
        prove_exactly_once(servers.bootstrap, queue_of(broker, "Orders"), queue_of(broker, "Shop"), sent)


@pytest.mark.parametrize("while_it_is_read", [False, True])
def test_garbage_in_the_journal_raises_an_alarm_and_changes_nothing(
    servers: Servers,
    database: str,
    producer: Producer,
    caplog: pytest.LogCaptureFixture,
    while_it_is_read: bool,
) -> None:
    def alarms() -> list[str]:
        return [
            r.getMessage() for r in caplog.records if r.levelno == logging.ERROR and "undecodable" in r.getMessage()
        ]

    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        queue = queue_of(broker, "Orders")
        journal = journal_topic(queue.topic)
        sent = send_orders(broker, dialogs=2, messages=4)
        reader = broker.reader("Orders", timeout=DEADLINE_S)
        fill(reader, 4)
        commits = [record.value for record in read_raw(servers.bootstrap, journal, 0)]
        if not while_it_is_read:
            reader.close()
        for garbage in (b"", b"\0", b"garbage", commits[0] + b"\0", commits[0][:-1], b"\xff" * 100):
            producer.produce(journal, garbage, None, 0)
        for copy in commits:  # decodable and void: none of them counts a second time
            producer.produce(journal, copy, None, 0)
        producer.flush()
        if not while_it_is_read:
            reader = broker.reader("Orders", timeout=DEADLINE_S)
            fill(reader, 4)
        for _ in range(2):
            with next(reader) as transaction:
                for message in transaction:
                    transaction.send(message.dialog, "//sales/Receipt", b"re " + message.body)
        reader.settle(DEADLINE_S)
        reader.close()
        (alarm,) = alarms()  # one line for all of them
        assert f"write to topic {journal}, and revoke that right" in alarm
        assert while_it_is_read or "6 records are undecodable" in alarm
        assert [history.undecodable for history in read_queue(servers.bootstrap, queue)] == [6]
        answered = {c: [b"re " + body for body in bodies] for c, bodies in sent.items()}
        (shop,) = read_queue(servers.bootstrap, queue_of(broker, "Shop"))
        assert {c: [body for _, _, body in side.accepted] for (c, _), side in shop.sides.items()} == answered


def test_garbage_in_the_catalog_changes_nothing(servers: Servers, database: str, producer: Producer) -> None:
    instance = f"i{database}"
    with connected(servers.bootstrap, database, instance=instance) as broker:
        broker.admin.create_message_type("first")
        topic = catalog_topic(instance)
        _, change = [record.value for record in read_raw(servers.bootstrap, topic, 0)]
        for garbage in (b"", b"\0", b"garbage", change, change[:-1], change + b"\0"):
            producer.produce(topic, garbage, None, 0)
        producer.flush()
        with pytest.raises(AlreadyExists):
            broker.admin.create_message_type("first")
        broker.admin.create_message_type("second")
    with connected(servers.bootstrap, database, instance=instance) as broker:
        kinds = {kind.name for kind in broker.catalog.all(MessageType)} - SYSTEM_TYPES
        assert kinds == {"DEFAULT", "first", "second"}


def test_a_flood_of_foreign_records_is_passed_by_in_good_time(
    servers: Servers, database: str, producer: Producer
) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        queue = queue_of(broker, "Orders")
        for number in range(50_000):
            producer.produce(queue.topic, b"%d" % number, None, 0)
            if not number % 1_000:
                producer.poll(0)
        producer.flush()
        started = time.monotonic()
        begin(broker).send(ORDER, b"behind it")
        with broker.reader("Orders") as reader, pumped(reader):
            until(lambda: sum(o.fold.state.unread for o in reader.owners) == 1, "the order behind the flood")
            assert reader.owners[0].fold.state.statistics.foreign == 50_000
        print(f"50,000 foreign records passed by in {time.monotonic() - started:.1f} s")
