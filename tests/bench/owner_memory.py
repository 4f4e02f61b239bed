"""Memory of an owner: the cost of one more open conversation."""

from __future__ import annotations

from typing import Final

from konverse.schemas.identifiers import LogIdentity
from tests.bench.many import open_conversations
from tests.bench.measure import resident_growth
from tests.bench.model import Case, Figures, Load, Place, Row, Run


def owner(place: Place, load: Load) -> object:
    """State of an owner with `load.conversations` open conversations, each of which received two messages."""
    return open_conversations(LogIdentity(place.name, 0, bytes(16), bytes(16), bytes(16)), load.conversations)


def product(place: Place, load: Load) -> Figures:
    """Growth of the process per conversation."""
    grown, _ = resident_growth(lambda: owner(place, load))
    return {"bytes_each": grown / load.conversations}


_LOAD: Final = Load(messages=100_000, conversations=100_000)
CASES: Final = (Case((Row("owner-memory", "bytes_each", "B/conversation"),), Run(product, _LOAD)),)
