"""Conversations that move to another partition of their queue, on a real Kafka (protocol.md section 7.3)."""

from __future__ import annotations

from uuid import UUID

import pytest

from konverse.bridge.reader.reader import Reader
from konverse.schemas.identifiers import Role
from tests.kit.oracle import verify
from tests.kit.servers import Servers
from tests.kit.shop import (
    ORDER,
    RECEIPT,
    begin,
    connected,
    drain,
    open_shop,
    queue_of,
    relocate,
    until,
    work,
)

pytestmark = pytest.mark.stack

PARTITIONS = 3


def wait_until_it_lives(reader: Reader, conversation: UUID, partition: int, *, unread: int) -> None:
    """Let the owners work until the target of a conversation is in this partition, with `unread` messages."""

    def lives() -> bool:
        work(reader)
        endpoint = reader.ask(partition, lambda state: state.endpoint(Role.TARGET, conversation.bytes))
        return endpoint is not None and len(endpoint.queue) == unread

    until(lives, f"{conversation} with {unread} messages in partition {partition}")


def test_a_relocated_conversation_keeps_its_waiting_messages_and_receives_later_ones(
    servers: Servers, database: str
) -> None:
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
        at = first
        with broker.reader("Orders", partitions=tuple(range(PARTITIONS)), timeout=2) as reader:
            wait_until_it_lives(reader, dialog.id, first, unread=5)
            for hop in (1, 2, 3):  # around, and back to the first partition
                to = (first + hop) % PARTITIONS
                relocate(reader, dialog.id, to)
                reader.settle()
                assert not reader.ask(at, lambda state: state.endpoint(Role.TARGET, dialog.id.bytes)), "it has left"
                at = to
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
