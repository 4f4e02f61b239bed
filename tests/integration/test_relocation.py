"""Conversations that move to another partition of their queue, on a real Kafka (protocol.md section 7.3)."""

from __future__ import annotations

import uuid
from uuid import UUID

import pytest

from konverse.bridge.reader import Reader
from konverse.schemas.errors import BadInput, DialogNotFound, InvalidState
from konverse.schemas.records import Role
from tests.kit.oracle import verify
from tests.kit.servers import Servers
from tests.kit.shop import ORDER, RECEIPT, begin, connected, drain, open_shop, queue_of, until, work

pytestmark = pytest.mark.stack

PARTITIONS = 3


def wait_until_it_lives(reader: Reader, conversation: UUID, partition: int, *, unread: int) -> None:
    """Let the owners work until the target of a conversation is in this partition, with so many messages."""

    def lives() -> bool:
        work(reader)
        endpoint = reader.ask(partition, lambda state: state.endpoint(Role.TARGET, conversation.bytes))
        return endpoint is not None and len(endpoint.queue) == unread

    until(lives, f"{conversation} with {unread} messages in partition {partition}")


def test_a_conversation_moves_with_what_waits_and_what_comes_later_follows(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker, partitions=PARTITIONS)
        dialog = begin(broker)
        first = dialog.begin.target.partition
        sent = [b"order %d" % number for number in range(20)]
        unsent = iter(sent)

        def send() -> None:
            for _ in range(5):
                dialog.send(ORDER, next(unsent))
            broker.flush()

        send()
        received: list[bytes] = []
        with broker.reader("Orders", partitions=tuple(range(PARTITIONS)), timeout=2) as reader:
            wait_until_it_lives(reader, dialog.id, first, unread=5)
            for hop in (1, 2, 3):  # around, and back to where it began
                to = (first + hop) % PARTITIONS
                reader.relocate(dialog.id, to)
                reader.settle()
                send()
                wait_until_it_lives(reader, dialog.id, to, unread=5 + 5 * hop)
            for transaction in reader:
                with transaction:
                    for message in transaction:
                        received.append(message.body)
                        transaction.send(message.dialog, RECEIPT, message.body)
        assert received == sent
        assert [message.body for message in drain(broker, "Shop")] == sent
        assert verify(servers.bootstrap, [queue_of(broker, "Orders"), queue_of(broker, "Shop")]) == []


def test_a_move_that_cannot_be_says_why(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker, partitions=PARTITIONS)
        dialog = begin(broker)
        at = dialog.begin.target.partition
        dialog.send(ORDER, b"1")
        broker.flush()
        with broker.reader("Orders", partitions=(at,), timeout=1) as reader:
            wait_until_it_lives(reader, dialog.id, at, unread=1)
            with pytest.raises(DialogNotFound, match="lives in no partition that is ours"):
                reader.relocate(uuid.uuid4(), at)
            with pytest.raises(BadInput, match="has no partition 3; it has 3, from 0 on"):
                reader.relocate(dialog.id, PARTITIONS)
            with pytest.raises(BadInput, match=f"lives in .*/{at}; name another partition"):
                reader.relocate(dialog.id, at)
            for transaction in reader:
                with transaction:
                    with pytest.raises(InvalidState, match="a transaction holds conversation"):
                        reader.relocate(dialog.id, (at + 1) % PARTITIONS)
                    assert [message.body for message in transaction] == [b"1"]
