"""Messages of handlers and routers to a recreated topic are not considered delivered."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient

from konverse.bridge.broker import Broker
from konverse.bridge.kafka.topics import DATA_CONFIG
from konverse.schemas.errors import OutcomeUnknown
from tests.integration.test_router import by_first_word, running
from tests.kit.regions import open_regions
from tests.kit.servers import Servers
from tests.kit.shop import ORDER_SERVICE, ORDERING, RECEIPT, SHOP_SERVICE, connected, open_shop, queue_of, sent, until
from tests.kit.topics import create, delete

pytestmark = pytest.mark.stack


def make_again(servers: Servers, broker: Broker, queue: str) -> str:
    admin, found = AdminClient({"bootstrap.servers": servers.bootstrap}), queue_of(broker, queue)
    delete(admin, found.topic)
    create(admin, found.topic, found.partitions, DATA_CONFIG)
    return found.topic


def said(caplog: pytest.LogCaptureFixture, topic: str) -> list[str]:
    return [line for line in caplog.messages if line.startswith(f"outputs to {topic}/") and "wait: topic" in line]


def test_an_answer_to_a_topic_that_was_made_again_is_not_settled_until_its_queue_is_dropped(
    servers: Servers, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        sent(broker, b"0")
        topic = make_again(servers, broker, "Shop")
        with broker.reader("Orders") as reader:
            with next(iter(reader)) as transaction:
                for message in transaction:
                    transaction.send(message.dialog, RECEIPT, b"x")
            with pytest.raises(OutcomeUnknown, match="has not acknowledged all finished work"):
                reader.settle(4)
            (line,) = said(caplog, topic)
            assert f"topic {topic} was deleted and created again" in line
            assert "drop_queue" in line
            with connected(servers.bootstrap, database) as another:
                another.admin.drop_service(SHOP_SERVICE)
                another.admin.drop_queue("Shop", force=True)
            reader.settle()


def test_messages_forwarded_to_a_recreated_topic_stay_in_the_outbox_of_the_router(
    servers: Servers, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        open_regions(broker)
        router = broker.router(ORDER_SERVICE, contracts=[ORDERING])(by_first_word)
        topic = make_again(servers, broker, "North")
        with running(router):
            sent(broker, b"north 1")
            until(lambda: said(caplog, topic), "the router names the topic")
        with broker.reader("Orders") as reader:
            reader.wait_for_partitions(1)
            with pytest.raises(OutcomeUnknown, match="has not acknowledged all finished work"):
                reader.settle(4)
