"""What the processes of a run experienced: the checks hold it against the logs."""

from __future__ import annotations

from dataclasses import dataclass, field

from konverse.schemas.identifiers import Address
from konverse.schemas.records import BounceId

from .handlers import Work
from .kafka import Payload
from .transacting import Tried


@dataclass(slots=True)
class History:
    """Calls and their outcomes."""

    handed: dict[tuple[bytes, Address, int], Payload] = field(default_factory=dict)
    """Writer, address and counter of every record that a session handed over."""
    acknowledged: dict[tuple[bytes, Address], int] = field(default_factory=dict)
    """Writer and address -> counter below which the session counts everything as acknowledged."""
    transactions: list[tuple[bytes, Tried]] = field(default_factory=list)
    """Every transaction of a session, with its writer."""
    asked: dict[BounceId, list[bytes | None]] = field(default_factory=dict)
    """Bounce -> what sessions asked for: the conversation to which it should go, or None for a confirmation."""
    works: list[Work] = field(default_factory=list)
    """Every execution of a handler; its place is its nonce."""
    committed: dict[tuple[str, bytes, int], list[Work]] = field(default_factory=dict)
    """Place, claim id and number of every commit that an owner appended -> the executions in it."""
