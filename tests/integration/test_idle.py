"""The time until a reader with a `timeout` reports an idle queue, and ALTER QUEUE at an idle reader."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from konverse.bridge.broker import Broker
from konverse.schemas.errors import QueueDisabled
from tests.kit.servers import Servers
from tests.kit.shop import ORDER, begin, connected, fill, open_shop, receive, until

pytestmark = pytest.mark.stack

MORE_S = 4.0
"""Most delay beyond a timeout on a busy machine; otherwise it is 0.1 s."""


@pytest.fixture
def broker(servers: Servers, database: str) -> Iterator[Broker]:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        yield broker


@pytest.mark.parametrize("timeout", [0, 0.1, 1])
def test_a_reader_of_an_idle_queue_ends_after_its_timeout(broker: Broker, timeout: float) -> None:
    with broker.reader("Orders", timeout=timeout) as reader:
        for _ in range(2):  # a new reader, and one at rest
            began = time.monotonic()
            assert list(reader) == []
            assert timeout <= time.monotonic() - began < timeout + MORE_S


def test_a_reader_without_a_partition_ends_after_its_timeout(broker: Broker) -> None:
    with broker.reader("Orders", timeout=1) as owner:
        owner.wait_for_partitions(1)
        with broker.reader("Orders", timeout=1) as another:
            began = time.monotonic()
            assert list(another) == []
            assert 1 <= time.monotonic() - began < 1 + MORE_S


@pytest.mark.parametrize("timeout", [0, 0.1])
def test_a_reader_with_a_short_timeout_receives_waiting_messages(broker: Broker, timeout: float) -> None:
    dialog = begin(broker)
    for number in range(3):
        dialog.send(ORDER, b"%d" % number)
    broker.flush()
    assert [message.body for message in receive(broker, "Orders", 3, timeout=timeout)] == [b"0", b"1", b"2"]


def test_078_an_idle_reader_sees_alter_queue_of_its_broker_at_once(broker: Broker) -> None:
    """Also with waiting messages, in both directions, and several times."""
    dialog = begin(broker)
    dialog.send(ORDER, b"0")
    broker.flush()
    with broker.reader("Orders") as reader:
        for number in range(1, 4):
            with next(reader) as transaction:
                assert [message.body for message in transaction] == [b"%d" % (number - 1)]
            reader.settle()
            dialog.send(ORDER, b"%d" % number)
            broker.flush()
            fill(reader, 1)
            broker.admin.alter_queue("Orders", status=False)
            with pytest.raises(QueueDisabled) as refused:
                next(reader)
            assert refused.value.number == 9617
            with pytest.raises(QueueDisabled):
                reader.receive(dialog=dialog.id, timeout=0)
            broker.admin.alter_queue("Orders", status=True)


def test_078_an_idle_reader_sees_alter_queue_of_another_process_soon(
    servers: Servers, database: str, broker: Broker
) -> None:
    dialog = begin(broker)
    dialog.send(ORDER, b"0")
    broker.flush()
    with broker.reader("Orders") as reader, connected(servers.bootstrap, database) as administrator:
        fill(reader, 1)
        administrator.admin.alter_queue("Orders", status=False)
        version = administrator.catalog.version
        until(lambda: broker.catalog.version >= version, "the catalog is read again", 5)
        with pytest.raises(QueueDisabled):
            next(reader)
