"""Handlers that fail repeatedly on a message: its conversation is suspended, and no other one is harmed."""

from __future__ import annotations

import logging
from pathlib import Path
from uuid import UUID

import pytest

from konverse.bridge.broker import Broker
from konverse.bridge.reader.reader import Reader
from konverse.dialog.owner.view import ViewRow
from konverse.dialog.transaction.received import Message
from konverse.dialog.transaction.transaction import Transaction
from konverse.schemas.errors import DialogNotFound, InvalidState
from tests.kit.oracle import executions, prove_exactly_once
from tests.kit.servers import Servers
from tests.kit.shop import ORDER, RECEIPT, answer_once, begin, connected, open_shop, queue_of, send_orders, until
from tests.kit.workers import KILLED, Job, Worker, read_diary

pytestmark = pytest.mark.stack

POISONS = ("poison 1", "poison 2")
DEATHS_MAX = 1 + 6 * len(POISONS)
"""Before the first death nothing is known. Alone, each message kills five times; with two handlers once more before."""


def send_poison(broker: Broker, *bodies: str) -> dict[bytes, list[bytes]]:
    """Send a conversation with these messages."""
    dialog = begin(broker)
    for body in bodies:
        dialog.send(ORDER, body.encode())
    broker.flush()
    return {dialog.id.bytes: [body.encode() for body in bodies]}


def supervise(job: Job) -> int:
    """Restart a worker whenever it dies, until one has nothing to do. Returns the number of deaths."""
    for deaths in range(DEATHS_MAX + 1):
        with Worker(job) as worker:
            code = worker.wait()
            if code == 0:
                return deaths
            assert code == KILLED, worker.errors
    raise AssertionError(f"{DEATHS_MAX + 1} workers died")


def rows(broker: Broker) -> dict[UUID, ViewRow]:
    return {row.conversation: row for row in broker.view("Orders").rows(0)}


def test_a_message_that_kills_every_worker_is_suspended_and_the_others_are_handled_once(
    servers: Servers, database: str, tmp_path: Path
) -> None:
    diary, mended = tmp_path / "diary", tmp_path / "mended"
    job = Job(
        servers.bootstrap,
        database,
        str(diary),
        partitions=[0],
        batch=5,
        idle_s=1.5,
        settings={"redis": servers.redis_url},
        exit_on=POISONS,
        release=str(mended),
    )
    with connected(servers.bootstrap, database, redis=servers.redis_url) as broker:
        open_shop(broker)
        sent = send_orders(broker, dialogs=10, messages=30)
        poisoned = send_poison(broker, "before", POISONS[0], "behind") | send_poison(broker, POISONS[1], "behind")
        innocent = {str(UUID(bytes=conversation)) for conversation in sent}
        sent |= poisoned | send_orders(broker, dialogs=3, messages=6)
        assert supervise(job) >= 5

        guilty = {UUID(bytes=conversation) for conversation in poisoned}
        handled = {(entry["conversation"]) for entry in read_diary(diary) if entry["event"] == "handled"}
        assert innocent <= handled
        until(lambda: all(rows(broker)[one].suspended for one in guilty), "the view shows who is suspended")
        shown = rows(broker)
        assert {one: shown[one].attempts for one in guilty} == dict.fromkeys(guilty, 5)
        assert {one: shown[one].unread for one in guilty} == {
            UUID(bytes=conversation): len(bodies) for conversation, bodies in poisoned.items()
        }
        assert not [row for row in shown.values() if row.suspended and row.conversation not in guilty]

        mended.touch()
        with broker.reader("Orders", partitions=(0,), timeout=1.5) as reader:
            reader.wait_for_partitions(1)
            assert {endpoint.id for endpoint in reader.operations.suspended} == guilty
            for guilty_one in guilty:
                reader.operations.resume(guilty_one)
            assert answer_once(reader) == 5
        proof = prove_exactly_once(servers.bootstrap, queue_of(broker, "Orders"), queue_of(broker, "Shop"), sent)
    assert proof.messages == proof.replies == 41
    for (conversation, sequence), runs in executions(read_diary(diary)).items():
        assert len({run["id"] for run in runs}) == 1, f"message {sequence} of {conversation} changed its id"


class Shop:
    """A handler that fails on some bodies and records the handled ones."""

    def __init__(self, *failing: bytes) -> None:
        self.failing = failing
        self.handled: list[bytes] = []

    def __call__(self, transaction: Transaction) -> None:
        bodies = [self._handle(transaction, message) for message in transaction]
        self.handled += bodies

    def _handle(self, transaction: Transaction, message: Message) -> bytes:
        if message.body in self.failing:
            raise RuntimeError(message.body.decode())
        transaction.send(message.dialog, RECEIPT, message.body)
        return message.body


def reader_of(broker: Broker) -> Reader:
    reader = broker.reader("Orders", partitions=(0,), timeout=1.0)
    reader.wait_for_partitions(1)
    return reader


def test_a_handler_that_raises_five_times_suspends_its_conversation_alone_behaviours_207_and_212(
    servers: Servers, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        (guilty,) = map(UUID, (one.hex() for one in send_poison(broker, "poison", "behind")))
        send_poison(broker, "good", "better")
        shop = Shop(b"poison")
        with caplog.at_level(logging.ERROR), reader_of(broker) as reader:
            reader.run(shop)
            assert sorted(shop.handled) == [b"better", b"good"]
            assert [(endpoint.id, endpoint.attempts) for endpoint in reader.operations.suspended] == [(guilty, 5)]
        said = [record.getMessage() for record in caplog.records if "is suspended after" in record.getMessage()]
        assert len(said) == 1
        assert f"conversation {guilty} of " in said[0]

        send_poison(broker, "later")
        with reader_of(broker) as reader:  # it is suspended for the next owner too
            reader.run(shop)
            assert shop.handled[2:] == [b"later"]
            shop.failing = ()
            reader.operations.resume(guilty)
            reader.run(shop)
            assert shop.handled[3:] == [b"poison", b"behind"], "its messages were still there, in order"
            assert reader.operations.suspended == []


def test_an_error_of_the_peer_cannot_be_skipped(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        dialog = begin(broker)
        dialog.send(ORDER, b"poison")
        broker.flush()
        with reader_of(broker) as reader, broker.reader("Shop", timeout=0.5) as home:
            shop = Shop(b"poison")
            reader.run(shop)
            (endpoint,) = reader.operations.suspended
            dialog.end(error=17, description="enough")
            broker.flush()
            until(lambda: home.run(shop) is reader.run(shop) and endpoint.ends_next, "the Error of the session")
            with pytest.raises(InvalidState, match="is its EndDialog or Error, which cannot be skipped"):
                reader.operations.skip(endpoint.id)


def test_an_operator_skips_a_message_or_ends_its_conversation(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        skipped, ended = (next(map(UUID, (c.hex() for c in send_poison(broker, "poison", "behind")))) for _ in range(2))
        shop = Shop(b"poison")
        with reader_of(broker) as reader:
            reader.run(shop)
            assert {endpoint.id for endpoint in reader.operations.suspended} == {skipped, ended}
            reader.operations.skip(skipped)
            reader.operations.end(ended, error=4711, description="poison")
            reader.settle()
            reader.run(shop)
            assert shop.handled == [b"behind"]
            assert reader.operations.suspended == [], "what was ended waits for its peer alone"
            with pytest.raises(InvalidState, match="has ended here already"):
                reader.operations.end(ended)
            with pytest.raises(InvalidState, match="has no waiting message"):
                reader.operations.skip(skipped)
            with pytest.raises(InvalidState, match="is not suspended"):
                reader.operations.resume(skipped)
            with pytest.raises(DialogNotFound, match="is in no partition of this reader"):
                reader.operations.resume(UUID(int=1))
