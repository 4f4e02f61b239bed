"""Carries out the decisions of `PoolState` about a pool's conversations: recycles, ends, replaces and forgets them.

The keeper has the pool's slots with their lock, and two collaborators: `PoolRoutes` begins conversations, and
`PoolResends` resends messages that came back. Application threads, the pool's background thread and the reader of
the queue all act on the pool through the keeper.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from konverse.bridge.runtime.clock import now_ms
from konverse.bridge.runtime.log_throttle import LogThrottle
from konverse.bridge.runtime.settings import PoolOptions
from konverse.dialog.pool.places import (
    AskVerdict,
    Drop,
    Effect,
    EndSide,
    Forget,
    GiveUp,
    MakeRoom,
    Pooled,
    Recycle,
    Resend,
    Stage,
    Stray,
)
from konverse.dialog.pool.pool import PoolState
from konverse.dialog.pool.recycling import ask_verdict, close_stream, end_once, is_answer, is_used
from konverse.dialog.session.dialogs import DialogState
from konverse.schemas.counting import counted
from konverse.schemas.errors import ConversationEnded, KafkaUnavailable, KonverseError, QueueFull

from .context import PoolContext
from .resends import PoolResends
from .routes import PoolRoutes, follower
from .slots import Slot, Slots

if TYPE_CHECKING:
    from konverse.bridge.client.dialog import Dialog
    from konverse.dialog.pool.recycling import Farewell

log: Final = logging.getLogger("konverse.pool")


class PoolKeeper:
    """Keeps the conversations of one pool. "Under the lock": the caller holds the lock of `slots`."""

    def __init__(self, options: PoolOptions, context: PoolContext) -> None:
        self.options = options
        self.context = context
        self.pooling = PoolState(
            max_age_ms=round(options.max_age * 1000),
            timer_ms=None if options.timer_s is None else round(options.timer_s * 1000),
            end_of_stream=options.end_of_stream,
            follow=follower(options.to_service),
        )
        self.slots = Slots(self.pooling)
        self.routes = PoolRoutes(options, context, self.slots)
        self.resends = PoolResends(options, context, self.slots, self.routes)
        self._trouble = LogThrottle()
        self._runs: Final[dict[type, Callable[[Any], None]]] = {
            Recycle: self._recycle,
            AskVerdict: self._ask_verdict,
            Resend: self.resends.resend,
            GiveUp: self.resends.give_up,
            Drop: lambda effect: self.resends.confirm(effect.place, effect.bounced),
            MakeRoom: lambda effect: self.slots.vacate(effect.place),
            Stray: lambda effect: self.routes.log_astray(effect.place),
            EndSide: self._end,
            Forget: self._forget,
        }

    # ------------------------------------------------------------------------------------------------------- calls

    def slot_of(self, group: bytes, key: bytes | None) -> Slot:
        """The slot of a group, created if there is none. Under the lock. Raises QueueFull."""
        place, effects = self.pooling.place(group, now_ms())
        self.run_effects(effects)
        return self.slots.at(place, key)

    def run_effects(self, effects: Iterable[Effect]) -> None:
        """Carry out all effects, under the lock. A later check or a timer makes up for one that fails."""
        for effect in effects:
            try:
                self._runs[type(effect)](effect)
            except KonverseError as error:
                what = type(effect).__name__
                if not self.context.sender.session.over and (times := self._trouble.due((what, type(error)))):
                    log.warning(
                        "%s: failed to %s %s (%s so far), retrying: %s",
                        self.options.title,
                        _ATTEMPTED[type(effect)],
                        _object_of(effect),
                        counted(times, "time"),
                        error,
                    )
        self.slots.changed.notify_all()

    def recycle(self, pooled: Pooled) -> None:
        """Recycle an open conversation, now or as soon as possible. Under the lock."""
        self.run_effects([Recycle(pooled)])

    def recycle_all(self) -> None:
        """Recycle all open conversations. Under the lock."""
        self.run_effects([Recycle(one) for one in [*self.pooling.known.values()] if one.stage is Stage.OPEN])

    def refused(self, dialog: Dialog) -> bool:
        """Handle a dialog on which the session refuses sends. False if the pool itself has closed it."""
        with self.slots.changed:
            pooled = self.pooling.known.get(dialog.id.bytes)
            if pooled is not None and pooled.stage is Stage.OPEN:
                self.run_effects(self.pooling.broken(pooled.conversation, None, now_ms()))
            return pooled is None or pooled.stage is not Stage.CLOSING

    def keeps(self, farewell: Farewell) -> bool:
        """Whether the pool will end that conversation itself, once its undelivered messages have come back (229)."""
        with self.slots.changed:
            pooled = self.pooling.known.get(farewell.conversation)
            if pooled is None:
                return False
            staged = self.slots.dialogs[pooled.conversation].staged
            return not is_answer(self.context.sender.session, staged, pooled, farewell)

    def on_farewell(self, farewell: Farewell) -> bool:
        """Handle the end of a conversation by its target. False if the conversation is not one of this pool."""
        conversation = farewell.conversation
        with self.slots.changed:
            if conversation not in self.pooling.known:
                return False
            if farewell.kept:
                self.run_effects(self.pooling.broken(conversation, farewell.first_code, now_ms()))
            else:
                self.run_effects(self.pooling.ended(conversation))
            return True

    def unfinished(self) -> int:
        """Number of conversations that still have to end, plus keys whose messages wait: 0 when `close` is done.

        Recycles open conversations first, because messages that came back may have been sent on new ones. A named pool
        recycles nothing and counts only closing conversations: it leaves the others to the next process.
        """
        with self.slots.changed:
            if self.options.name is not None:
                return self.pooling.closing
            self.recycle_all()
            return len(self.pooling.known) + len(self.pooling.resends_pending) + len(self.pooling.astray)

    def describe_unfinished(self) -> str:
        """The unfinished work of a closed pool, for the log."""
        pooling = self.pooling
        known = counted(
            len(pooling.known),
            "conversation not yet ended by its target",
            "conversations not yet ended by their targets",
        )
        keys = counted(
            len(pooling.resends_pending) + len(pooling.astray),
            "key with returned messages",
            "keys with returned messages",
        )
        return f"{known}, and {keys}"

    # ----------------------------------------------------------------------------------------------------- effects

    def _recycle(self, effect: Recycle) -> None:
        pooled, sender = effect.pooled, self.context.sender
        if pooled.stage is not Stage.OPEN:
            return
        pooled.due = True
        if not self.pooling.may_recycle:
            return
        dialog = self.slots.dialogs[pooled.conversation]
        try:
            # without waiting for room: senders and `close` would wait for this lock
            sender.apply_news(lambda session: close_stream(session, dialog.staged, self.options.end_of_stream))
        except (QueueFull, KafkaUnavailable) as full:
            log.debug("conversation %s is recycled later: %s", UUID(bytes=pooled.conversation), full)
        except ConversationEnded:
            self.run_effects(self.pooling.broken(pooled.conversation, None, now_ms()))
        else:
            self.pooling.recycled(pooled, now_ms(), used=is_used(dialog.staged))
        self.slots.vacate(pooled.place)

    def _ask_verdict(self, effect: AskVerdict) -> None:
        pooled, sender = effect.pooled, self.context.sender
        staged = self.slots.dialogs[pooled.conversation].staged
        self.slots.vacate(pooled.place)
        if pooled.misled and not is_used(staged):  # nothing was sent, so no answer would come
            if staged.state is not DialogState.ENDED:
                sender.decide(partial(end_once, dialog=staged))
            return
        end_of_stream = self.options.end_of_stream if pooled.wants_end_of_stream else None
        sender.decide(lambda session: ask_verdict(session, staged, end_of_stream))

    def _end(self, effect: EndSide) -> None:
        staged = self.slots.dialogs[effect.pooled.conversation].staged
        self.context.sender.decide(partial(end_once, dialog=staged))

    def _forget(self, effect: Forget) -> None:
        conversation = effect.pooled.conversation
        if self.slots.dialogs.pop(conversation, None) is not None:
            self.context.sender.ended_by_peer(conversation)
        self.slots.vacate(effect.pooled.place)


_ATTEMPTED: Final = {
    Recycle: "recycle",
    AskVerdict: "learn which messages were received on",
    Resend: "send again messages of",
    GiveUp: "give up messages of",
    Drop: "drop a returned message of",
    MakeRoom: "vacate the slot of",
    Stray: "log a wrong redirection of",
    EndSide: "end",
    Forget: "forget",
}
"""What an effect attempts, as a verb for its object."""


def _object_of(effect: Effect) -> str:
    """The conversation of an effect, or the group of its place, in words."""
    if isinstance(effect, Recycle | AskVerdict | EndSide | Forget):
        return f"conversation {UUID(bytes=effect.pooled.conversation)}"
    return f"conversation group {UUID(bytes=effect.place.group)}"
