"""A million open conversations: the cost of a message among them, against the same loop with a thousand.

Each message goes to a random conversation, so that no cache holds the conversation by chance.
"""

from __future__ import annotations

import random
from typing import Final

from tests.bench import conversations
from tests.bench.loop import reply_to
from tests.bench.measure import Meter
from tests.bench.model import Case, Figures, Load, Place, Row, Run

SEED: Final = 1

OPENING: Final = 2
"""Messages of each conversation before the clock starts.

Envelopes of the first two are decoded in full: the first begins the conversation, the second is the first of its kind.
Later ones show the cost of an open conversation, among few or many.
"""


def filled(place: Place, load: Load) -> Figures:
    """Send OPENING messages in each conversation, then `load.messages` in random conversations."""
    drawn = random.Random(SEED)
    with conversations.connect(place) as broker:
        conversations.create(broker)
        dialogs = conversations.dialogs(broker, load.conversations)
        conversations.send_in_turn(dialogs, OPENING * load.conversations, load.body_bytes)
        for dialog in drawn.choices(dialogs, k=load.messages):
            dialog.send(conversations.MESSAGE, bytes(load.body_bytes))
        broker.flush()
    return {}


def among(place: Place, load: Load) -> Figures:
    """Open all conversations, then receive and answer each message in a transaction of its own."""
    with (
        conversations.connect(place) as broker,
        broker.reader(conversations.QUEUE, batch=load.batch, max_messages=1) as reader,
    ):
        opening = OPENING * load.conversations
        done = reply_to(reader, opening)
        with Meter() as meter:
            measured = reply_to(reader, opening + load.messages - done)
        live = reader.conversations
    if live != load.conversations:
        raise RuntimeError(f"{live} conversations are open, not {load.conversations}")
    return meter.figures(measured)


_MILLION: Final = Load(messages=100_000, conversations=1_000_000)
_THOUSAND: Final = Load(messages=100_000, conversations=1_000)
CASES: Final = (
    Case(
        (Row("crowd", "caller_us", "us CPU/msg"),),
        Run(among, _MILLION, prepare=filled),
        Run(among, _THOUSAND, prepare=filled),
        rounds=1,
    ),
)
