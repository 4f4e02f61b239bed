"""Memory of the view: what one more open conversation costs Redis."""

from __future__ import annotations

from typing import Final

from tests.bench.measure import redis_growth
from tests.bench.model import Case, Figures, Load, Place, Row, Run, Unwritten


def view(place: Place, load: Load) -> None:
    """Let the view of the queue `place.name` show `load.conversations` open conversations; close every connection."""
    raise Unwritten


def product(place: Place, load: Load) -> Figures:
    """Growth of the server for each conversation."""
    return {"bytes_each": redis_growth(place.redis_url, lambda: view(place, load)) / load.conversations}


_LOAD: Final = Load(messages=100_000, conversations=100_000)
CASES: Final = (Case((Row("redis-memory", "bytes_each", "B/conversation"),), Run(product, _LOAD), redis=True),)
