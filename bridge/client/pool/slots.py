"""What a pool gets from its broker (`Means`), and what it keeps for each key (`Slot`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from konverse.dialog.pool.places import Place

if TYPE_CHECKING:
    from konverse.bridge.client.adoption import Adopted
    from konverse.bridge.client.begin import Wanted
    from konverse.bridge.client.dialog import Dialog
    from konverse.bridge.client.mailboxes import Mailboxes
    from konverse.bridge.client.sender import Sender
    from konverse.schemas.identifiers import Address


@dataclass(frozen=True, slots=True)
class Means:
    """Calls and objects that a pool gets from its broker."""

    begin: Callable[[Wanted], Dialog]
    adopt: Callable[..., list[Adopted]]
    sender: Sender
    mailboxes: Mailboxes
    ends_of_homes: Callable[[], dict[Address, int]]
    """Returns partition -> present end offset of its data log, for every possible home of the pool's conversations."""
    check_target: Callable[[str], None]
    """Raises when a service that a redirection names does not exist or does not accept the pool's contract."""
    timeout_s: float
    """How long Kafka, and the owner of a home, may take to answer."""


class Slot:
    """A place of the pool, with the dialog that its senders use at present."""

    __slots__ = ("dialog", "key", "last", "names", "place", "refused")

    def __init__(self, place: Place, key: bytes | None) -> None:
        self.place = place
        self.key = key
        """Kafka key of its records; None: the group's id."""
        self.names: list[object] = []
        """Names under which senders find it: keys, thread idents, or numbers below `size`."""
        self.dialog: Dialog | None = None
        self.last: Dialog | None = None
        """The latest dialog, even if it is over: messages that came back are at its home."""
        self.refused: str | None = None
        """Why the last attempt failed to send messages again that came back."""
