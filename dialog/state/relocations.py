"""Where the endpoints of a partition moved to, and whence they came (protocol.md section 7.3): the tables.

Each move of an endpoint makes its generation one higher. The place that it left keeps a stub of the generation that
left, so an endpoint that comes back meets the stubs of its own past and is not mistaken for one of them.
"""

from __future__ import annotations

from typing import NamedTuple

from konverse.schemas.identifiers import Address, Role
from konverse.schemas.wire.envelope import encode_suffix
from konverse.schemas.wire.records import NO_SEQUENCE, Closed, Kind, Suffix

from .outbox import Run, Stream


class Stub(NamedTuple):
    """What is left of an endpoint that moved away."""

    to: Address
    previous: Address | None
    """Where the endpoint lived before it came here; None when it was born here."""
    key: bytes | None
    opened: bool
    """Something was sent or received on it when it left: a session that redirects to it wants to know."""


class Arrival(NamedTuple):
    """What an endpoint that moved here is besides."""

    generation: int
    """How often it has moved."""
    previous: Address


class Moves:
    """Stubs, and the endpoints that came from elsewhere."""

    __slots__ = ("arrivals", "count", "installing", "leaving", "stubs")

    def __init__(self) -> None:
        self.stubs: dict[tuple[Role, bytes], dict[int, Stub]] = {}
        """By side of a conversation, then by generation, the lowest first."""
        self.arrivals: dict[int, Arrival] = {}
        """By index of the endpoint."""
        self.installing: dict[bytes, list[bytes]] = {}
        """Pieces of a state of which not all are here, by writer: an owner sends them one behind the other."""
        self.count = 0
        """Stubs."""
        self.leaving: dict[bytes, Address] = {}
        """Groups that go to another partition, where the group lives to which MOVE CONVERSATION has put them."""

    def generation_of(self, index: int) -> int:
        """How often the endpoint has moved."""
        arrival = self.arrivals.get(index)
        return 0 if arrival is None else arrival.generation

    def leave(self, side: tuple[Role, bytes], generation: int, stub: Stub) -> None:
        """An endpoint has moved away."""
        self.stubs.setdefault(side, {})[generation] = stub
        self.count += 1

    def close(self, side: tuple[Role, bytes], generation: int) -> Stub | None:
        """Remove a stub; what it was."""
        chain = self.stubs.get(side, {})
        stub = chain.pop(generation, None)
        self.count -= stub is not None
        if stub is not None and not chain:
            del self.stubs[side]
        return stub


def tell_closed(stream: Stream, role: Role, conversation: bytes, generation: int) -> None:
    """CLOSED: the stub of this generation may go."""
    suffix = encode_suffix(Suffix(detail=Closed(generation)))
    prefix = stream.head(Kind.CLOSED, role) + conversation
    stream.push(Run(prefix, conversation, NO_SEQUENCE, suffix, [None]))
