"""Transactions of clients on real servers: all or nothing after any death, in call order by both paths."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from konverse.bridge.broker import Broker
from konverse.bridge.client.dialog import Dialog
from konverse.bridge.kafka.log_reader import LogReader
from konverse.bridge.owner.follower import Follower
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.errors import ConversationEnded, DialogNotFound, InvalidState
from konverse.schemas.system_messages import END_DIALOG
from tests.kit.servers import Servers
from tests.kit.shop import NOTE, ORDER, ORDER_SERVICE, ORDERING, SHOP_SERVICE, begin, connected, open_shop, until

pytestmark = pytest.mark.stack

CLIENT = """
import sys, konverse
from tests.kit.shop import ORDER, ORDERING, ORDER_SERVICE, SHOP_SERVICE
bootstrap, database = sys.argv[1:]
with konverse.connect(f"kafka://{bootstrap}", database=database, instance=database, transmit=False) as broker:
    long = [broker.begin_dialog(SHOP_SERVICE, ORDER_SERVICE, ORDERING) for _ in range(2)]
    for number in range(1_000_000):
        with broker.transaction() as t:
            for at, dialog in enumerate(long):
                t.send(dialog, ORDER, b"%d %d" % (number, at))
            once = t.begin(SHOP_SERVICE, ORDER_SERVICE, ORDERING)
            t.send(once, ORDER, b"%d 2" % number)
            t.end(once)
        broker._client.sender.settle()  # Kafka has it: it happens from now on, whenever somebody transmits
        print(number, flush=True)
"""

TRANSMITTER = """
import sys, konverse
with konverse.connect(f"kafka://{sys.argv[1]}", instance=sys.argv[2]) as broker, broker.transmitter() as reader:
    print("here", flush=True)
    for _ in reader:
        pass
"""


@contextmanager
def running(program: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A process that is killed afterwards."""
    process = subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()


def received(broker: Broker, quiet_s: float = 4.0) -> dict[bytes, list[bytes]]:
    """All messages in the order queue by conversation, until nothing comes for a while. Ends are answered."""
    bodies: dict[bytes, list[bytes]] = {}
    with broker.reader("Orders", timeout=quiet_s) as reader:
        for transaction in reader:
            with transaction:
                for message in transaction:
                    if message.type == END_DIALOG:
                        transaction.end(message.dialog)
                    else:
                        bodies.setdefault(message.dialog.conversation, []).append(message.body)
    return bodies


def delivered(broker: Broker) -> bool:
    """Whether every transaction in the transmission queue was expanded, and its outputs have arrived."""
    queue = broker.operations.transmission_queue()
    assert queue is not None
    with closing(LogReader(broker._kafka)) as log:
        ends = [log.ends(queue.topic, number)[1] for number in range(queue.partitions)]
    for number, end in enumerate(ends):
        with Follower(broker._kafka, queue, number) as following:
            state = following.catch_up()
            if state.ingest_to < end or any(stream.waiting for stream in state.streams.values()):
                return False
    return True


def refuted(broker: Broker) -> list[str]:
    """The verifier's findings in the logs of the database and of the transmission queue."""
    queues = [*broker.catalog.all(Queue), broker.operations.transmission_queue()]
    verification = broker.operations.verification([queue for queue in queues if queue is not None])
    return [finding.text for finding in verification.run()[1]]


def test_direct_and_transactional_sends_are_received_in_the_order_of_the_calls(
    servers: Servers, database: str, instance: str
) -> None:
    with connected(servers.bootstrap, database, instance=instance) as broker:
        open_shop(broker, partitions=2, home_partitions=2)
        first = begin(broker)
        first.send(ORDER, b"0")
        with broker.transaction() as t:
            second = t.begin(SHOP_SERVICE, ORDER_SERVICE, ORDERING)
            for body in (b"0", b"1"):
                t.send(second, NOTE, body)
            t.send(first, ORDER, b"1")
        for body in (b"2", b"3"):  # these wait until the transaction has arrived
            first.send(ORDER, body)
            second.send(ORDER, body)
        second.end()
        with broker.transaction() as t:
            t.send(first, ORDER, b"4")
            t.end(first)
        with pytest.raises(ConversationEnded):
            first.send(ORDER, b"never")
        broker.flush()
        bodies = received(broker)
        assert bodies == {
            first.id.bytes: [b"0", b"1", b"2", b"3", b"4"],
            second.id.bytes: [b"0", b"1", b"2", b"3"],
        }
        assert refuted(broker) == []


def test_a_block_that_an_exception_leaves_has_sent_nothing(servers: Servers, database: str, instance: str) -> None:
    with connected(servers.bootstrap, database, instance=instance) as broker:
        open_shop(broker)
        dialog = begin(broker)
        others: list[Dialog] = []
        with pytest.raises(ZeroDivisionError), broker.transaction() as t:  # noqa: PT012  # the block is what is tested
            t.send(dialog, ORDER, b"never")
            others.append(t.begin(SHOP_SERVICE, ORDER_SERVICE, ORDERING))
            t.send(others[0], ORDER, b"never")
            raise ZeroDivisionError
        with pytest.raises(DialogNotFound, match="the transaction that began it was not committed"):
            others[0].send(ORDER, b"never")
        with pytest.raises(InvalidState, match="over"):
            t.send(dialog, ORDER, b"never")
        dialog.send(ORDER, b"once")
        dialog.finish()
        with pytest.raises(ConversationEnded, match="finished"):
            dialog.send(ORDER, b"never")
        broker.flush()
        assert received(broker, 2.0) == {dialog.id.bytes: [b"once"]}


@pytest.mark.slow
def test_a_transaction_is_atomic_when_its_client_and_the_transmitter_are_killed(
    servers: Servers, database: str, instance: str
) -> None:
    with connected(servers.bootstrap, database, instance=instance, transmit=False) as broker:
        open_shop(broker, partitions=2)
        with (
            running(TRANSMITTER, servers.bootstrap, instance) as transmitter,
            running(CLIENT, servers.bootstrap, database) as client,
        ):
            assert transmitter.stdout is not None
            assert client.stdout is not None
            assert transmitter.stdout.readline() == "here\n"
            until(lambda: int(client.stdout.readline()) >= 20, "transactions")  # type: ignore[union-attr]
            transmitter.send_signal(signal.SIGKILL)
            promised, deadline = -1, time.monotonic() + 1.0
            while time.monotonic() < deadline:
                promised = int(client.stdout.readline())
            client.send_signal(signal.SIGKILL)
            promised = max(promised, *map(int, client.stdout.read().split()), 0)
        with running(TRANSMITTER, servers.bootstrap, instance) as transmitter:
            assert transmitter.stdout is not None
            assert transmitter.stdout.readline() == "here\n"
            until(lambda: delivered(broker), "the outputs of all transactions", 60.0)
            bodies = received(broker)
        numbers: dict[int, set[int]] = {}
        for arrived in bodies.values():
            words = [tuple(map(int, body.split())) for body in arrived]
            assert [number for number, _ in words] == sorted({number for number, _ in words}), "in order, each once"
            for number, at in words:
                numbers.setdefault(number, set()).add(at)
        assert all(places == {0, 1, 2} for places in numbers.values()), "a part of a transaction is missing"
        assert numbers.keys() >= set(range(promised + 1)), "one that was acknowledged is missing"
        assert refuted(broker) == []
