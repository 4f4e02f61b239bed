"""What the processes of a run experienced: the checks hold it against the logs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from konverse.schemas.identifiers import Address
from konverse.schemas.wire.records import BounceId

from .flushing import Calls
from .handlers import Work
from .kafka import Payload
from .transacting import Tried


class Told(NamedTuple):
    """The answer to a question for an outcome."""

    bodies: list[bytes]
    """That the question was about."""
    received: int
    """So many of them, the first ones, were received; the others never will be."""
    held: bool
    """They had no counters yet: the answer is how far their conversation has come, which what is rejected is not in."""


@dataclass(slots=True)
class History:
    """Calls and their outcomes."""

    handed: dict[tuple[bytes, Address, int], Payload] = field(default_factory=dict)
    """Writer, address and counter of every record that a session handed over."""
    acknowledged: dict[tuple[bytes, Address], int] = field(default_factory=dict)
    """Writer and address -> counter below which the session counts everything as acknowledged."""
    transactions: list[Tried] = field(default_factory=list)
    """Every transaction of a session."""
    calls: Calls = field(default_factory=Calls)
    """What was called on the initiator's side of conversations, and what was reported as done."""
    asked: dict[BounceId, list[bytes | None]] = field(default_factory=dict)
    """Bounce -> what sessions asked for: the conversation to which it should go, or None for a confirmation."""
    told: list[Told] = field(default_factory=list)
    """What somebody was told about messages of a session."""
    skewed: set[bytes] = field(default_factory=set)
    """Writers whose id is so far ahead that their records may be refused."""
    begun: set[bytes] = field(default_factory=set)
    """Conversations that handlers began, whether or not it came to count."""
    begun_again: dict[bytes, int] = field(default_factory=dict)
    """Conversations that were begun once more when their session had ended them, and how often they were anew."""
    works: list[Work] = field(default_factory=list)
    """Every execution of a handler; its place is its nonce."""
    committed: dict[tuple[str, bytes, int], list[Work]] = field(default_factory=dict)
    """Place, claim id and number of every commit that an owner appended -> the executions in it."""
    altered: dict[str, int] = field(default_factory=dict)
    """Services that ALTER SERVICE has put on a queue, and the number of that."""
