"""The calls and objects of the broker that each part of a pool uses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from konverse.bridge.client.adoption import AdoptedConversation
    from konverse.bridge.client.begin import BeginClauses
    from konverse.bridge.client.dialog import Dialog
    from konverse.bridge.client.mailboxes import Mailboxes
    from konverse.bridge.client.sender import Sender
    from konverse.schemas.catalog.table_entries import Target
from konverse.schemas.identifiers import Address


@dataclass(frozen=True, slots=True)
class PoolContext:
    """Calls and objects that a pool gets from its broker."""

    begin: Callable[[BeginClauses], Dialog]
    adopt: Callable[..., list[AdoptedConversation]]
    sender: Sender
    mailboxes: Mailboxes
    ends_of_homes: Callable[[], dict[Address, int]]
    """Returns partition -> present end offset of its data log, for every possible home of the pool's conversations."""
    check_target: Callable[[Target], None]
    """Raises when a service that a redirection names does not exist or does not accept the pool's contract."""
    timeout_s: float
    """How long Kafka, and the owner of a home, may take to answer."""
