"""A pool of the shop's conversations, and a target that understands EndOfStream."""

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
    """Add what a pool needs to the shop: a contract with EndOfStream, accepted by the order service."""
    broker.admin.create_message_type(STREAM_END)
    broker.admin.create_contract(
        STREAMING, {ORDER: "INITIATOR", NOTE: "ANY", RECEIPT: "TARGET", STREAM_END: "INITIATOR"}
    )
    broker.admin.alter_service(ORDER_SERVICE, add=[STREAMING])


@contextmanager
def stream_shop(bootstrap: str, database: str) -> Iterator[Broker]:
    """A shop of two partitions, open for streams. Leaving the block verifies its logs."""
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
    """Living endpoints, in words."""
    rows = broker.views.conversation_endpoints()
    return [f"{one.conversation_id} {one.state_desc} initiator: {one.is_initiator}" for one in rows]


def _place(message: Message) -> tuple[int, int]:
    return message.context.partition, message.offset


class Taker:
    """The order service: takes messages and ends a conversation at EndOfStream."""

    def __init__(self) -> None:
        self.taken: list[Message] = []
        self.finished: list[bytes] = []
        """Conversations that have received EndOfStream."""
        self.ended: list[bytes] = []
        """Conversations that have received EndDialog or Error instead."""
        self.behind: list[Message] = []
        """Messages after EndOfStream in one transaction."""
        self._lock = threading.Lock()

    def __call__(self, transaction: Transaction) -> None:
        """Handle one transaction."""
        took, finished, ended, behind = [], [], [], []
        for message in transaction:
            if message.dialog.conversation in finished:
                behind.append(message)
            elif message.type in (END_DIALOG, ERROR):
                ended.append(message.dialog.conversation)
                transaction.end(message.dialog)
            elif message.type == STREAM_END:
                finished.append(message.dialog.conversation)
                transaction.end(message.dialog)
            else:
                took.append(message)
        with self._lock:
            self.taken += took
            self.finished += finished
            self.ended += ended
            self.behind += behind

    @property
    def bodies(self) -> list[bytes]:
        """Bodies of the taken messages, in order of arrival.

        That is also the order in which the messages of one conversation were handled. Those of a new conversation may
        be handled before the rest of a former one.
        """
        with self._lock:
            taken = [*self.taken]
        last: dict[bytes, int] = {}
        for message in taken:
            assert last.get(message.dialog.conversation, -1) < message.offset, "each conversation is handled in order"
            last[message.dialog.conversation] = message.offset
        return [message.body for message in sorted(taken, key=_place)]


@contextmanager
def taking(broker: Broker, taker: Handler, queue: str = "Orders", **options: Any) -> Iterator[Handler]:
    """Run `taker` as the handler of a queue while the block runs."""
    with broker.reader(queue, **options) as reader:
        thread = threading.Thread(target=reader.run, args=(taker,))
        thread.start()
        try:
            yield taker
        finally:
            reader.stop()
            thread.join()
