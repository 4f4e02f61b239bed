"""Resends messages that came back to a pool, or gives them up when their target's Error forbids resending.

The home of a place moves each message from its mailbox to the place's present conversation. Until all of them have
moved, new messages of the place wait.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final
from uuid import UUID

from konverse.bridge.runtime.settings import PoolOptions
from konverse.dialog.pool.places import GiveUp, PoolPlace, Resend
from konverse.schemas.counting import counted, listed
from konverse.schemas.errors import ConversationEnded, InvalidRoute, KonverseError, QueueFull

from .context import PoolContext
from .routes import PoolRoutes
from .slots import Slot, Slots

if TYPE_CHECKING:
    from konverse.dialog.state.mailbox import Bounced

log: Final = logging.getLogger("konverse.pool")


class PoolResends:
    """Resends of one pool. Called under the lock of `slots`."""

    def __init__(self, options: PoolOptions, context: PoolContext, slots: Slots, routes: PoolRoutes) -> None:
        self._options = options
        self._context = context
        self._slots = slots
        self._routes = routes

    def resend(self, effect: Resend) -> None:
        """Resend messages, in order, on the conversation of their place; begin one if there is none."""
        place, pooling = effect.place, self._slots.pooling
        slot = self._slots.find(place)
        if slot is None or place.astray is not None:
            return
        pooling.hold_sends(place)  # else senders on the fast path could use a conversation that is opened below
        self._slots.hide(slot)
        try:
            to = (slot.dialog or self._routes.open(slot)).staged
            for bounced in effect.bounced:
                self._context.mailboxes.redirect(self._context.sender, to, bounced)
                pooling.resent(place)
        except (ConversationEnded, QueueFull, InvalidRoute) as error:  # the next check finds them in the mailbox again
            slot.refused = str(error)
            log.debug(
                "returned messages of conversation group %s, %s, will be resent later: %s",
                UUID(bytes=place.group),
                self._options.title,
                error,
            )
            if slot.last is None:  # no home to ask: they are found once a conversation is begun
                pooling.resume_sends(place)
            return
        except KonverseError as error:
            slot.refused = str(error)
            raise
        self.resume_sends(place)
        log.info(
            "%s has resent %s on conversation %s",
            self._options.title,
            counted(len(effect.bounced), "returned message"),
            UUID(bytes=to.conversation),
        )

    def resume_sends(self, place: PoolPlace) -> None:
        """Allow new messages of a place: the messages that came back to it were resent or are gone."""
        self._slots.pooling.resume_sends(place)
        if (slot := self._slots.find(place)) is not None:
            slot.refused = None
            self._slots.publish(slot)

    def give_up(self, effect: GiveUp) -> None:
        """Log messages that must not be resent, and remove them from the mailbox."""
        kinds = Counter((one.message_type, one.bounce.reason.name) for one in effect.bounced)
        log.error(
            "the target of %s ended conversation %s with code %d; its unreceived messages are not resent: %s",
            self._options.title,
            listed(dict.fromkeys(str(UUID(bytes=one.conversation)) for one in effect.bounced)),
            effect.code,
            ", ".join(f"{count} of type {name!r} ({reason})" for (name, reason), count in kinds.items()),
        )
        self._slots.pooling.count(given_up=len(effect.bounced))
        self.confirm(effect.place, effect.bounced)

    def confirm(self, place: PoolPlace, bounced: Sequence[Bounced]) -> None:
        """Remove messages from the mailbox, by way of any conversation of the place."""
        slot = self._slots.find(place)
        if slot is None or place.astray is not None:
            return
        dialog = slot.dialog or slot.last or self._routes.open(slot)  # any will do: the home checks only the session
        for one in bounced:
            self._context.mailboxes.confirm(self._context.sender, dialog.staged, one.id)

    def why_waiting(self, slot: Slot) -> str:
        """Text of QueueFull: why new messages of a place have to wait."""
        to, patience_s = self._options.to_service, self._context.timeout_s
        if slot.refused is not None:
            return (
                f"undelivered messages of a conversation to {to!r} have to go first, and could not be sent again "
                f"within {patience_s:g} s: {slot.refused}. They are kept in the mailbox of their sender; try again"
            )
        return (
            f"a conversation to {to!r} was ended, and its undelivered messages, which have to go first, have not come "
            f"back within {patience_s:g} s: the queue of {to!r} may have no reader; try again"
        )
