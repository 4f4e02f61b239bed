"""Memory of the view: the cost of one more open conversation in Redis."""

from __future__ import annotations

from contextlib import closing
from typing import Final

from konverse.bridge.redis.client import connect_redis
from konverse.bridge.redis.view import ViewStore
from konverse.dialog.owner.view import Show, field_of, pack
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.identifiers import NATIVE_SUBSCRIPTION, LogIdentity
from tests.bench.clients import PARTITIONS
from tests.bench.many import open_conversations
from tests.bench.measure import redis_growth
from tests.bench.model import Case, Figures, Load, Place, Row, Run


def view(place: Place, load: Load) -> None:
    """Write a view of `load.conversations` open conversations, and close every connection."""
    queue = Queue("Orders", place.name, NATIVE_SUBSCRIPTION, PARTITIONS, bytes(16), bytes(16), bytes(16))
    share = load.conversations // PARTITIONS
    with closing(connect_redis(place.redis_url)) as client:
        store = ViewStore(client, queue)
        for number in range(PARTITIONS):
            state = open_conversations(LogIdentity(place.name, number, bytes(16), bytes(16), bytes(16)), share)
            rows = [(field_of(endpoint), pack(endpoint)) for endpoint in state.live()]
            store.show(number, Show(1, 1_000_000, bytes(16), rows, [], 0, share, whole=True))


def product(place: Place, load: Load) -> Figures:
    """Growth of the server per conversation."""
    return {"bytes_each": redis_growth(place.redis_url, lambda: view(place, load)) / load.conversations}


_LOAD: Final = Load(messages=100_000, conversations=100_000)
CASES: Final = (Case((Row("redis-memory", "bytes_each", "B/conversation"),), Run(product, _LOAD), redis=True),)
