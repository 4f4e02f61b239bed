"""What becomes of messages that have come back to a pool."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final
from uuid import UUID

from konverse.dialog.pooled import GiveUp, Place, Resend
from konverse.schemas.errors import ConversationEnded, InvalidRoute, QueueFull
from konverse.schemas.identifiers import mark_of

from .pool_ways import Ways

if TYPE_CHECKING:
    from konverse.dialog.mailbox import Bounced

    from .dialog import Dialog
    from .pool_slots import Slot

log: Final = logging.getLogger("konverse.pool")


class Returning(Ways):
    """The part of a pool that does what `Pooling` decides about them. What is said of `Keeping` holds here."""

    def _open(self, slot: Slot) -> Dialog:
        raise NotImplementedError

    def _resend(self, effect: Resend) -> None:
        slot = self._by_mark[mark_of(effect.place.group)]
        if effect.place.astray is not None:
            return
        try:
            to = (slot.dialog or self._open(slot)).staged
            for bounced in effect.bounced:
                self._means.mailboxes.redirect(self._means.sender, to, bounced)
                self._pooling.resent(effect.place)
        except (ConversationEnded, QueueFull, InvalidRoute) as error:  # they stay where they are, and are found again
            log.debug("what came back is sent again later: %s", error)
            return
        log.info(
            "%d messages to %s came back and were sent again on conversation %s",
            len(effect.bounced),
            self.options.to_service,
            UUID(bytes=to.conversation),
        )

    def _give_up(self, effect: GiveUp) -> None:
        kinds = Counter((one.message_type, one.bounce.reason.name) for one in effect.bounced)
        log.error(
            "the target ended a conversation with code %d, which forbids to send again what it did not receive: %s",
            effect.code,
            ", ".join(f"{count} of type {name!r} ({reason})" for (name, reason), count in kinds.items()),
        )
        self._pooling.count(given_up=len(effect.bounced))
        self._confirm(effect.place, effect.bounced)

    def _confirm(self, place: Place, bounced: Sequence[Bounced]) -> None:
        slot = self._by_mark[mark_of(place.group)]
        if place.astray is not None:
            return
        staged = (slot.dialog or self._open(slot)).staged  # any of the group: home takes the word of the session
        for one in bounced:
            self._means.mailboxes.confirm(self._means.sender, staged, one.id)
