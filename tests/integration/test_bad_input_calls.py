"""Invalid arguments, outside and inside transactions: BadInput names the argument and the remedy."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from konverse.bridge.broker import Broker
from konverse.bridge.client.transaction import ClientTransaction
from konverse.dialog.transaction.transaction import Transaction
from konverse.schemas.errors import BadInput
from tests.kit.pools import open_stream, pool_of
from tests.kit.servers import Servers
from tests.kit.shop import ORDER, ORDER_SERVICE, ORDERING, begin, connected, open_shop

pytestmark = pytest.mark.stack

NOTHING: Any = None
TEXT: Any = "x"
LIST: Any = []
NO_NUMBER: Any = math.nan


@pytest.fixture(scope="module")
def shop(servers: Servers) -> Iterator[Broker]:
    """A shop shared by all tests of this module, because all their requests are refused."""
    with connected(servers.bootstrap, f"calls{time.time_ns()}") as broker:
        open_shop(broker)
        open_stream(broker)
        yield broker


def in_transaction(broker: Broker, call: Callable[[ClientTransaction], object]) -> None:
    """Make a call in a client's transaction."""
    with broker.transaction() as transaction:
        call(transaction)


def pool_answers(broker: Broker, what: Any) -> None:
    """Let a pool answer something that is no transaction."""
    with pool_of(broker, read=False) as pool:
        pool.answer(what)


REFUSED: Final[dict[str, tuple[Callable[[Broker], object], str]]] = {
    "a wait that never ends": (lambda b: begin(b).bounced(math.nan), "argument 'timeout'"),
    "a negative wait": (lambda b: begin(b).flush(-1), "argument 'timeout_s'"),
    "more partitions than there are": (
        lambda b: b.reader("Orders").wait_for_partitions(99),
        "cannot have 99",
    ),
    "a transaction on no dialog": (lambda b: in_transaction(b, lambda t: t.end(NOTHING)), "not a dialog"),
    "a transaction that sends on no dialog": (
        lambda b: in_transaction(b, lambda t: t.send(TEXT)),
        "not a dialog",
    ),
    "a transaction that begins nothing": (
        lambda b: in_transaction(b, lambda t: t.begin(NOTHING, NOTHING)),
        "argument 'from_service'",
    ),
    "what reads no queue": (lambda b: b.operations.reading_states(NOTHING), "reading_states: argument 'queue'"),
    "a list for a queue": (lambda b: b.operations.reading_states(LIST), "reading_states: argument 'queue'"),
    "nothing to drain": (lambda b: b.operations.draining(NOTHING), "draining: argument 'queues'"),
    "a text of queues to drain": (lambda b: b.operations.draining("Orders"), "draining: argument 'queues'"),
    "names to verify": (lambda b: b.operations.verification([TEXT]), "verification: argument 'queues'"),
    "no time to verify from": (lambda b: b.operations.verification([], since_ms=NO_NUMBER), "argument 'since_ms'"),
    "a text of columns": (lambda b: b.views.conversation_endpoints(columns="state"), "write columns=[…]"),
    "no text of columns": (lambda b: b.views.conversation_endpoints(columns=""), "write columns=[…]"),
    "a column like no other": (
        lambda b: b.views.conversation_endpoints(columns=("?",)),
        "it has conversation_handle, ",
    ),
    "a pool that answers nothing": (lambda b: pool_answers(b, NOTHING), "answer takes a transaction"),
    "a pool that answers a text": (lambda b: pool_answers(b, TEXT), "answer takes a transaction"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_an_invalid_call_is_refused_with_an_error_that_states_the_reason(shop: Broker, what: str) -> None:
    call, words = REFUSED[what]
    with pytest.raises(BadInput) as caught:
        call(shop)
    assert words in str(caught.value)


HANDLER: Final[dict[str, tuple[Callable[[Transaction], object], str]]] = {
    "from no service": (lambda t: t.begin(NOTHING, ORDER_SERVICE, ORDERING), "argument 'from_service'"),
    "from a list": (lambda t: t.begin(LIST, ORDER_SERVICE, ORDERING), "argument 'from_service'"),
    "to a list": (lambda t: t.begin(ORDER_SERVICE, LIST, ORDERING), "argument 'to_service'"),
    "a list for a contract": (lambda t: t.begin(ORDER_SERVICE, ORDER_SERVICE, LIST), "argument 'contract'"),
    "a text for a key": (lambda t: begun(t, key=TEXT), "argument 'key' must be bytes, not 'x'; encode it first"),
    "an empty text for a key": (lambda t: begun(t, key=""), "argument 'key' must be bytes"),
    "a number for a key": (lambda t: begun(t, key=7), "argument 'key' must be bytes"),
    "a list for a key": (lambda t: begun(t, key=LIST), "argument 'key' must be bytes"),
    "fewer routers than none": (lambda t: begun(t, hops=-1), "argument 'hops'"),
    "too many routers": (lambda t: begun(t, hops=1_000), "argument 'hops'"),
    "a text for routers": (lambda t: begun(t, hops=TEXT), "argument 'hops'"),
    "an empty list for routers": (lambda t: begun(t, hops=LIST), "argument 'hops'"),
    "none for routers": (lambda t: begun(t, hops=NOTHING), "argument 'hops'"),
    "no number of messages": (lambda t: t.receive(NO_NUMBER), "leave it out for all"),
    "a text of messages": (lambda t: t.receive(TEXT), "leave it out for all"),
    "a list of messages": (lambda t: t.receive(LIST), "leave it out for all"),
    "no messages": (lambda t: t.receive(0), "leave it out for all"),
}
"""Arguments that a handler may not give."""


def begun(transaction: Transaction, **clauses: Any) -> None:
    """Begin in a handler, with invalid clauses."""
    transaction.begin(ORDER_SERVICE, ORDER_SERVICE, ORDERING, **clauses)


@pytest.fixture(scope="module")
def handling(servers: Servers) -> Iterator[Transaction]:
    """A transaction of the order service, in which nothing was done."""
    with connected(servers.bootstrap, f"handler{time.time_ns()}") as broker:
        open_shop(broker)
        begin(broker).send(ORDER)
        broker.flush()
        with broker.reader("Orders") as reader, next(iter(reader)) as transaction:
            yield transaction


@pytest.mark.parametrize("what", HANDLER)
def test_invalid_arguments_in_a_handler_are_refused_and_nothing_is_staged(handling: Transaction, what: str) -> None:
    call, words = HANDLER[what]
    with pytest.raises(BadInput) as caught:
        call(handling)
    assert words in str(caught.value)
    assert handling.idle
