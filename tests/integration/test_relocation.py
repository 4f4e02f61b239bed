"""Conversations that move to another partition of their queue, on a real Kafka (protocol.md section 7.3)."""

from __future__ import annotations

import uuid
from uuid import UUID

import pytest

from konverse.bridge.reader.reader import Reader
from konverse.schemas.errors import BadInput, DialogNotFound, InvalidState
from konverse.schemas.identifiers import Role
from tests.kit.oracle import verify
from tests.kit.servers import Servers
from tests.kit.shop import (
    ORDER,
    ORDER_SERVICE,
    ORDERING,
    RECEIPT,
    begin,
    connected,
    drain,
    open_shop,
    queue_of,
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
        at = first
        with broker.reader("Orders", partitions=tuple(range(PARTITIONS)), timeout=2) as reader:
            wait_until_it_lives(reader, dialog.id, first, unread=5)
            for hop in (1, 2, 3):  # around, and back to the first partition
                to = (first + hop) % PARTITIONS
                reader.relocate(dialog.id, to)
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


def test_both_sides_in_one_queue_move_together_or_not_at_all(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker, partitions=PARTITIONS)
        broker.admin.create_service("store", queue="Orders", contracts=[ORDERING])
        dialog = broker.begin_dialog(ORDER_SERVICE, "store", ORDERING)
        shared = broker.begin_dialog(ORDER_SERVICE, "store", ORDERING, related_to=dialog)
        alone = broker.begin_dialog(ORDER_SERVICE, "store", ORDERING)
        for each in (dialog, shared, alone):
            each.send(ORDER, b"1")
        broker.flush()
        with broker.reader("Orders", partitions=tuple(range(PARTITIONS)), timeout=1) as reader:

            def places(conversation: UUID) -> dict[Role, int]:
                work(reader)
                return {
                    role: owner.identity.partition
                    for owner in reader.owners
                    for role in Role
                    if owner.fold.state.endpoint(role, conversation.bytes) is not None
                }

            for each in (dialog, alone):
                wait_until_it_lives(reader, each.id, each.begin.target.partition, unread=1)
            elsewhere = next(
                partition for partition in range(PARTITIONS) if partition not in places(dialog.id).values()
            )
            before = places(dialog.id)
            with pytest.raises(InvalidState, match="a group of several"):
                reader.relocate(dialog.id, elsewhere)
            reader.settle()
            assert places(dialog.id) == before, "the side that could have moved stayed as well"
            elsewhere = next(partition for partition in range(PARTITIONS) if partition not in places(alone.id).values())
            reader.relocate(alone.id, elsewhere)
            until(lambda: places(alone.id) == dict.fromkeys(Role, elsewhere), "both sides moved")
