"""A router whose own topics are changed while it routes gets the errors of a reader of its queue."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from konverse.bridge.kafka import topic_watch
from konverse.bridge.kafka.topics import topics_of
from konverse.schemas.errors import TopicMismatch
from tests.integration.test_router import router_of, running
from tests.kit.regions import open_regions
from tests.kit.servers import Servers
from tests.kit.shop import DEADLINE_S, connected, open_shop, queue_of, receive, sent, until
from tests.kit.topics import create, delete, set_config

pytestmark = [pytest.mark.stack, pytest.mark.nightly]

PARTS: Final = ("data", "journal", "snapshot")
Harm = Callable[[AdminClient, str, dict[str, str]], None]


def deleted(admin: AdminClient, topic: str, _: dict[str, str]) -> None:
    delete(admin, topic)


def made_again(admin: AdminClient, topic: str, config: dict[str, str]) -> None:
    delete(admin, topic)
    create(admin, topic, 1, config)


def grown(admin: AdminClient, topic: str, _: dict[str, str]) -> None:
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(DEADLINE_S)


def expiring(admin: AdminClient, topic: str, _: dict[str, str]) -> None:
    set_config(admin, topic, "retention.ms", "86400000")


@pytest.fixture
def admin(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> AdminClient:
    monkeypatch.setattr(topic_watch, "WATCH_EVERY_S", 0.2)
    return AdminClient({"bootstrap.servers": servers.bootstrap})


def changed(admin: AdminClient, data: str, part: str, harm: Harm) -> str:
    topic, config = [*topics_of(data).items()][PARTS.index(part)]
    harm(admin, topic, dict(config))
    return topic


@pytest.mark.parametrize(
    ("part", "harm"),
    [
        ("data", deleted),
        ("data", made_again),
        ("journal", deleted),
        ("journal", made_again),
        ("snapshot", deleted),
    ],
)
def test_a_router_whose_own_topic_is_gone_ends_with_an_error_that_names_it(
    servers: Servers, database: str, admin: AdminClient, part: str, harm: Harm
) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        open_regions(broker, ("north", "south"))
        router = router_of(broker)
        with ThreadPoolExecutor(1) as pool:
            done = pool.submit(router.run)
            sent(broker, b"north 1")
            assert [message.body for message in receive(broker, "North", 1)] == [b"north 1"]
            topic = changed(admin, queue_of(broker, "Orders").topic, part, harm)
            with pytest.raises(TopicMismatch, match=topic):
                done.result(DEADLINE_S)


@pytest.mark.parametrize(
    ("part", "harm"),
    [("data", expiring), ("journal", expiring), ("data", grown), ("journal", grown)],
)
def test_a_router_whose_own_topic_is_changed_continues_and_logs_the_topic_once(  # noqa: PLR0917  # fixtures
    servers: Servers, database: str, admin: AdminClient, part: str, harm: Harm, caplog: pytest.LogCaptureFixture
) -> None:
    with connected(servers.bootstrap, database) as broker, caplog.at_level(logging.WARNING):
        open_shop(broker)
        open_regions(broker, ("north", "south"))
        with running(router_of(broker)):
            sent(broker, b"north 1")
            assert [message.body for message in receive(broker, "North", 1)] == [b"north 1"]
            topic = changed(admin, queue_of(broker, "Orders").topic, part, harm)
            until(lambda: f"topic {topic} has" in caplog.text, "the line")
            sent(broker, b"north 2")
            assert [message.body for message in receive(broker, "North", 1)] == [b"north 2"]
        (line,) = [line for line in caplog.messages if f"topic {topic} has" in line]
        assert "kafka-configs --bootstrap-server" in line or "Kafka cannot remove partitions" in line
