"""The catalog in Redis: correct when present, rewritten when lost, and harmless when wrong."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from konverse.bridge.broker import Broker
from konverse.bridge.catalog.catalog import Catalog
from konverse.bridge.catalog.mirror import CatalogMirror
from konverse.bridge.catalog.objects import kind_of
from konverse.bridge.redis.client import connect_redis
from konverse.schemas.catalog.objects import Contract, MessageType, Queue, Service
from konverse.schemas.catalog.routes import Route
from konverse.schemas.identifiers import catalog_topic, mirror_key
from konverse.schemas.system_messages import DEFAULT
from tests.kit.servers import Servers
from tests.kit.shop import ORDER, ORDER_SERVICE, ORDERING, connected, open_shop, queue_of, send_orders, until

pytestmark = pytest.mark.stack


@pytest.fixture
def client(servers: Servers) -> Iterator[redis.Redis]:
    with connect_redis(servers.redis_url) as connection:
        yield connection


@pytest.fixture
def broker(servers: Servers, database: str) -> Iterator[Broker]:
    with connected(servers.bootstrap, database, redis=servers.redis_url) as broker:
        yield broker


def key(broker: Broker) -> str:
    return mirror_key(catalog_topic(broker.settings.instance), broker.database)


def mirrored(client: redis.Redis, broker: Broker) -> dict[str, Any]:
    """The objects in Redis; empty when it has none, or something else."""
    try:
        found: Any = client.hgetall(key(broker))
    except redis.ResponseError:
        return {}
    header = {name: found.pop(name, b"") for name in (b"catalog", b"journal", b"objects")}
    if header[b"objects"] != b"%d" % len(found):
        return {}
    return {name.decode(): json.loads(value) for name, value in found.items()}


def catalogued(broker: Broker) -> set[str]:
    kinds: tuple[type[MessageType | Contract | Queue | Service | Route], ...]
    kinds = (MessageType, Contract, Queue, Service, Route)
    return {f"{kind_of(kind)} {each.name}" for kind in kinds for each in broker.catalog.all(kind)}


def whole(client: redis.Redis, broker: Broker) -> Callable[[], bool]:
    return lambda: mirrored(client, broker).keys() == catalogued(broker)


def test_what_is_created_altered_and_dropped_is_mirrored(client: redis.Redis, broker: Broker) -> None:
    open_shop(broker, partitions=2)
    until(whole(client, broker), "the mirror is whole")
    shown = mirrored(client, broker)
    assert shown["contract //sales/Ordering"]["sent_by"][ORDER] == "INITIATOR"
    assert shown[f"service {ORDER_SERVICE}"] == {
        "name": ORDER_SERVICE,
        "queue": "Orders",
        "contracts": [ORDERING],
        "queues_before": [],
    }
    assert shown["queue Orders"]["incarnation"] == queue_of(broker, "Orders").incarnation.hex()
    assert shown[f"message type {DEFAULT}"]["validation"] == "NONE"
    broker.admin.alter_queue("Orders", status=False)
    until(lambda: not mirrored(client, broker)["queue Orders"]["status"], "the change is there")
    broker.admin.drop_service(ORDER_SERVICE)
    until(lambda: f"service {ORDER_SERVICE}" not in mirrored(client, broker), "it is dropped")


def test_whoever_closes_at_once_leaves_the_mirror_behind(client: redis.Redis, servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database, redis=servers.redis_url) as broker:
        broker.admin.create_message_type(ORDER)
    assert f"message type {ORDER}" in mirrored(client, broker)


@pytest.mark.parametrize("damage", ["flushed", "another type", "a field too many", "from the future", "half of it"])
def test_a_reader_writes_again_what_was_lost_or_is_garbage(
    client: redis.Redis, broker: Broker, servers: Servers, damage: str
) -> None:
    open_shop(broker)
    until(whole(client, broker), "the mirror is whole")
    before = mirrored(client, broker)
    place = key(broker)
    if damage in ("flushed", "another type"):
        client.delete(place)
    if damage == "another type":
        client.set(place, b"no hash")
    elif damage == "a field too many":
        client.hset(place, "queue Nobody", "{")
    elif damage == "from the future":
        client.hset(place, mapping={"journal": 10**15, "queue Orders": '"lies"'})
    elif damage == "half of it":
        client.hdel(place, "queue Orders", "journal")
    with broker.reader("Orders", timeout=1):
        until(lambda: mirrored(client, broker).get("queue Orders") == before["queue Orders"], "it is right again")
        assert mirrored(client, broker) == before


def test_an_older_catalog_does_not_overwrite_a_newer_one(client: redis.Redis, broker: Broker, servers: Servers) -> None:
    broker.admin.create_message_type(ORDER)
    until(whole(client, broker), "the mirror is whole")
    shown: Any = client.hmget(key(broker), "catalog", "journal")
    topic_id, position = shown
    late = CatalogMirror(servers.redis_url, catalog_topic(broker.settings.instance), broker.database)
    late.show(bytes.fromhex(topic_id.decode()), int(position) - 1, [])
    late.close()
    assert whole(client, broker)()


def test_without_redis_and_with_lies_in_it_the_catalog_is_what_its_journal_says(
    servers: Servers, database: str, client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    with connected(servers.bootstrap, database, redis="redis://127.0.0.1:1") as broker:
        open_shop(broker)
        client.hset(key(broker), mapping={"journal": 10**15, "queue Lies": "{}"})
        until(lambda: "the catalog is not mirrored" in caplog.text, "it is said")
        send_orders(broker, dialogs=1, messages=1)
    with connected(servers.bootstrap, database, redis=servers.redis_url) as broker:
        assert broker.catalog.find(Queue, "Lies") is None
        assert broker.catalog.find(Queue, "Orders") is not None


def test_a_catalog_without_a_mirror_needs_no_redis(broker: Broker, client: redis.Redis) -> None:
    catalog = Catalog(broker._kafka, broker.settings.instance, broker.database)
    catalog.refresh()
    catalog.close()
    assert not client.exists(key(broker))
