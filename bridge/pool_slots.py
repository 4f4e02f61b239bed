"""What a pool has from its broker, and what it has for each key."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from konverse.dialog.pooled import Place

if TYPE_CHECKING:
    from .adopting import Adopted
    from .dialog import Dialog
    from .mailboxes import Mailboxes
    from .sending import Sender


@dataclass(frozen=True, slots=True)
class Means:
    """What a pool has from its broker."""

    begin: Callable[..., Dialog]
    adopt: Callable[..., list[Adopted]]
    sender: Sender
    mailboxes: Mailboxes
    timeout_s: float
    """How long Kafka, and the owner of a home, may take to answer."""


class Slot:
    """A place of the pool and the dialog that its senders have now."""

    __slots__ = ("adopted", "begun", "dialog", "key", "names", "place")

    def __init__(self, place: Place, key: bytes | None) -> None:
        self.place = place
        self.key = key
        """Kafka key of its records; None: the group's."""
        self.adopted = False
        """What another process had left was looked for."""
        self.begun: Dialog | None = None
        """To be used if nothing was left."""
        self.names: list[object] = []
        """Under which senders find it."""
        self.dialog: Dialog | None = None
