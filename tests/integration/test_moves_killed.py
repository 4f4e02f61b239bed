"""MOVE CONVERSATION across partitions: processes killed between its two steps (protocol.md section 7.2)."""

from __future__ import annotations

import signal
import uuid
from pathlib import Path

import pytest

from konverse.bridge.broker import Broker
from konverse.bridge.client.dialog import Dialog
from konverse.bridge.reader.reader import Reader
from konverse.schemas.identifiers import Role
from tests.integration.test_following import following
from tests.kit.oracle import verify
from tests.kit.servers import Servers
from tests.kit.shop import DEADLINE_S, ORDER, connected, fill, open_shop, queue_of, relocate, sent, until
from tests.kit.workers import Job, Worker

pytestmark = pytest.mark.stack


def places_of(broker: Broker, partitions: int, dialogs: int) -> dict[int, tuple[Dialog, uuid.UUID]]:
    """Partition → a conversation there without messages, and its group."""
    begun = [sent(broker, b"first") for _ in range(dialogs)]
    with broker.reader("Orders") as reader:
        reader.wait_for_partitions(partitions, DEADLINE_S)
        fill(reader, dialogs)
        for _ in begun:
            with next(iter(reader)) as transaction:
                list(transaction)
        reader.settle()
        found = {}
        for owner in reader.owners:
            for dialog in begun:
                endpoint = owner.fold.state.endpoint(Role.TARGET, dialog.id.bytes)
                if endpoint is not None:
                    found[owner.identity.partition] = dialog, uuid.UUID(bytes=endpoint.group_id)
    # The partition of a conversation is random. Once in 128 times, all eight go to the same one of two partitions.
    return found if len(found) == partitions else places_of(broker, partitions, dialogs)


def joins(broker: Broker, dialog: Dialog, group: uuid.UUID) -> None:
    """The target of `dialog`, in partition 0 of Orders, moves to a group in another partition."""
    dialog.send(ORDER, b"to the others")
    broker.flush()
    with broker.reader("Orders", partitions=(0,)) as reader:
        transaction = reader.receive(dialog=dialog.id, timeout=DEADLINE_S)
        assert transaction is not None
        with transaction:
            list(transaction)
            transaction.move(transaction.dialog, group)
        reader.settle()


def waiting(reader: Reader, group: uuid.UUID, partition: int) -> list[bytes]:
    """Bodies that wait in a group in one partition, sorted."""
    reader.keep_up()
    states = [owner.fold.state for owner in reader.owners if owner.identity.partition == partition]
    return sorted(entry[2] or b"" for state in states for one in state.members(group.bytes) for entry in one.queue)


def test_the_next_owner_completes_a_move_when_its_owner_was_killed_between_two_steps(
    servers: Servers, database: str, tmp_path: Path
) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker, partitions=2)
        places = places_of(broker, 2, 8)
        (one, _), (two, group) = places[0], places[1]
        for body in (str(group).encode(), b"unread"):
            one.send(ORDER, body)
        broker.flush()
        job = Job(
            servers.bootstrap,
            database,
            str(tmp_path / "diary"),
            work="gather",
            partitions=[0],
            max_messages=1,
            die_at="after the COMMIT is in the journal, before its acknowledgement is handled",
        )
        with Worker(job) as killed:
            assert killed.wait() == -signal.SIGKILL
            assert len(killed.said("moves")) == 1
        with following(servers, broker) as followed:
            moves = followed.catch_up().moves
            assert (moves.leaving, moves.count) == ({group.bytes: queue_of(broker, "Orders").address(1)}, 0)
        one.send(ORDER, b"later")
        broker.flush()
        with broker.reader("Orders") as reader:
            until(lambda: waiting(reader, group, 1) == [b"later", b"unread"], "it is where its group is")
            transaction = reader.receive(group=group, timeout=DEADLINE_S)
            assert transaction is not None
            with transaction:
                assert {dialog.id for dialog in transaction.dialogs} == {one.id, two.id}
                assert [message.body for message in transaction] == [b"unread", b"later"]
            reader.settle()
        assert verify(servers.bootstrap, [queue_of(broker, name) for name in ("Orders", "Shop")]) == []


def test_two_conversations_that_join_a_group_from_two_partitions_are_received_with_it(
    servers: Servers, database: str, tmp_path: Path
) -> None:
    """The first one has not left when the second one looks for the group."""
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker, partitions=3)
        places = places_of(broker, 3, 24)
        (one, _), (two, _), (three, group) = places[0], places[1], places[2]
        for dialog in (one, two):
            dialog.send(ORDER, str(group).encode())
            dialog.send(ORDER, b"unread")
        broker.flush()
        job = Job(
            servers.bootstrap,
            database,
            str(tmp_path / "diary"),
            work="gather",
            partitions=[0],
            max_messages=1,
            die_at="after the COMMIT is in the journal, before its acknowledgement is handled",
        )
        with Worker(job) as killed:
            assert killed.wait() == -signal.SIGKILL
        with broker.reader("Orders", partitions=(1,)) as reader:
            transaction = reader.receive(dialog=two.id, timeout=DEADLINE_S)
            assert transaction is not None
            with transaction:
                transaction.receive(1)
                transaction.move(transaction.dialog, group)
            reader.settle()
        with broker.reader("Orders") as reader:
            until(lambda: waiting(reader, group, 2) == [b"unread"] * 2, "both are where their group is")
            transaction = reader.receive(group=group, timeout=DEADLINE_S)
            assert transaction is not None
            with transaction:
                assert {dialog.id for dialog in transaction.dialogs} == {one.id, two.id, three.id}
                list(transaction)
            reader.settle()
        assert verify(servers.bootstrap, [queue_of(broker, name) for name in ("Orders", "Shop")]) == []


def test_a_conversation_joins_a_group_that_has_left_but_is_not_yet_ingested_at_its_destination(
    servers: Servers, database: str
) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker, partitions=3)
        places = places_of(broker, 3, 24)
        (one, _), (two, group) = places[0], places[1]
        with broker.reader("Orders", partitions=(1,)) as reader:
            reader.wait_for_partitions(1, DEADLINE_S)
            relocate(reader, two.id, 2)
            reader.settle()
        joins(broker, one, group)
        one.send(ORDER, b"later")
        broker.flush()
        with broker.reader("Orders") as reader:
            until(lambda: waiting(reader, group, 2) == [b"later"], "it is where its group is")
            transaction = reader.receive(group=group, timeout=DEADLINE_S)
            assert transaction is not None
            with transaction:
                assert {dialog.id for dialog in transaction.dialogs} == {one.id, two.id}
                list(transaction)
            reader.settle()
        assert verify(servers.bootstrap, [queue_of(broker, name) for name in ("Orders", "Shop")]) == []
