"""A body of the largest size in every way of sending, and one byte more."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import pytest

from konverse.bridge.broker import Broker
from konverse.schemas.errors import BodyTooLarge, KonverseError, TransactionTooLarge
from konverse.schemas.limits import BODY_BYTES_MAX
from tests.kit.pools import open_stream, pool_of
from tests.kit.servers import Servers
from tests.kit.shop import NOTE, ORDER, begin, connected, handle, open_shop, receive

pytestmark = pytest.mark.stack

LARGEST: Final = bytes(BODY_BYTES_MAX)

NAMES_BYTES: Final = 1_000
"""More bytes than a client transaction needs for the names of a dialog."""


def directly(broker: Broker, body: bytes) -> None:
    begin(broker).send(ORDER, body)


def in_a_transaction(broker: Broker, body: bytes) -> None:
    dialog = begin(broker)
    with broker.transaction() as transaction:
        transaction.send(dialog, ORDER, body)


def on_several_dialogs(broker: Broker, body: bytes) -> None:
    broker.send([begin(broker)], ORDER, body)


def by_a_pool(broker: Broker, body: bytes) -> None:
    with pool_of(broker, read=False) as pool:
        try:
            pool.send(ORDER, body)
        finally:
            pool.close(timeout=0)


def by_a_handler(broker: Broker, body: bytes) -> None:
    begin(broker).send(ORDER)
    broker.flush()
    handle(broker, "Orders", lambda transaction: transaction.send(transaction.dialog, NOTE, body))


@pytest.fixture
def shop(servers: Servers, database: str) -> Iterator[Broker]:
    """The shop, open for streams."""
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        open_stream(broker)
        yield broker


Way = Callable[[Broker, bytes], None]

FITS: Final[list[tuple[Way, int, str]]] = [
    (directly, BODY_BYTES_MAX, "Orders"),
    (by_a_pool, BODY_BYTES_MAX, "Orders"),
    (by_a_handler, BODY_BYTES_MAX, "Shop"),
    (in_a_transaction, BODY_BYTES_MAX - NAMES_BYTES, "Orders"),
    (on_several_dialogs, BODY_BYTES_MAX - NAMES_BYTES, "Orders"),
]
"""Ways of sending, the largest body according to the guide (first-conversation.md), and where it arrives."""


@pytest.mark.parametrize(("send", "size", "queue"), FITS, ids=[way.__name__ for way, *_ in FITS])
def test_a_body_of_the_largest_size_arrives(shop: Broker, send: Way, size: int, queue: str) -> None:
    send(shop, LARGEST[:size])
    shop.flush()
    bodies = [message.body for message in receive(shop, queue, 1, max_messages=1)]
    assert [body == LARGEST[:size] for body in bodies] == [True]


TOO_LARGE: Final[list[tuple[Way, int, type[KonverseError], str]]] = [
    *[
        (way, BODY_BYTES_MAX + 1, BodyTooLarge, r"960001 bytes; at most 960000 .*send a reference, or its parts")
        for way in (directly, by_a_pool, by_a_handler, in_a_transaction, on_several_dialogs)
    ],
    *[
        (way, BODY_BYTES_MAX, TransactionTooLarge, r"at most 960000 bytes .*on the dialog itself")
        for way in (in_a_transaction, on_several_dialogs)
    ],
]


@pytest.mark.parametrize(
    ("send", "size", "error", "words"), TOO_LARGE, ids=[f"{way.__name__} {size}" for way, size, *_ in TOO_LARGE]
)
def test_a_larger_one_is_refused_with_its_size_the_bound_and_the_way_out(
    shop: Broker, send: Way, size: int, error: type[KonverseError], words: str
) -> None:
    with pytest.raises(error, match=words):
        send(shop, bytes(size))
