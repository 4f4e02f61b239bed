"""What a pool has from its broker, and what it has for each key."""

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
    """What a pool has from its broker."""

    begin: Callable[[Wanted], Dialog]
    adopt: Callable[..., list[Adopted]]
    sender: Sender
    mailboxes: Mailboxes
    ends_of_homes: Callable[[], dict[Address, int]]
    """The ends of the logs of all partitions in which conversations of the pool may have their homes, as of now."""
    check_target: Callable[[str], None]
    """Raises for a service to which a pool was redirected, and with which it cannot talk."""
    timeout_s: float
    """How long Kafka, and the owner of a home, may take to answer."""


class Slot:
    """A place of the pool and the dialog that its senders have now."""

    __slots__ = ("dialog", "key", "last", "names", "place", "refused")

    def __init__(self, place: Place, key: bytes | None) -> None:
        self.place = place
        self.key = key
        """Kafka key of its records; None: the group's."""
        self.names: list[object] = []
        """Under which senders find it."""
        self.dialog: Dialog | None = None
        self.last: Dialog | None = None
        """The latest one, also when it is over: at its home is what came back."""
        self.refused: str | None = None
        """Why what came back could not be sent again, when that was tried last."""
