"""A process adopts the conversations of a dead one, on real servers (protocol.md section 7.12)."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from confluent_kafka import Producer

from konverse.bridge.broker import Broker
from konverse.bridge.client.begin import BeginClauses
from konverse.bridge.kafka.log_reader import LogReader
from konverse.bridge.owner.follower import Follower
from konverse.bridge.reader.reader import Reader
from konverse.dialog.session.adoption import FoundState
from konverse.dialog.state.partition import Partition
from konverse.schemas.errors import BadInput, ConversationEnded, OutcomeUnknown
from konverse.schemas.identifiers import Role
from konverse.schemas.wire.envelope import HEADER, decode, encode_envelope
from konverse.schemas.wire.records import BounceReason, Envelope, Kind
from tests.kit.oracle import read_raw, verify
from tests.kit.servers import Servers
from tests.kit.shop import (
    NOTE,
    ORDER,
    ORDER_SERVICE,
    ORDERING,
    SHOP_SERVICE,
    begin,
    connected,
    end_at_target,
    open_shop,
    pumped,
    queue_of,
    until,
)
from tests.kit.workers import Job, Worker

pytestmark = pytest.mark.stack

DIALOGS = 6
MANY = 1_000_000
FURTHER = 5


def wanted(*conversations: UUID, returning: bool = False) -> list[BeginClauses]:
    return [
        BeginClauses(SHOP_SERVICE, ORDER_SERVICE, ORDERING, conversation_id=one, returning=returning)
        for one in conversations
    ]


@contextmanager
def owned(shop: Broker) -> Iterator[Reader]:
    """Readers own both queues and consume nothing; homes have heard all records. Yields the reader of the orders."""
    with shop.reader("Orders") as orders, shop.reader("Shop") as home, pumped(orders, home):
        orders.wait_for_partitions(orders.queue.partitions)
        home.wait_for_partitions(home.queue.partitions)
        for number in range(home.queue.partitions):
            with (
                closing(LogReader(shop._kafka)) as log,
                closing(Follower(shop._kafka, home.queue, number)) as following,
            ):
                _, end = log.ends(home.queue.topic, number)
                until(lambda: following.catch_up().ingest_to >= end, "the home has heard all")  # noqa: B023
        yield orders


def received(orders: Reader, conversation: UUID) -> list[bytes]:
    """Bodies that the target has accepted. No handler consumes them."""

    def bodies(state: Partition) -> list[bytes]:
        endpoint = state.endpoint(Role.TARGET, conversation.bytes)
        return [] if endpoint is None else [entry[2] or b"" for entry in endpoint.queue]

    return [body for number in orders.partitions for body in orders.ask(number, bodies) or ()]


def until_last(orders: Reader, conversation: UUID, body: bytes) -> list[bytes]:
    """All accepted bodies, once the last has come."""
    until(lambda: received(orders, conversation)[-1:] == [body], f"{body!r} is received")
    return received(orders, conversation)


def messages_of(servers: Servers, shop: Broker) -> list[Envelope]:
    """The messages in the log of the order service's only partition."""
    records = read_raw(servers.bootstrap, queue_of(shop, "Orders").topic, 0)
    envelopes = [decode(dict(record.headers)[HEADER] or b"") for record in records]
    return [envelope for envelope in envelopes if envelope.kind is Kind.MESSAGE]


def test_the_successor_of_a_killed_sender_continues_without_loss_duplicates_or_reordering(
    servers: Servers, database: str, tmp_path: Path
) -> None:
    log = str(tmp_path / "diary")
    job = Job(servers.bootstrap, database, log, work="send", count=MANY, dialogs=DIALOGS, returning=True)
    with connected(servers.bootstrap, database) as shop, connected(servers.bootstrap, database) as successor:
        open_shop(shop, partitions=2, home_partitions=2)
        with Worker(job) as sender:
            sender.wait_for("acknowledged", 200)
            sender.send_signal(signal.SIGKILL)
            assert sender.wait() == -signal.SIGKILL
        counts = Counter(event["conversation"] for event in sender.said("acknowledged"))
        numbers = {UUID(event["conversation"]): event["dialog"] for event in sender.said("sends")}
        assert len(numbers) == DIALOGS
        with owned(shop) as orders:
            found = successor._client.adopt(wanted(*numbers, returning=True))
            assert {one.standing for one in found} == {FoundState.OPEN}
            for dialog, _ in found:
                for message in dialog.bounced():
                    message.redirect(dialog)
                for number in range(FURTHER):
                    assert dialog.send(ORDER, b"further %d" % number) == -1
            for conversation, first in numbers.items():
                bodies = until_last(orders, conversation, b"further %d" % (FURTHER - 1))
                old = bodies[:-FURTHER]
                assert old == [b"order %d" % (first + n * DIALOGS) for n in range(len(old))]
                assert len(old) >= counts[conversation.hex]
                assert bodies[-FURTHER:] == [b"further %d" % number for number in range(FURTHER)]
        assert verify(servers.bootstrap, [queue_of(shop, "Orders"), queue_of(shop, "Shop")]) == []


def test_in_flight_records_of_a_dead_sender_come_back_and_are_redirected_once(
    servers: Servers, database: str, tmp_path: Path
) -> None:
    job = Job(servers.bootstrap, database, str(tmp_path / "diary"), work="send", count=MANY, dialogs=1)
    with connected(servers.bootstrap, database) as shop, connected(servers.bootstrap, database) as successor:
        open_shop(shop)
        with Worker(job) as sender:
            sender.wait_for("acknowledged", 20)
            sender.send_signal(signal.SIGKILL)
            sender.wait()
        (conversation,) = [UUID(event["conversation"]) for event in sender.said("sends")]
        with owned(shop) as orders:
            ((dialog, standing),) = successor._client.adopt(wanted(conversation))
            assert standing is FoundState.OPEN
            last = messages_of(servers, shop)[-1]
            with Producer({"bootstrap.servers": servers.bootstrap}) as network:  # its requests are slow
                for number in (1, 2):
                    late = last._replace(counter=last.counter + number, sequence=last.sequence + number)
                    header: list[tuple[str, str | bytes | None]] = [(HEADER, encode_envelope(late))]
                    network.produce(queue_of(shop, "Orders").topic, b"late %d" % number, b"", 0, headers=header)
                network.flush()
            until(lambda: [one.body for one in dialog.bounced()][-2:] == [b"late 1", b"late 2"], "they come back")
            messages = dialog.bounced()
            assert {message.reason for message in messages} == {BounceReason.WRITER_CLOSED}
            following = begin(successor, related_to=dialog)
            for message in messages:
                message.redirect(following)
            following.send(NOTE, b"behind")
            dialog.send(NOTE, b"further")
            assert until_last(orders, following.id, b"behind") == [*(message.body for message in messages), b"behind"]
            bodies = until_last(orders, conversation, b"further")
            assert bodies[:-1] == [b"order %d" % number for number in range(len(bodies) - 1)]
        assert verify(servers.bootstrap, [queue_of(shop, "Orders"), queue_of(shop, "Shop")]) == []


def test_late_messages_of_a_dead_sender_are_in_the_mailbox_when_its_conversation_is_adopted(
    servers: Servers, database: str
) -> None:
    late = [b"late %d" % number for number in range(20)]
    ended, silent, unknown = uuid4(), uuid4(), uuid4()
    with (
        connected(servers.bootstrap, database) as shop,
        connected(servers.bootstrap, database) as dead,
        connected(servers.bootstrap, database) as successor,
    ):
        open_shop(shop)
        begin(dead, conversation_id=silent)
        dialog = begin(dead, conversation_id=ended, returning=True)
        dialog.send(ORDER, b"first")
        dead.flush()
        end_at_target(shop)
        for body in late:
            dialog.send(ORDER, body)
        dead.flush()
        with owned(shop) as orders:
            found = successor._client.adopt(wanted(silent, ended, unknown))
            assert [one.standing for one in found] == [FoundState.NOT_OPENED, FoundState.ENDED, FoundState.NOT_BEGUN]
            old = found[1].dialog
            messages = old.bounced()
            assert [(message.body, message.reason) for message in messages] == [
                (body, BounceReason.PEER_ENDED) for body in late
            ]
            for dialog, _ in found:
                with pytest.raises(ConversationEnded):
                    dialog.send(ORDER, b"in vain")
            following = begin(successor, group=UUID(bytes=old.begin.group), returning=True)
            for message in messages:
                message.redirect(following)
            following.send(ORDER, b"behind")
            old.end()
            assert until_last(orders, following.id, b"behind") == [*late, b"behind"]
        assert verify(servers.bootstrap, [queue_of(shop, "Orders"), queue_of(shop, "Shop")]) == []


def test_an_adoption_fails_while_the_partitions_have_no_owner_and_can_be_retried(
    servers: Servers, database: str
) -> None:
    conversation = uuid4()
    with (
        connected(servers.bootstrap, database) as shop,
        connected(servers.bootstrap, database) as dead,
        connected(servers.bootstrap, database) as successor,
    ):
        open_shop(shop)
        begin(dead, conversation_id=conversation).send(ORDER, b"first")
        dead.flush()
        with owned(shop) as orders:
            until_last(orders, conversation, b"first")
        with pytest.raises(OutcomeUnknown, match=r"has not closed the former senders of 1 conversation within 0\.5 s"):
            successor._client.adopt(wanted(conversation), timeout=0.5)
        with pytest.raises(BadInput, match="name each of them once"):
            successor._client.adopt(wanted(conversation, conversation))
        with owned(shop):
            ((dialog, standing),) = successor._client.adopt(wanted(conversation))
            assert standing is FoundState.OPEN
            assert successor._client.adopt(wanted(conversation))[0].dialog.staged is dialog.staged
