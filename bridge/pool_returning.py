"""What becomes of messages that have come back to a pool."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final
from uuid import UUID

from konverse.dialog.pooled import GiveUp, Place, Resend
from konverse.schemas.errors import ConversationEnded, InvalidRoute, KonverseError, QueueFull
from konverse.schemas.identifiers import mark_of

from .pool_ways import Ways

if TYPE_CHECKING:
    from konverse.dialog.mailbox import Bounced

    from .pool_slots import Slot

log: Final = logging.getLogger("konverse.pool")


class Returning(Ways):
    """The part of a pool that does what `Pooling` decides about them. What is said of `Keeping` holds here."""

    def _resend(self, effect: Resend) -> None:
        place = effect.place
        slot = self._by_mark.get(mark_of(place.group))
        if slot is None or place.astray is not None:
            return
        self._pooling.hold(place)  # senders that wait for no lock would find a conversation that is opened now
        for name in slot.names:
            self._sends.pop(name, None)
        try:
            to = (slot.dialog or self._open(slot)).staged
            for bounced in effect.bounced:
                self._means.mailboxes.redirect(self._means.sender, to, bounced)
                self._pooling.resent(place)
        except (ConversationEnded, QueueFull, InvalidRoute) as error:  # they stay where they are, and are found again
            slot.refused = str(error)
            log.debug("what came back is sent again later: %s", error)
            if slot.last is None:  # then it is found when something else is begun
                self._pooling.go_past(place)
            return
        except KonverseError as error:
            slot.refused = str(error)
            raise
        self._go_past(place)
        log.info(
            "%d messages to %s came back and were sent again on conversation %s",
            len(effect.bounced),
            self.options.to_service,
            UUID(bytes=to.conversation),
        )

    def _why_waiting(self, slot: Slot) -> str:
        """Why nothing new is sent for a place."""
        to, patience_s = self.options.to_service, self._means.timeout_s
        if slot.refused is not None:
            return (
                f"what a conversation to {to!r} did not deliver has to go first, and could not be sent again within "
                f"{patience_s:g} s: {slot.refused}. It waits where it came back to; try again"
            )
        return (
            f"a conversation to {to!r} was ended, and what it did not deliver has not come back within {patience_s:g} "
            "s, to go first: its queue may have no reader; try again"
        )

    def _go_past(self, place: Place) -> None:
        """What came back to a place has gone again, or is gone: what is new may."""
        self._pooling.go_past(place)
        if (slot := self._by_mark.get(mark_of(place.group))) is not None:
            slot.refused = None
            self._publish(slot)

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
        slot = self._by_mark.get(mark_of(place.group))
        if slot is None or place.astray is not None:
            return
        staged = (slot.dialog or slot.last or self._open(slot)).staged  # any of the group: the session is believed
        for one in bounced:
            self._means.mailboxes.confirm(self._means.sender, staged, one.id)
