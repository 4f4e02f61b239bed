"""Partitions that Kafka's group keeps assigned to a dead member: a reader claims them by the journal alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from konverse.bridge.broker import Broker
from konverse.bridge.reader.reader import Reader
from konverse.schemas.identifiers import consumer_group
from tests.kit.servers import Servers
from tests.kit.shop import ORDER, begin, connected, open_shop, pumped, queue_of, until, work

pytestmark = pytest.mark.stack

SILENCE_S = 3.0


@contextmanager
def member_that_does_nothing(broker: Broker) -> Iterator[None]:
    """A member that gets partitions and does nothing: the remains of a reader that only Kafka remembers."""
    queue = queue_of(broker, "Orders")
    consumer = broker._kafka.group_consumer(consumer_group(queue.topic, queue.subscription))
    consumer.subscribe([queue.topic])
    try:
        until(lambda: (consumer.poll(0.1), len(consumer.assignment()) == queue.partitions)[1], "the group gives it all")
        yield
    finally:
        consumer.close()


def has(reader: Reader, *numbers: int) -> bool:
    work(reader)
    return reader.partitions == {*numbers}


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_a_partition_assigned_to_a_dead_member_is_claimed_by_another_reader(
    servers: Servers, database: str, protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    bodies: list[bytes] = []

    def received(reader: Reader, count: int) -> bool:
        for transaction in reader:
            with transaction:
                bodies.extend(message.body for message in transaction)
        return len(bodies) >= count

    with connected(servers.bootstrap, database, silence_timeout_s=SILENCE_S, group_protocol=protocol) as broker:
        open_shop(broker, partitions=2)
        dialogs = [begin(broker) for _ in range(8)]
        with ExitStack() as exits:
            dead = exits.enter_context(ExitStack())
            dead.enter_context(member_that_does_nothing(broker))
            reader = exits.enter_context(broker.reader("Orders", timeout=0.2))
            for dialog in dialogs:
                dialog.send(ORDER, b"1")
            until(lambda: received(reader, 8), "the reader claims what nobody looks after")
            assert not reader._assignment._assigned, "the group gave it nothing"
            assert "partition 0 of queue 'Orders' has had no live owner" in caplog.text
            for dialog in dialogs:
                dialog.send(ORDER, b"2")
            until(lambda: received(reader, 16), "it reads on")
            dead.close()
            until(lambda: received(reader, 0) and reader._assignment._assigned == {0, 1}, "the group gives them to us")
            for dialog in dialogs:
                dialog.send(ORDER, b"3")
            until(lambda: received(reader, 24), "the group's consumer reads on")
            assert not reader._assignment._orphans.numbers
    assert sorted(bodies) == [b"1"] * 8 + [b"2"] * 8 + [b"3"] * 8


def test_a_reader_of_an_orphan_yields_to_a_reader_with_explicit_partitions(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database, silence_timeout_s=SILENCE_S) as broker:
        open_shop(broker)
        with member_that_does_nothing(broker), broker.reader("Orders", timeout=0.2) as reader:
            until(lambda: has(reader, 0), "the reader claims what nobody looks after")
            with broker.reader("Orders", partitions=[0]) as named, pumped(named):
                until(lambda: has(reader), "it gives way")
                for _ in range(3 * int(SILENCE_S / 0.2)):
                    assert has(reader)
                assert has(named, 0)
            until(lambda: has(reader, 0), "the other one has left")


def test_owners_that_are_alive_and_have_nothing_to_do_keep_their_partitions(servers: Servers, database: str) -> None:
    with (
        connected(servers.bootstrap, database, silence_timeout_s=SILENCE_S) as broker,
        connected(servers.bootstrap, database, silence_timeout_s=SILENCE_S) as other,
    ):
        open_shop(broker, partitions=2)
        with broker.reader("Orders", timeout=0.2) as first, other.reader("Orders") as second, pumped(second):
            until(lambda: any(has(first, number) for number in (0, 1)) and second.partitions, "each has its share")
            owners = [*first._driver.owners.values(), *second._driver.owners.values()]
            epochs = [owner.fold.head.epoch for owner in owners]
            for _ in range(4 * int(SILENCE_S / 0.2)):
                work(first)
            assert [*first._driver.owners.values(), *second._driver.owners.values()] == owners
            assert [owner.fold.head.epoch for owner in owners] == epochs
