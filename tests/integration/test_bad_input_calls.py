"""Waits that cannot be, and transactions on what is no dialog: BadInput names the argument."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from konverse.bridge.broker import Broker
from konverse.bridge.transactions import ClientTransaction
from konverse.schemas.errors import BadInput
from tests.kit.servers import Servers
from tests.kit.shop import begin, connected, open_shop

pytestmark = pytest.mark.stack

NOTHING: Any = None
TEXT: Any = "x"


@pytest.fixture(scope="module")
def shop(servers: Servers) -> Iterator[Broker]:
    """A shop that all tests of this module share: they are refused."""
    with connected(servers.bootstrap, f"calls{time.time_ns()}") as broker:
        open_shop(broker)
        yield broker


def in_transaction(broker: Broker, call: Callable[[ClientTransaction], object]) -> None:
    """Do something in a transaction of a client."""
    with broker.transaction() as transaction:
        call(transaction)


REFUSED: Final[dict[str, tuple[Callable[[Broker], object], str]]] = {
    "a wait that never ends": (lambda b: begin(b).bounced(math.nan), "argument 'timeout'"),
    "a negative wait": (lambda b: begin(b).flush(-1), "argument 'timeout_s'"),
    "more partitions than there are": (
        lambda b: b.reader("Orders").wait_for_partitions(99),
        "99 cannot be ours",
    ),
    "a transaction on no dialog": (lambda b: in_transaction(b, lambda t: t.end(NOTHING)), "no dialog"),
    "a transaction that sends on no dialog": (
        lambda b: in_transaction(b, lambda t: t.send(TEXT)),
        "no dialog",
    ),
    "a transaction that begins nothing": (
        lambda b: in_transaction(b, lambda t: t.begin(NOTHING, NOTHING)),
        "argument 'from_service'",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_is_refused_and_the_error_says_why(shop: Broker, what: str) -> None:
    call, words = REFUSED[what]
    with pytest.raises(BadInput) as caught:
        call(shop)
    assert words in str(caught.value)
