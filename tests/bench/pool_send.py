"""Sends through a pool: the same messages on the same number of conversations, found by their keys."""

from __future__ import annotations

import os
from typing import Final

from tests.bench import conversations, send
from tests.bench.measure import Meter
from tests.bench.model import Case, Figures, Load, Place, Row, Run

STREAM_END: Final = "EndOfStream"


def product(place: Place, load: Load) -> Figures:
    """Send `load.messages` with `Pool.send` over `load.conversations` keys in turn, until all are acknowledged."""
    with conversations.connect(place) as broker:
        conversations.create(broker)
        broker.admin.create_message_type(STREAM_END)
        broker.admin.create_contract("//stream", {conversations.MESSAGE: "INITIATOR", STREAM_END: "INITIATOR"})
        pool = broker.pool("//order/shop", "//order/service", "//stream", read=False)
        keys = [b"%d" % number for number in range(load.conversations)]
        body = os.urandom(load.body_bytes)

        def in_turn(messages: int) -> None:
            for i in range(messages):
                pool.send(conversations.MESSAGE, body, keys[i % load.conversations])
            pool.flush()

        in_turn(send.WARM_UP_MESSAGES)
        with Meter() as meter:
            in_turn(load.messages)
    return meter.figures(load.messages)


_LOAD: Final = Load(messages=1_000_000)
"""Enough for several seconds: a pool checks its homes once a second, and a short run might contain no such check."""

CASES: Final = (Case((Row("pool-send", "rate", "msg/s"),), Run(product, _LOAD), Run(send.product, _LOAD), rounds=5),)
"""The raw counterpart is `Dialog.send`."""
