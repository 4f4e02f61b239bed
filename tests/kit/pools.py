"""A pool of the shop's conversations, and a target that answers EndOfStream, for tests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from konverse.bridge.broker import Broker
from konverse.bridge.client.pool.pool import Pool
from konverse.dialog.transaction.received import Message
from konverse.dialog.transaction.transaction import Transaction
from konverse.schemas.system_messages import END_DIALOG, ERROR
from tests.kit.oracle import verify
from tests.kit.shop import NOTE, ORDER, ORDER_SERVICE, RECEIPT, SHOP_SERVICE, connected, open_shop, queue_of

STREAM_END: Final = "EndOfStream"
STREAMING: Final = "//sales/Streaming"


def open_stream(broker: Broker) -> None:
    """What a pool needs besides the shop: a contract with EndOfStream, which the order service accepts."""
    broker.create_message_type(STREAM_END)
    broker.create_contract(STREAMING, {ORDER: "INITIATOR", NOTE: "ANY", RECEIPT: "TARGET", STREAM_END: "INITIATOR"})
    broker.alter_service(ORDER_SERVICE, add=[STREAMING])


@contextmanager
def stream_shop(bootstrap: str, database: str) -> Iterator[Broker]:
    """The shop of two partitions, open for streams too; at the end its logs are as they should be."""
    with connected(bootstrap, database) as broker:
        open_shop(broker, partitions=2)
        open_stream(broker)
        yield broker
        assert verify(bootstrap, [queue_of(broker, "Orders"), queue_of(broker, "Shop")]) == []


def pool_of(broker: Broker, **options: Any) -> Pool:
    """A pool from the shop to the order service."""
    return broker.pool(SHOP_SERVICE, ORDER_SERVICE, STREAMING, **options)


Handler = TypeVar("Handler", bound=Callable[[Transaction], object])


def left_open(broker: Broker) -> list[str]:
    """The endpoints that live, in words."""
    rows = broker.views.conversation_endpoints()
    return [f"{one.conversation_id} {one.state_desc} initiator: {one.is_initiator}" for one in rows]


class Taker:
    """An order service: takes what comes, and ends a conversation when it is told that nothing more comes."""

    def __init__(self) -> None:
        self.taken: list[Message] = []
        self.finished: list[bytes] = []
        """Conversations that have had EndOfStream."""
        self.behind: list[Message] = []
        """Messages behind it."""
        self._lock = threading.Lock()

    def __call__(self, transaction: Transaction) -> None:
        """A handler."""
        took, finished, behind = [], [], []
        for message in transaction:
            if message.dialog.conversation in finished:
                behind.append(message)
            elif message.type in (END_DIALOG, ERROR):
                transaction.end(message.dialog)
            elif message.type == STREAM_END:
                finished.append(message.dialog.conversation)
                transaction.end(message.dialog)
            else:
                took.append(message)
        with self._lock:
            self.taken += took
            self.finished += finished
            self.behind += behind

    @property
    def bodies(self) -> list[bytes]:
        """Of what was taken, in that order."""
        with self._lock:
            return [message.body for message in self.taken]


@contextmanager
def taking(broker: Broker, taker: Handler, queue: str = "Orders", **options: Any) -> Iterator[Handler]:
    """The order service, or whoever has that queue, at work while the block runs."""
    with broker.reader(queue, **options) as reader:
        thread = threading.Thread(target=reader.run, args=(taker,))
        thread.start()
        try:
            yield taker
        finally:
            reader.stop()
            thread.join()
