"""Messages that bounced to a pool go first, on real servers (behaviours 228, 229)."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import reduce
from typing import Any
from unittest.mock import patch

import pytest

from konverse.bridge.broker import Broker
from konverse.dialog.transaction.transaction import Transaction
from konverse.schemas.errors import QueueFull, ServiceNotFound
from tests.kit.pools import Taker, pool_of, stream_shop, taking
from tests.kit.servers import Servers
from tests.kit.shop import NOTE, ORDER, connected, end_at_target, until

pytestmark = pytest.mark.stack


@pytest.fixture
def broker(servers: Servers, database: str) -> Iterator[Broker]:
    """The shop, open for streams."""
    with stream_shop(servers.bootstrap, database) as broker:
        yield broker


def test_lock_free_senders_do_not_find_a_place_that_waits_for_an_earlier_conversation(broker: Broker) -> None:
    with pool_of(broker) as pool:
        pool.send(ORDER, b"one", b"key")
        slots = pool._slots
        (slot,), pooled = slots.by_mark.values(), next(iter(slots.pooling.known.values()))
        with slots.changed:
            slots.sends.clear()
            slot.place.awaits.append(pooled)
            slots.publish(slot)
            assert not slots.sends
            slot.place.awaits.clear()
        pool.send(ORDER, b"two", b"key")
        assert slots.sends == {b"key": slot.dialog}


@pytest.mark.parametrize("what", ["routes.open", "context.mailboxes.redirect"])
def test_returned_messages_are_resent_first_although_the_queue_was_full_at_first(broker: Broker, what: str) -> None:
    with pool_of(broker, read=False) as pool:
        pool.send(ORDER, b"first", b"key")
        end_at_target(broker, 0)
        for number in range(3):
            pool.send(ORDER, b"%d" % number, b"key")
        pool.flush()
        *way, name = what.split(".")
        owner = reduce(getattr, way, pool._keeper)
        call, refused = getattr(owner, name), iter([QueueFull("no room")] * 4)

        def called(*arguments: Any) -> Any:
            failure = next(refused, None)
            if failure is not None:
                raise failure
            return call(*arguments)

        full = patch.object(owner, name, side_effect=called)
        with full, taking(broker, pool.answer, "Shop"), taking(broker, Taker()) as taker:
            until(lambda: pool.statistics.replaced, "the end is heard")
            pool.send(ORDER, b"and then", b"key")
            until(lambda: len(taker.bodies) == 4, "all arrives")
            assert taker.bodies == [b"0", b"1", b"2", b"and then"]
            assert next(refused, None) is None, "it was refused before"


@pytest.mark.parametrize(
    ("error", "description", "resent"),
    [(0, "", True), (4711, "no more", False), (10001, 'Error -9719 from service "//depot": given up', True)],
)
def test_undelivered_messages_of_an_ended_conversation_are_resent_first_unless_its_error_forbids_it(
    broker: Broker, caplog: pytest.LogCaptureFixture, error: int, description: str, resent: bool
) -> None:
    """Its target ends it before any message arrives: none is accepted, and all come back."""
    sent = [b"%d" % number for number in range(4)]
    with pool_of(broker, read=False) as pool, caplog.at_level(logging.INFO, "konverse.pool"):
        pool.send(ORDER, b"first", b"key")
        end_at_target(broker, error, description)
        for number, body in enumerate(sent):  # no reader reads the shop's queue, so the pool has not heard of it
            pool.send(ORDER if number % 2 else NOTE, body, b"key")
        pool.flush()
        with taking(broker, pool.answer, "Shop"), taking(broker, Taker()) as taker:
            until(lambda: pool.statistics.replaced, "the end is heard")
            pool.send(ORDER, b"and then", b"key")
            until(lambda: b"and then" in taker.bodies, "what is sent later arrives")
            assert taker.bodies == [*(sent if resent else []), b"and then"]
            assert [message.type for message in taker.taken[:-1]] == ([NOTE, ORDER] * 2 if resent else [])
            assert pool.statistics._replace(recycled=0) == (2, 0, 1, 4 * resent, 4 * (not resent), 0)
        if error:
            assert any(f" received error Code:{error} Description:{description!r}" in one for one in caplog.messages)


def test_a_sender_gets_queue_full_when_returned_messages_cannot_be_resent_in_time(
    servers: Servers, database: str, broker: Broker
) -> None:
    with connected(servers.bootstrap, database, send_timeout_s=3.0) as other:
        pool = pool_of(other)

        def end(transaction: Transaction) -> None:
            for message in transaction:
                pool.send(ORDER, b"comes back", "key")
                pool.flush()
                transaction.end(message.dialog)

        pool.send(ORDER, b"one", "key")
        pool.flush()
        with patch.object(
            pool._keeper.routes, "_begin", side_effect=ServiceNotFound("there is no such service any more")
        ):
            with broker.reader("Orders", timeout=1) as reader:
                reader.run(end)
            until(lambda: pool._keeper.pooling.resends_pending, "what came back was tried once")
            with pytest.raises(QueueFull, match="could not be sent again within 3 s: there is no such service any mo"):
                pool.send(ORDER, b"later", "key")
        with taking(broker, Taker()) as taker:
            until(lambda: b"comes back" in taker.bodies, "it goes again")
            pool.close()
