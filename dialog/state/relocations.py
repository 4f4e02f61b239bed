"""Endpoints that moved away from a partition, and endpoints that moved to it (protocol.md section 7.3).

Each move increments the generation of an endpoint. The partition that it leaves keeps a stub under the generation
that left. So an endpoint that comes back finds the stubs of its own past there and is not mistaken for one of them.
"""

from __future__ import annotations

from typing import NamedTuple

from konverse.schemas.identifiers import Address, Role
from konverse.schemas.wire.envelope import encode_suffix
from konverse.schemas.wire.records import NO_SEQUENCE, Closed, Kind, Suffix

from .outbox import Run, Stream


class Stub(NamedTuple):
    """The remainder of an endpoint that moved away: forwards its records."""

    to: Address
    previous: Address | None
    """Where the endpoint lived before it came here; None when it began here."""
    key: bytes | None
    opened: bool
    """Whether the endpoint had sent or received something before it left. A session that redirects to it reads this."""


class Arrival(NamedTuple):
    """Origin of an endpoint that moved here, and the number of its moves."""

    generation: int
    """Number of moves of the endpoint."""
    previous: Address
    first: Address
    """Where it began. Its peer and its session write there."""
    named: bool = False
    """The caller chose the id of its conversation."""


class Moves:
    """Stubs of endpoints that left, and origins of endpoints that arrived."""

    __slots__ = ("arrivals", "count", "installing", "leaving", "stubs")

    def __init__(self) -> None:
        self.stubs: dict[tuple[Role, bytes], dict[int, Stub]] = {}
        """Stubs by side of a conversation, then by generation, lowest first."""
        self.arrivals: dict[int, Arrival] = {}
        """Index -> origin of an endpoint that moved here."""
        self.installing: dict[bytes, list[bytes]] = {}
        """Writer -> pieces of a state that is still incomplete; an owner sends the pieces of one state in a row."""
        self.count = 0
        """Number of stubs."""
        self.leaving: dict[bytes, Address] = {}
        """Group that MOVE CONVERSATION sends to another partition -> that partition, where the other members live."""

    def generation_of(self, index: int) -> int:
        """Number of moves of the endpoint."""
        arrival = self.arrivals.get(index)
        return 0 if arrival is None else arrival.generation

    def leave(self, side: tuple[Role, bytes], generation: int, stub: Stub) -> None:
        """Keep a stub for an endpoint that moved away."""
        self.stubs.setdefault(side, {})[generation] = stub
        self.count += 1

    def close(self, side: tuple[Role, bytes], generation: int) -> Stub | None:
        """Remove a stub and return it; None when there is none."""
        chain = self.stubs.get(side, {})
        stub = chain.pop(generation, None)
        self.count -= stub is not None
        if stub is not None and not chain:
            del self.stubs[side]
        return stub


def tell_closed(stream: Stream, role: Role, conversation: bytes, closed: Closed) -> None:
    """Send CLOSED: the destination may remove its stub of this generation."""
    suffix = encode_suffix(Suffix(detail=closed))
    prefix = stream.head(Kind.CLOSED, role) + conversation
    stream.push(Run(prefix, conversation, NO_SEQUENCE, suffix, [None]))
