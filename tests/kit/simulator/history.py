"""Calls and results of all processes in a run. The checks compare them with the logs."""

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
    """Bodies of the messages in question, in order."""
    received: int
    """This many of them, from the first, were received. The others never will be."""
    held: bool
    """The messages had no counters yet. The answer then counts only received messages, not rejected ones."""


@dataclass(slots=True)
class History:
    """Calls and their outcomes."""

    handed: dict[tuple[bytes, Address, int], Payload] = field(default_factory=dict)
    """(writer, address, counter) → record that a session handed over."""
    acknowledged: dict[tuple[bytes, Address], int] = field(default_factory=dict)
    """(writer, address) → counter below which the session considers all records acknowledged."""
    transactions: list[Tried] = field(default_factory=list)
    """Every transaction of a session."""
    calls: Calls = field(default_factory=Calls)
    """Calls on the initiator's side of conversations, and reports of completion."""
    asked: dict[BounceId, list[bytes | None]] = field(default_factory=dict)
    """Bounce → decisions of sessions: the conversation to redirect to, or None for a confirmation."""
    told: list[Told] = field(default_factory=list)
    """Answers about the outcome of a session's messages."""
    skewed: set[bytes] = field(default_factory=set)
    """Writers whose id is so far ahead of time that their records may be refused."""
    begun: set[bytes] = field(default_factory=set)
    """Conversations that handlers began, whether or not the commit counted."""
    begun_again: set[bytes] = field(default_factory=set)
    """Conversations begun by another session as well, while they lived or after their session ended them."""
    works: list[Work] = field(default_factory=list)
    """Every execution of a handler; its index is its nonce."""
    committed: dict[tuple[str, bytes, int], list[Work]] = field(default_factory=dict)
    """(place, claim id, commit number) of every appended commit → the executions in it."""
    altered: dict[str, int] = field(default_factory=dict)
    """Service → number of the queue on which ALTER SERVICE put it."""
