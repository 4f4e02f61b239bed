"""Sides that have moved, in the second fold: how they left, how they arrived, and the stubs that they left behind."""

from __future__ import annotations

from typing import NamedTuple

from konverse.bridge.verifier.records import Key
from konverse.schemas.identifiers import Address
from konverse.schemas.wire.records import Origin


class MovedState(NamedTuple):
    """The state of a side that moves, as it left or as it arrived; the two must be equal."""

    previous: Address
    named: bool
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
    """Whether this side has sent FIN, whether its peer has, the peer's answer to this side's FIN, and the writers whose
    FIN the peer has answered."""
    rang: tuple[str, bytes, int, Origin] | None
    times: tuple[int | None, int | None, str | None]
    """When its timer is due, when its lifetime ends, and the type of the message to send when the timer rings."""
    level: int


class SecondStub(NamedTuple):
    """The stub of a side that has moved away."""

    to: Address
    previous: Address | None
    """Where it lived before this place."""
    opened: bool
    """Whether a message had been sent in either direction, as far as this partition knew."""


class SecondMoves:
    """Sides that have moved away from a partition, and to it."""

    def __init__(self) -> None:
        self.stubs: dict[Key, dict[int, SecondStub]] = {}
        """Side -> generation that left -> its stub."""
        self.away: dict[Key, bytes] = {}
        """Side that left a stub -> its opener; only for moves that this fold has seen."""
        self.over_elsewhere: set[bytes] = set()
        """Conversations that moved away and are over where they went."""
        self.installing: dict[bytes, list[bytes]] = {}
        """Sender -> pieces of a side that is arriving."""
        self.groups: dict[bytes, Address] = {}
        """Group -> partition to which the COMMIT being folded moves it."""
        self.leaving: dict[bytes, Address] = {}
        """Group -> partition to which it has to move: MOVE CONVERSATION put a side into a group that lives there."""
        self.left: dict[tuple[Key, int], list[MovedState]] = {}
        """Side and its new generation -> state as it left; several if the id was used again."""
        self.arrived: dict[tuple[Key, int], list[MovedState]] = {}
