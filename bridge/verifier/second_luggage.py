"""What a side takes along when it moves, and what it leaves, for the second fold."""

from __future__ import annotations

from typing import NamedTuple

from konverse.schemas.identifiers import Address
from konverse.schemas.records import Origin

from .records import Key


class Luggage(NamedTuple):
    """What a side takes along."""

    previous: Address
    code: str
    peer_at: Address
    opener: bytes
    group: bytes
    received: int
    consumed: int
    numbering: int
    voices: tuple[tuple[bytes, int], ...]
    waiting: tuple[tuple[str, bytes, int, Origin], ...]
    error: tuple[str, bytes, int, Origin] | None
    finished: tuple[bool, bool, tuple[tuple[bytes, int], ...] | None, tuple[bytes, ...]]
    """Whether it has said FIN, whether its peer has, what the peer said of the first, and to whom."""
    rang: tuple[str, bytes, int, Origin] | None
    times: tuple[int | None, int | None, str | None]
    """When its timer is due, when its lifetime ends, and what is said when the timer rings."""
    level: int


class SecondStub(NamedTuple):
    """What it leaves."""

    to: Address
    previous: Address | None
    """Where it lived before it came here."""
    opened: bool
    """Something was said on it, in one direction or the other, as far as was known here."""


class SecondMoves:
    """What moved away from one partition, and to it."""

    def __init__(self) -> None:
        self.stubs: dict[Key, dict[int, SecondStub]] = {}
        """By side, then by the generation that left."""
        self.away: dict[Key, bytes] = {}
        """Openers of the sides that have left stubs, if they left behind the place where the fold begins."""
        self.over_elsewhere: set[bytes] = set()
        """Conversations whose sides have left stubs, and ended where they went."""
        self.installing: dict[bytes, list[bytes]] = {}
        """Pieces of a side that is arriving, by who sends them."""
        self.groups: dict[bytes, Address] = {}
        """Groups that the commit which is folded moves, and where to."""
        self.leaving: dict[bytes, Address] = {}
        """Groups that are to go to other partitions, because those live there to which something was moved."""
        self.left: dict[tuple[Key, int], list[Luggage]] = {}
        """What left, by its generation from then on; of several conversations when an id was used again."""
        self.arrived: dict[tuple[Key, int], list[Luggage]] = {}
