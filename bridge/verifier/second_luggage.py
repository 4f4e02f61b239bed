"""What a side takes along when it moves, and what it leaves, for the second fold."""

from __future__ import annotations

from typing import NamedTuple

from konverse.schemas.identifiers import Address
from konverse.schemas.records import Origin


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
    finished: tuple[bool, bool, tuple[tuple[bytes, int], ...] | None]
    """Whether it has said FIN, whether its peer has, and what the peer said of the first."""


class SecondStub(NamedTuple):
    """What it leaves."""

    to: Address
    previous: Address | None
    """Where it lived before it came here."""
    opened: bool
    """Something was said on it, in one direction or the other, as far as was known here."""
