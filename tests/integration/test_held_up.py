"""An open transaction of a foreign producer holds up a log: its records are there, and count as such everywhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
from confluent_kafka import Producer

from konverse.bridge.broker import Broker
from konverse.bridge.reader.drain_check import DrainCheck
from konverse.bridge.views.reading_state import reading_states
from konverse.schemas.errors import KafkaUnavailable, StillUsed
from konverse.schemas.identifiers import catalog_topic, instruction_topic
from tests.kit.servers import Servers
from tests.kit.shop import DEADLINE_S, ORDER, ORDER_SERVICE, ORDERING, connected, open_shop, queue_of, receive, sent

pytestmark = pytest.mark.stack


@contextmanager
def transaction(servers: Servers, name: str, topic: str) -> Iterator[None]:
    """A record of a stranger's transaction that stays open."""
    with Producer({"bootstrap.servers": servers.bootstrap, "transactional.id": name}) as stranger:
        stranger.init_transactions(DEADLINE_S)
        stranger.begin_transaction()
        stranger.produce(topic, b"a stranger's", partition=0)
        stranger.flush(DEADLINE_S)
        yield
        stranger.abort_transaction(DEADLINE_S)


@pytest.fixture
def broker(servers: Servers, database: str, instance: str) -> Iterator[Broker]:
    with connected(servers.bootstrap, database, instance=instance) as opened:
        open_shop(opened)
        yield opened


def test_messages_that_are_held_up_keep_their_queue_from_being_dropped_and_from_being_drained(
    servers: Servers, broker: Broker, database: str
) -> None:
    queue = queue_of(broker, "Orders")
    with transaction(servers, database, queue.topic), closing(DrainCheck(broker._kafka, [queue])) as drained:
        sent(broker, b"acknowledged")
        assert drained.examine(queue, ()) is None
        (state,) = reading_states(broker._kafka, queue)
        assert state.waiting == 2
        broker.admin.drop_service(ORDER_SERVICE)
        with pytest.raises(StillUsed, match=f"2 records that no owner has ingested.*open transaction.*{queue.topic}/0"):
            broker.admin.drop_queue("Orders")
    broker.admin.create_service(ORDER_SERVICE, queue="Orders", contracts=[ORDERING])
    assert [message.body for message in receive(broker, "Orders", 1)] == [b"acknowledged"]


def test_conversations_whose_last_records_are_held_up_are_not_judged_as_leaked(
    servers: Servers, broker: Broker, database: str
) -> None:
    """A conversation that never got an answer is leaked after a while, but not if its partition cannot be read."""
    dialog = sent(broker, b"first")
    receive(broker, "Orders", 1)
    with transaction(servers, database, queue_of(broker, "Orders").topic):
        dialog.send(ORDER, b"of this moment")
        dialog.flush()
        dialog.end()
        broker.flush()
        receive(broker, "Shop", 0, timeout=0.5)
        assert list(broker.operations.leaked(older_than=0)) == []


def test_a_change_of_a_catalog_that_is_held_up_is_refused_with_the_cause(
    servers: Servers, broker: Broker, database: str, instance: str
) -> None:
    topic = catalog_topic(instance)
    with transaction(servers, database, topic):
        with pytest.raises(KafkaUnavailable, match=rf"change of queue 'Late' was not made.*holds up {topic}/0"):
            broker.admin.create_queue("Late")
        assert broker._kafka.admin.list_topics(topic).topics[topic].error is None
    broker.admin.create_queue("Late")


def test_a_command_that_no_owner_would_read_is_refused_with_the_cause(
    servers: Servers, broker: Broker, database: str, instance: str
) -> None:
    dialog = sent(broker, b"held")
    with broker.reader("Orders") as reader:
        reader.wait_for_partitions(1)
        topic = instruction_topic(instance)
        with transaction(servers, database, topic), pytest.raises(KafkaUnavailable, match=f"holds up {topic}/0"):
            broker.operations.suspend(dialog.id, queue="Orders", timeout=5)
