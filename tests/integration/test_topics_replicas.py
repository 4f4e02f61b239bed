"""Three brokers of which one is missing: too few replicas are in sync."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from konverse import Broker
from konverse.bridge.kafka.topics import DATA_CONFIG
from konverse.deploy import LocalStack, StackSettings
from konverse.schemas.errors import OutcomeUnknown, PartitionHalted
from konverse.schemas.identifiers import data_topic
from konverse.schemas.system_messages import BROKER_ERROR, ERROR, read_error
from tests.kit.oracle import verify
from tests.kit.servers import THREE_BROKERS
from tests.kit.shop import DEADLINE_S, ORDER, begin, connected, drain, open_shop, queue_of, receive, sent, until
from tests.kit.topics import set_config

pytestmark = [pytest.mark.stack, pytest.mark.nightly, pytest.mark.timeout(400)]

NewStack = Callable[[StackSettings], LocalStack]
PLACES: Final = [1, 2]
"""Brokers with a replica of the data topic, the leader first. The third keeps the majority of the controllers."""


class Replicated(NamedTuple):
    """Three brokers, and a shop whose data topic has replicas on two of them."""

    stack: LocalStack
    admin: AdminClient
    topic: str
    broker: Broker


def in_sync(admin: AdminClient, topic: str) -> set[int]:
    return {*admin.list_topics(topic, timeout=10).topics[topic].partitions[0].isrs}


def test_a_message_that_too_few_replicas_take_is_kept_and_sent_when_they_are_back(new_stack: NewStack) -> None:
    stack = new_stack(THREE_BROKERS)
    admin = AdminClient({"bootstrap.servers": stack.bootstrap, "log_level": 0})
    with connected(stack.bootstrap, f"t{uuid.uuid4().hex[:12]}", send_timeout_s=4) as broker:
        open_shop(broker)
        topic = queue_of(broker, "Orders").topic
        set_config(admin, topic, "min.insync.replicas", "3")
        dialog = begin(broker)
        dialog.send(ORDER, b"while all replicas are in sync")
        dialog.flush()
        stack.kill("kafka-2")
        until(lambda: in_sync(admin, topic) == {1, 3}, "the replica of the killed broker is out of sync")
        dialog.send(ORDER, b"while one is missing")
        with pytest.raises(OutcomeUnknown, match=r"has not acknowledged message 1 of .* are kept and sent again"):
            dialog.flush(15)
        stack.restart("kafka-2")
        dialog.flush(DEADLINE_S)
        bodies = [message.body for message in receive(broker, "Orders", 2)]
        assert bodies == [b"while all replicas are in sync", b"while one is missing"]
        assert verify(stack.bootstrap, [queue_of(broker, "Orders"), queue_of(broker, "Shop")]) == []


def cut_the_end(stack: LocalStack, admin: AdminClient, topic: str, meanwhile: Callable[[], None]) -> None:
    """Let the second replica, which lacks what `meanwhile` sends, become the leader: the end of the log is cut."""
    stack.kill("kafka-2")
    until(lambda: in_sync(admin, topic) == {1}, "the second replica is out of sync")
    meanwhile()
    stack.kill("kafka-1")
    stack.restart("kafka-2")
    until(lambda: admin.list_topics(topic, timeout=10).topics[topic].partitions[0].leader == 2, "it leads")
    stack.restart("kafka-1")
    until(lambda: in_sync(admin, topic) == {1, 2}, "both replicas are in sync")


@pytest.fixture
def replicated(new_stack: NewStack) -> Iterator[Replicated]:
    """A shop on three brokers, whose data topic may be led by a replica that lacks records."""
    stack = new_stack(THREE_BROKERS)
    admin = AdminClient({"bootstrap.servers": stack.bootstrap, "log_level": 0})
    database = f"t{uuid.uuid4().hex[:12]}"
    topic = data_topic("konverse", database, "Orders")
    config = {**DATA_CONFIG, "unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    made = NewTopic(topic, num_partitions=1, replica_assignment=[PLACES], config=config)
    admin.create_topics([made])[topic].result()
    until(lambda: topic in admin.list_topics(timeout=10).topics, "the topic is there")
    with connected(stack.bootstrap, database, instance="konverse") as broker:
        open_shop(broker)
        yield Replicated(stack, admin, topic, broker)


def test_messages_that_an_election_has_cut_unread_fail_their_conversation_on_both_sides(replicated: Replicated) -> None:
    stack, admin, topic, broker = replicated
    dialog = sent(broker, b"before")

    def send_more() -> None:
        dialog.send(ORDER, b"cut")
        dialog.flush()

    cut_the_end(stack, admin, topic, send_more)
    other = sent(broker, b"behind")
    found = receive(broker, "Orders", 3)
    of_dialog = [one for one in found if one.dialog.id == dialog.id]
    assert [one.type for one in of_dialog] == [ERROR, ORDER]
    assert read_error(of_dialog[0].body)[0] == BROKER_ERROR
    assert of_dialog[1].body == b"before"
    assert [one.body for one in found if one.dialog.id == other.id] == [b"behind"]
    (error,) = receive(broker, "Shop", 1)
    assert (error.type, error.dialog.id, read_error(error.body)[0]) == (ERROR, dialog.id, BROKER_ERROR)
    problems = verify(stack.bootstrap, [queue_of(broker, "Orders"), queue_of(broker, "Shop")])
    assert any("were acknowledged by Kafka before" in text for text in map(str, problems)), problems


def test_the_next_reader_halts_where_an_election_has_cut_what_was_received(replicated: Replicated) -> None:
    stack, admin, topic, broker = replicated
    sent(broker, b"before")

    def receive_more() -> None:
        sent(broker, b"cut")
        assert {message.body for message in receive(broker, "Orders", 2)} == {b"before", b"cut"}

    cut_the_end(stack, admin, topic, receive_more)
    with pytest.raises(PartitionHalted, match=rf"{re.escape(topic)}/0 ends before .* its end was deleted\. Restore"):
        drain(broker, "Orders", quiet_s=DEADLINE_S)
    assert verify(stack.bootstrap, [queue_of(broker, "Orders"), queue_of(broker, "Shop")]) != []


@pytest.mark.parametrize("refilled", [False, True])
def test_a_running_reader_halts_where_an_election_has_cut_what_it_received(
    replicated: Replicated, *, refilled: bool
) -> None:
    """Also where new records have the offsets of those that it received."""
    stack, admin, topic, broker = replicated
    halted = rf"{re.escape(topic)}/0 ends before .* its end was deleted\. Restore"
    sent(broker, b"before")
    with broker.reader("Orders", timeout=DEADLINE_S) as reader:

        def receive_more() -> None:
            sent(broker, b"cut")
            got: set[bytes] = set()
            while got != {b"before", b"cut"}:
                with next(reader) as transaction:
                    got |= {message.body for message in transaction}

        cut_the_end(stack, admin, topic, receive_more)
        if refilled:
            for number in range(3):
                sent(broker, b"%d" % number)
        with pytest.raises(PartitionHalted, match=halted):
            next(reader)
