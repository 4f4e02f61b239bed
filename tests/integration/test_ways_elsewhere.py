"""The order of the ways of sending on one side of a dialog, with an operator, a pool or another process among them.

Messages reported as done before another call began arrive first (test_ways.py has the other pairs). These pairs cannot
occur:

- direct, transaction and `broker.send` with a pool: a pool hands out no dialog that they could name;
- transaction and `broker.send` in a process that has adopted the dialog: they are refused, which is tested;
- direct, transaction, `broker.send` and a pool with a Spark write: its conversations belong to no session. Handlers and
  adopting processes do send there (tests/spark/test_write_ways.py);
- a handler behind an operator's end: it gets no more messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from typing import Final

import pytest

from konverse.bridge.broker import Broker
from konverse.bridge.client.begin import BeginClauses
from konverse.bridge.client.dialog import BouncedMessage, Dialog
from konverse.bridge.client.pool.pool import Pool
from konverse.bridge.reader.reader import Reader
from konverse.dialog.session.adoption import FoundState
from konverse.dialog.transaction.received import Message
from konverse.dialog.transaction.transaction import Transaction
from konverse.schemas.errors import ConversationEnded, InvalidState
from konverse.schemas.identifiers import Role
from konverse.schemas.system_messages import END_DIALOG
from konverse.schemas.wire.records import BounceReason
from tests.integration.test_ways import PATIENCE_S, WAYS, Side, eventually, woken
from tests.kit.pools import Taker, open_stream, pool_of, taking
from tests.kit.servers import Servers
from tests.kit.shop import (
    NOTE,
    ORDER,
    ORDER_SERVICE,
    ORDERING,
    RECEIPT,
    SHOP_SERVICE,
    connected,
    end_at_target,
    handle,
    open_shop,
    pumped,
    receive,
    sent,
    state_of,
    until,
)

pytestmark = pytest.mark.stack

CALLS: Final = [way for way in WAYS if way is not Side.send_in_a_handler]
"""Ways that wait for no message."""


@pytest.fixture
def broker(servers: Servers, database: str, instance: str) -> Iterator[Broker]:
    with connected(servers.bootstrap, database, instance=instance) as opened:
        open_shop(opened)
        open_stream(opened)
        yield opened


def arrived(broker: Broker, count: int) -> dict[bytes, list[bytes]]:
    """Conversation → bodies in the orders' queue, in order; END_DIALOG stands for an end."""
    found: dict[bytes, list[bytes]] = {}
    for message in receive(broker, "Orders", count):
        what = END_DIALOG.encode() if message.type == END_DIALOG else message.body
        found.setdefault(message.dialog.conversation, []).append(what)
    return found


def fail(_: Transaction) -> None:
    raise ZeroDivisionError


def _as_many(back: list[BouncedMessage], names: list[bytes]) -> list[BouncedMessage]:
    return back if len(back) == len(names) else []


def test_flushed_messages_of_every_sending_method_arrive_before_an_operators_end_and_bounce_after_it(
    broker: Broker,
) -> None:
    dialogs = woken(broker, len(WAYS), 2)
    with broker.reader("Shop", timeout=1.0, max_messages=1) as reader:
        sides = [Side(broker, reader, dialog) for dialog in dialogs]
        sides[WAYS.index(Side.send_in_a_handler)].send_in_a_handler(Side.send_in_a_handler.__name__.encode())
        reader.run(fail)
        assert {one.id for one in reader.operations.suspended} == {dialog.id for dialog in dialogs}
        for way, side in zip(WAYS, sides, strict=True):
            if way in CALLS:
                way(side, way.__name__.encode())
        for dialog in dialogs:
            reader.operations.end(dialog.id)
        reader.settle()
        with broker.reader("Orders") as target, pumped(reader, target):
            for side in sides:
                for way in CALLS:
                    way(side, way.__name__.encode())
                names = [way.__name__.encode() for way in CALLS]
                back = until(lambda: _as_many(side.dialog.bounced(), names), "what was sent behind it comes back")  # noqa: B023  # called here
                assert [(message.body, message.reason) for message in back] == [
                    (name, BounceReason.ENDED) for name in names
                ]
    assert arrived(broker, 2 * len(WAYS)) == {
        dialog.id.bytes: [way.__name__.encode(), END_DIALOG.encode()] for way, dialog in zip(WAYS, dialogs, strict=True)
    }


@contextmanager
def owned(broker: Broker) -> Iterator[None]:
    """Run readers of both queues that receive nothing."""
    with broker.reader("Orders") as orders, broker.reader("Shop") as home, pumped(orders, home):
        orders.wait_for_partitions(orders.queue.partitions)
        home.wait_for_partitions(home.queue.partitions)
        yield


def test_flushed_messages_of_every_sending_method_arrive_before_those_of_an_adopting_process(
    broker: Broker, servers: Servers, database: str, instance: str
) -> None:
    pairs = [*product(WAYS, (Side.send_directly, Side.send_in_a_handler))]
    dialogs = woken(broker, len(pairs), 2)
    with broker.reader("Shop", max_messages=1) as reader:
        for (before, _), dialog in zip(pairs, dialogs, strict=True):
            before(Side(broker, reader, dialog), b"before by " + before.__name__.encode())
    with connected(servers.bootstrap, database, instance=instance) as successor:
        wanted = [BeginClauses(SHOP_SERVICE, ORDER_SERVICE, ORDERING, conversation_id=dialog.id) for dialog in dialogs]
        with owned(broker):
            found = successor._client.adopt(wanted)
        assert {one.standing for one in found} == {FoundState.OPEN}
        adopted: list[Dialog] = [one.dialog for one in found]
        with successor.reader("Shop", max_messages=1) as reader:
            for (_, behind), dialog in zip(pairs, adopted, strict=True):
                behind(Side(successor, reader, dialog), b"behind by " + behind.__name__.encode())
            for way in (Side.send_in_a_transaction, Side.send_to_several):
                with pytest.raises(InvalidState, match="the dialog was adopted, or messages were redirected to it"):
                    way(Side(successor, reader, adopted[0]), b"never")
    assert arrived(broker, 2 * len(pairs)) == {
        dialog.id.bytes: [b"before by " + before.__name__.encode(), b"behind by " + behind.__name__.encode()]
        for (before, behind), dialog in zip(pairs, dialogs, strict=True)
    }


class Pooled:
    """A side of a pool's conversation: the pool's sends, and the application's handler."""

    def __init__(self, pool: Pool, reader: Reader) -> None:
        self.pool = pool
        self.reader = reader

    def send(self, body: bytes) -> None:
        self.pool.send(NOTE, body, b"key")
        self.pool.flush()

    def handle(self, body: bytes) -> None:
        with next(iter(self.reader)) as transaction:
            (message,) = self.pool.answer(transaction)
            transaction.send(message.dialog, NOTE, body)
        self.reader.settle()


def answer(broker: Broker, times: int) -> Message:
    """The order service answers the first message of a conversation `times` times."""
    with broker.reader("Orders", timeout=PATIENCE_S) as reader:
        with next(iter(reader)) as transaction:
            (message,) = transaction
            for _ in range(times):
                transaction.send(message.dialog, RECEIPT)
        reader.settle()
    return message


def test_messages_of_a_pool_its_handlers_and_its_successor_arrive_in_the_order_of_the_calls(
    broker: Broker, servers: Servers, database: str, instance: str
) -> None:
    """The pool, a handler, and the pool of that name in another process, each before each other."""
    expected: list[bytes] = []
    pool = pool_of(broker, name="ways", read=False)
    pool.send(ORDER, b"first", b"key")
    pool.flush()
    conversation = answer(broker, 6).dialog.conversation
    with broker.reader("Shop", max_messages=1, timeout=PATIENCE_S) as reader:
        side = Pooled(pool, reader)
        for number, way in enumerate((side.send, side.handle, side.handle, side.send, side.send, side.handle)):
            expected.append(b"%d %s" % (number, way.__name__.encode()))
            way(expected[-1])
    with connected(servers.bootstrap, database, instance=instance) as successor:
        with owned(broker):
            other = pool_of(successor, name="ways", read=False)
            other.send(NOTE, b"taken over", b"key")
            other.flush()
        expected.append(b"taken over")
        with successor.reader("Shop", max_messages=1, timeout=PATIENCE_S) as reader:
            side = Pooled(other, reader)
            for number, way in enumerate((side.handle, side.send, side.send, side.handle)):
                expected.append(b"%d %s of another" % (number, way.__name__.encode()))
                way(expected[-1])
        assert arrived(broker, len(expected)) == {conversation: expected}


@pytest.mark.parametrize(("error", "state"), [(0, "DI"), (7, "ER")])
def test_050_a_send_on_an_adopted_dialog_after_an_unreceived_end_is_refused(  # noqa: PLR0917  # fixtures
    broker: Broker, servers: Servers, database: str, instance: str, error: int, state: str
) -> None:
    """And 51. A direct send, and a handler; an adopted dialog takes no other."""
    ways = (Side.send_directly, Side.send_in_a_handler)
    dialogs = [sent(broker, b"0") for _ in ways]
    with broker.reader("Shop") as home:
        for dialog in dialogs:  # who adopts it reads the journal of its home
            eventually(home, lambda: state_of(home, Role.INITIATOR, dialog) == "SO", "the BEGIN")  # noqa: B023  # called here
    wanted = [BeginClauses(SHOP_SERVICE, ORDER_SERVICE, ORDERING, conversation_id=dialog.id) for dialog in dialogs]
    with connected(servers.bootstrap, database, instance=instance) as successor:
        with owned(broker):
            found = successor._client.adopt(wanted)
        assert {one.standing for one in found} == {FoundState.OPEN}
        for _ in found:
            end_at_target(successor, error)
        with successor.reader("Shop") as reader:
            for way, (dialog, _) in zip(ways, found, strict=True):
                eventually(reader, lambda: state_of(reader, Role.INITIATOR, dialog) == state, "the end")  # noqa: B023  # called here
                with pytest.raises((ConversationEnded, InvalidState)) as refused:
                    way(Side(successor, reader, dialog), b"1")
                assert refused.value.number == 8429, way.__name__


@pytest.mark.parametrize(("error", "state"), [(0, "DI"), (7, "ER")])
def test_225_a_pool_begins_a_new_dialog_after_an_unreceived_end(broker: Broker, error: int, state: str) -> None:
    """What it sends is received once, in order: a reader of the target tells it that nothing comes back."""
    with pool_of(broker, read=False) as pool:
        pool.send(ORDER, b"first", b"key")
        pool.flush()

        def end(transaction: Transaction) -> bytes:
            (message,) = transaction
            transaction.end(message.dialog, error=error, description="no more" if error else "")
            return message.dialog.conversation

        first = handle(broker, "Orders", end)

        def known(home: Reader) -> bool:
            endpoint = home.ask(0, lambda partition: partition.endpoint(Role.INITIATOR, first))
            return endpoint is not None and endpoint.state.code == state

        with broker.reader("Shop") as reader:
            eventually(reader, lambda: known(reader), "the end")
            with broker.reader("Orders") as target, pumped(reader, target):
                pool.send(ORDER, b"second", b"key")
                pool.flush()
        with taking(broker, pool.answer, "Shop"), taking(broker, Taker()) as taker:
            until(lambda: pool.statistics.replaced, "the end is received")
            pool.send(ORDER, b"third", b"key")
            until(lambda: len(taker.bodies) == 2, "all is received")  # second and third
            assert taker.bodies == [b"second", b"third"]
            assert first not in {message.dialog.conversation for message in taker.taken}
            assert pool.statistics.begun == 2  # a second dialog, for both
            pool.close()


def test_messages_of_a_pool_arrive_before_the_end_of_an_operator_and_later_ones_on_its_next_conversation(
    broker: Broker,
) -> None:
    with pool_of(broker) as pool:
        pool.send(ORDER, b"before", b"key")
        pool.flush()
        (side,) = until(lambda: [*broker.views.conversation_endpoints("Shop")], "the pool's conversation")
        broker.operations.end(side.conversation_id, queue="Shop")
        pool.send(ORDER, b"after", b"key")
        pool.flush()
        found = arrived(broker, 3)
        assert found.pop(side.conversation_id.bytes) == [b"before", END_DIALOG.encode()]
        assert [*found.values()] == [[b"after"]]


def test_messages_on_an_adopted_dialog_arrive_before_the_end_of_an_operator_and_later_ones_come_back(
    broker: Broker, servers: Servers, database: str, instance: str
) -> None:
    (dialog,) = woken(broker, 1, 1)
    with connected(servers.bootstrap, database, instance=instance) as successor:
        with owned(broker):
            ((adopted, _),) = successor._client.adopt(
                [BeginClauses(SHOP_SERVICE, ORDER_SERVICE, ORDERING, conversation_id=dialog.id)]
            )
            adopted.send(NOTE, b"before")
            adopted.flush()
            broker.operations.end(dialog.id, queue="Shop")
            adopted.send(NOTE, b"after")
            adopted.flush()
            back = until(lambda: _as_many(adopted.bounced(), [b"after"]), "the later message comes back")
        assert [(message.body, message.reason) for message in back] == [(b"after", BounceReason.ENDED)]
    assert arrived(broker, 2) == {dialog.id.bytes: [b"before", END_DIALOG.encode()]}
