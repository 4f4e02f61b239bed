"""Pools behind redirecting routers: they follow by themselves, and nothing is lost, duplicated or reordered (233)."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Final
from unittest.mock import patch

import pytest

from konverse.bridge.broker import Broker
from konverse.dialog.transaction.received import Message
from konverse.routing.step import REDIRECT, REDIRECT_TO
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.errors import BrokerClosed, InvalidRoute
from tests.integration.test_router import running
from tests.kit.oracle import verify
from tests.kit.pool_sender import PoolSender
from tests.kit.pools import STREAM_END, STREAMING, Taker, left_open, pool_of, taking
from tests.kit.servers import Servers
from tests.kit.shop import NOTE, ORDER, ORDER_SERVICE, ORDERING, RECEIPT, SHOP_SERVICE, connected, open_shop, until
from tests.kit.workers import Job, Worker

pytestmark = pytest.mark.stack

NORTH: Final = "//sales/North"
FAR_NORTH: Final = "//sales/FarNorth"
KEYS: Final = 3


def open_routed(broker: Broker) -> None:
    """The order service may redirect. Services of the north have queues of their own."""
    open_shop(broker, partitions=2)
    for name in (STREAM_END, REDIRECT_TO):
        broker.admin.create_message_type(name)
    types = {ORDER: "INITIATOR", NOTE: "ANY", RECEIPT: "TARGET", STREAM_END: "INITIATOR", REDIRECT_TO: "TARGET"}
    broker.admin.create_contract(STREAMING, types)
    for service in (NORTH, FAR_NORTH):
        queue = service.rpartition("/")[2]
        broker.admin.create_queue(queue, partitions=2)
        broker.admin.create_service(service, queue=queue, contracts=[STREAMING])
    broker.admin.alter_service(ORDER_SERVICE, add=[STREAMING], drop=[ORDERING])


def always(service: str, _: Message) -> str:
    """A classifier that returns `service`."""
    return service


@contextmanager
def redirecting(broker: Broker, **ways: str) -> Iterator[None]:
    """Run routers: the order service redirects to `order`, that of the north to `north`."""
    with ExitStack() as exits:
        for name, to in ways.items():
            service = {"order": ORDER_SERVICE, "north": NORTH}[name]
            exits.enter_context(running(broker.router(service, mode=REDIRECT)(partial(always, to))))
        yield


@pytest.fixture
def broker(servers: Servers, database: str) -> Iterator[Broker]:
    """A broker. Afterwards the logs of all queues must satisfy the verifier."""
    with connected(servers.bootstrap, database) as broker:
        open_routed(broker)
        yield broker
        assert verify(servers.bootstrap, broker.catalog.all(Queue)) == []


def of_key(taken: list[bytes], key: int) -> list[bytes]:
    return [body for body in taken if body.startswith(b"%d " % key)]


def test_a_pool_follows_a_redirection_with_all_that_it_has_sent(broker: Broker) -> None:
    with pool_of(broker, max_messages=40) as pool:
        sent = [b"%d %d" % (number % KEYS, number) for number in range(90)]
        for body in sent[:30]:
            pool.send(ORDER, body, f"key {body[:1].decode()}")
        pool.flush()
        with redirecting(broker, order=NORTH), taking(broker, Taker(), queue="North") as taker:
            for body in sent[30:]:
                pool.send(ORDER, body, f"key {body[:1].decode()}")
            until(lambda: len(taker.bodies) == len(sent), "all is received")
            for key in range(KEYS):
                assert of_key(taker.bodies, key) == of_key(sent, key), "once, and in order"
            assert pool.statistics.redirected == KEYS
            assert {message.dialog.far_service for message in taker.taken} == {SHOP_SERVICE}, "nobody is between"
            assert pool.undelivered() == []
            pool.close()
            until(lambda: left_open(broker) == [], "no endpoint is left")


def test_messages_returned_to_a_closed_pool_are_resent_until_its_broker_closes(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "konverse.pool"), pool_of(broker) as pool:
        sent = [b"%d %d" % (number % KEYS, number) for number in range(30)]
        for body in sent:
            pool.send(ORDER, body, f"key {body[:1].decode()}")
    assert pool.closed
    assert "3 conversations not yet ended by their targets, and 0 keys with returned messages" in caplog.text
    assert not pool.over
    with redirecting(broker, order=NORTH), taking(broker, Taker(), queue="North") as taker:
        try:
            until(lambda: len(taker.bodies) == len(sent), "all is received")
        except AssertionError as error:
            where = f"pool over: {pool.over}, {pool._keeper.describe_unfinished()}; open: {left_open(broker)}"
            raise AssertionError(f"{error}: {len(taker.bodies)} of {len(sent)} bodies; {where}") from None
        for key in range(KEYS):
            assert of_key(taker.bodies, key) == of_key(sent, key), "once, and in order"
        until(lambda: pool.over, "nothing is left of it")
        until(lambda: left_open(broker) == [], "no endpoint is left")
    assert pool.statistics.redirected == KEYS


@pytest.mark.usefixtures("broker")
def test_a_pool_that_is_not_empty_says_so_when_its_broker_is_closed(
    servers: Servers, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    with connected(servers.bootstrap, database) as other, caplog.at_level(logging.WARNING, "konverse.pool"):
        pool = pool_of(other)
        pool.send(ORDER, b"one", "key")
    assert "ends with unfinished work: 1 conversation not yet ended by its target" in caplog.text
    assert "a named pool would resend them" in caplog.text
    assert pool.over
    with pytest.raises(BrokerClosed):
        pool_of(other)


def test_a_chain_of_routers_is_followed_by_pools_of_every_kind(broker: Broker) -> None:
    with (
        redirecting(broker, order=NORTH, north=FAR_NORTH),
        taking(broker, Taker(), queue="FarNorth") as taker,
        pool_of(broker) as of_threads,
        pool_of(broker, size=3) as of_three,
        pool_of(broker, read=False) as answering,
    ):
        for number in range(20):
            of_threads.send(ORDER, b"threads %d" % number)
            of_three.send(ORDER, b"three %d" % number)
            answering.send(ORDER, b"answering %d" % number, "key")
        until(lambda: len(taker.bodies) == 60, "all is received")
        assert max(Counter(taker.bodies).values()) == 1
        for kind in (b"threads", b"answering"):
            got = [body for body in taker.bodies if body.startswith(kind)]
            assert got == [b"%s %d" % (kind, number) for number in range(20)]
        assert of_threads.statistics.redirected == 2
        assert of_three.statistics.redirected == 6


@pytest.mark.parametrize(
    ("way", "says"),
    [
        (ORDER_SERVICE, "to '//sales/North' to '//sales/OrderService': routers redirect in a circle"),
        ("//sales/Nowhere", "'//sales/Nowhere'"),
    ],
)
def test_messages_redirected_to_a_dead_end_are_listed_as_undelivered_and_received_later(
    servers: Servers, database: str, broker: Broker, way: str, says: str
) -> None:
    soon = patch(
        "konverse.dialog.pool.pool.POOL_VERDICT_MS_MAX", 5_000
    )  # the router no longer answers and is not awaited
    with soon, pool_of(broker) as pool:
        with ExitStack() as exits:
            if way == ORDER_SERVICE:
                exits.enter_context(redirecting(broker, order=NORTH, north=ORDER_SERVICE))
            else:
                broker.admin.create_queue("Nowhere")
                broker.admin.create_service(way, queue="Nowhere")
                exits.enter_context(redirecting(broker, order=way))
            for number in range(3):
                pool.send(ORDER, b"%d" % number, "key")
            until(lambda: pool.undelivered() and len(pool.undelivered()[0].messages) == 3, "it has come back")
            (undelivered,) = pool.undelivered()
            assert says in undelivered.reason
            assert [message.body for message in undelivered.messages] == [b"0", b"1", b"2"]
            with pytest.raises(InvalidRoute, match=r"`pool\.undelivered` lists them"):
                pool.send(ORDER, b"refused", "key")
        with (
            connected(servers.bootstrap, database) as mended,
            redirecting(mended, order=FAR_NORTH),
            taking(broker, Taker(), queue="FarNorth") as taker,
        ):
            until(lambda: taker.bodies == [b"0", b"1", b"2"], "it is tried again")
            pool.send(ORDER, b"3", "key")
            until(lambda: taker.bodies == [b"0", b"1", b"2", b"3"], "what is sent then is received")


def test_routers_and_senders_are_killed_and_nothing_is_lost_doubled_or_out_of_order(
    servers: Servers, database: str, tmp_path: Path
) -> None:
    points = [
        "after the handler, before the commit",
        "after the COMMIT is handed to the producer",
        "within emission, what was handed over not delivered",
        "within emission, what was handed over delivered",
    ]
    with connected(servers.bootstrap, database) as broker:
        open_routed(broker)
        with taking(broker, Taker(), queue="North") as taker, pool_of(broker):  # its thread reads the shop's queue
            with PoolSender(servers.bootstrap, database, first=0, keys=KEYS) as sender:
                sender.read_on(59)
                for point in points:
                    job = Job(
                        servers.bootstrap,
                        database,
                        str(tmp_path / "log"),
                        "redirect",
                        partitions=[0, 1],
                        batch=1,
                        die_at=point,
                    )
                    with Worker(job) as router:
                        assert router.wait(60) in {-9, 0}, router.events
                sender.kill()
            with redirecting(broker, order=NORTH), pool_of(broker, name="orders", max_messages=50) as pool:
                lasts = {b"%d last" % key for key in range(KEYS)}
                for key in range(KEYS):
                    pool.send(ORDER, b"%d last" % key, f"key {key}")
                pool.flush()
                until(lambda: lasts <= {message.body for message in taker.taken}, "all is received")
        assert max(Counter(taker.bodies).values()) == 1
        for key in range(KEYS):
            got = of_key(taker.bodies, key)
            numbers = [int(body.split()[1]) for body in got[:-1]]
            assert numbers == list(range(key, KEYS * len(numbers), KEYS)), "in order, and none is missing"
            assert numbers[-1] + KEYS > sender.acknowledged, "what Kafka had is received"
            assert got[-1] == b"%d last" % key
        assert verify(servers.bootstrap, broker.catalog.all(Queue)) == []
