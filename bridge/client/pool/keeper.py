"""The background half of a pool: carries out what `Pooling` decides, and asks homes how conversations stand.

A background thread asks the homes of the pool's conversations. A home that a reader of this process owns answers from
the owner's state, any other home from its journal. The thread asks often while conversations are closing or broken,
otherwise every second.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from konverse.bridge.runtime.clock import now_ms
from konverse.bridge.runtime.log_throttle import Seldom
from konverse.bridge.runtime.settings import PoolOptions
from konverse.bridge.runtime.threads import FORESEEN, in_background
from konverse.dialog.pool.places import (
    AskVerdict,
    Drop,
    Effect,
    End,
    Forget,
    GiveUp,
    MakeRoom,
    Place,
    Pooled,
    Recycle,
    Resend,
    Stage,
    Standing,
    Stray,
)
from konverse.dialog.pool.pool import Pooling
from konverse.dialog.pool.recycling import ask_verdict, end_once, is_used, recycle, rivals_of, standing_of
from konverse.dialog.session.dialogs import DialogState
from konverse.schemas.errors import BrokerClosed, ConversationEnded, KafkaUnavailable, KonverseError, QueueFull
from konverse.schemas.identifiers import mark_of
from konverse.schemas.limits import POOL_LOOK_ENTRIES_MAX

from .going_on import Inheriting
from .redirections import follower
from .slots import Means, Slot

if TYPE_CHECKING:
    from konverse.bridge.client.dialog import Dialog
    from konverse.dialog.session.dialogs import SessionDialog
    from konverse.dialog.state.mailbox import Bounced
    from konverse.dialog.state.partition import Partition
    from konverse.schemas.identifiers import Address

    from .lease import Lease

log: Final = logging.getLogger("konverse.pool")

LOOK_S: Final = 0.1
"""Interval of asking homes while conversations are closing or broken."""
HOME_S: Final = 5.0
"""A home may take this long to answer before the next home is asked."""
REST_S: Final = 1.0
"""Interval while all conversations are open: the longest delay until one is found to be old or ended by its target."""


class Keeping(Inheriting):
    """Begins, recycles and replaces the conversations of a pool. Thread-safe."""

    def __init__(self, options: PoolOptions, means: Means) -> None:
        self.options = options
        self._means = means
        self._changed = threading.Condition(threading.RLock())
        """Guards all attributes below; senders read `_sends` without it."""
        self._pooling = Pooling(
            max_age_ms=round(options.max_age * 1000),
            timer_ms=None if options.timer_s is None else round(options.timer_s * 1000),
            end_of_stream=options.end_of_stream,
            follow=follower(options.to_service),
        )
        self._slots: dict[object, Slot] = {}
        self._sends: dict[object, SessionDialog] = {}
        """Name -> its open conversation, for the fast path of `send`."""
        self._by_mark: dict[bytes, Slot] = {}
        self._dialogs: dict[bytes, Dialog] = {}
        """Conversations that are not over."""
        self._look_at_all_ms = 0
        """Next time at which homes are asked about open conversations, too."""
        self.lease: Lease | None = None
        """Lease of a named pool, if Redis is configured."""
        self._inherited = options.name is None
        """Everything that other processes left was adopted. Always true for a pool without a name."""
        self._returned: dict[bytes, Address] = {}
        """Mark -> home of messages that bounced after their conversation was over; adopted when their key is used."""
        self._inheriting = threading.Lock()
        """Held while adopting what other processes left. Taken before `_changed`, and never by a reader."""
        self._shut = self._lingers = self._closed = False
        """`_shut`: sends are refused. `_lingers`: `close` has returned, the thread goes on. `_closed`: it ends, too."""
        self._trouble = Seldom()
        self._awaken = threading.Event()
        self._does: Final[dict[type, Callable[[Any], None]]] = {
            Recycle: self._recycle,
            AskVerdict: self._ask_verdict,
            Resend: self._resend,
            GiveUp: self._give_up,
            Drop: lambda effect: self._confirm(effect.place, effect.bounced),
            MakeRoom: lambda effect: self._vacate(effect.place),
            Stray: self._say_astray,
            End: self._end,
            Forget: self._forget,
        }
        self._thread = in_background("konverse-pool", self._run)

    # --------------------------------------------------------------------------------------------------- the keys

    def _place(self, group: bytes, key: bytes | None) -> Slot:
        """The slot of a group, created if there is none."""
        place, effects = self._pooling.place(group, now_ms())
        self._do(effects)
        slot = self._by_mark.get(mark_of(group))
        if slot is None:
            slot = self._by_mark[mark_of(group)] = Slot(place, key)
        return slot

    def _is_ours(self, bounced: Bounced) -> bool:
        return mark_of(bounced.conversation) in self._by_mark

    def _vacate(self, place: Place) -> None:
        """Hide a conversation that is not open any more from senders; forget the names of an evicted place."""
        mark = mark_of(place.group)
        if (slot := self._by_mark.get(mark)) is None:
            return
        if place.current is None:
            slot.dialog = None
            for name in slot.names:
                self._sends.pop(name, None)
        if mark not in self._pooling.places:
            for name in slot.names:
                self._slots.pop(name, None)
                self._sends.pop(name, None)
            slot.names.clear()
            if mark not in self._pooling.evicted:
                del self._by_mark[mark]

    # -------------------------------------------------------------------------------------------------- what to do

    def _do(self, effects: Iterable[Effect]) -> None:
        """Carry out all effects. A failed effect is made up for by a later look or by the conversation's timer."""
        for effect in effects:
            try:
                self._does[type(effect)](effect)
            except KonverseError as error:
                what = type(effect).__name__
                if not self._means.sender.session.over and (times := self._trouble.due((what, type(error)))):
                    log.warning("%s failed in a pool %d times, and is made up for later: %s", what, times, error)
        self._changed.notify_all()

    def _recycle(self, effect: Recycle) -> None:
        pooled, sender = effect.pooled, self._means.sender
        if pooled.stage is not Stage.OPEN:
            return
        pooled.due = True
        if not self._pooling.may_recycle:
            return
        dialog = self._dialogs[pooled.conversation]
        try:
            used = is_used(dialog.staged)
            if used:  # `hear` does not wait for room: senders and `close` would wait for this lock
                sender.hear(lambda session: recycle(session, dialog.staged, self.options.end_of_stream))
            else:  # its first message was refused, so its target does not know the conversation
                sender.decide(partial(end_once, dialog=dialog.staged))
        except (QueueFull, KafkaUnavailable) as full:
            log.debug("conversation %s is recycled later: %s", UUID(bytes=pooled.conversation), full)
        except ConversationEnded:
            self._do(self._pooling.broken(pooled.conversation, None, now_ms()))
        else:
            self._pooling.recycled(pooled, now_ms(), used=used)
        self._vacate(pooled.place)

    def _ask_verdict(self, effect: AskVerdict) -> None:
        pooled, sender = effect.pooled, self._means.sender
        staged = self._dialogs[pooled.conversation].staged
        self._vacate(pooled.place)
        if pooled.misled and not is_used(staged):  # nothing was sent, so no answer would come
            if staged.state is not DialogState.ENDED:
                sender.decide(partial(end_once, dialog=staged))
            return
        end_of_stream = self.options.end_of_stream if pooled.wants_end_of_stream else None
        sender.decide(lambda session: ask_verdict(session, staged, end_of_stream))

    def _end(self, effect: End) -> None:
        self._means.sender.decide(partial(end_once, dialog=self._dialogs[effect.pooled.conversation].staged))

    def _recycle_all(self) -> None:
        self._do([Recycle(one) for one in list(self._pooling.known.values()) if one.stage is Stage.OPEN])
        self._awaken.set()

    def _waiting(self) -> int:
        """Number of conversations that still have to end and of keys whose messages wait: 0 when `close` is done.

        Open conversations are recycled again first, because messages that came back may have gone on new ones.
        """
        with self._changed:
            if self.options.name is not None:
                return self._pooling.closing
            self._recycle_all()
            return len(self._pooling.known) + len(self._pooling.behind) + len(self._pooling.astray)

    def _forget(self, effect: Forget) -> None:
        conversation = effect.pooled.conversation
        if self._dialogs.pop(conversation, None) is not None:
            self._means.sender.ended_by_peer(conversation)
        self._vacate(effect.pooled.place)

    # --------------------------------------------------------------------------------------------------------- news

    def _run(self) -> None:
        while not self._closed and self._means.sender.session.over is None:
            try:
                busy = self._look()
            except BrokerClosed:
                break
            except FORESEEN as error:
                log.warning("a pool has no news of its conversations: %s", error)
                busy = False
            self._awaken.wait(LOOK_S if busy else REST_S)
            self._awaken.clear()
        self._closed = True  # from here on this pool does not look after its conversations
        if self.lease is not None:
            self.lease.close()

    def _look(self) -> bool:
        """Check the clock, and ask homes how conversations stand; True while some are closing or broken."""
        homes: dict[Address, list[tuple[Pooled, Dialog]]] = {}
        with self._changed:
            now = now_ms()
            wanted = [(one, self._dialogs[one.conversation]) for one in self._wanted(now)]
            if not self._closed:
                self._do(self._pooling.tick(now))
            for slot in (*self._due(), *self._held()):
                assert slot.last is not None, "something was sent"
                homes[slot.last.begin.home] = []
        for pooled, dialog in wanted:
            homes.setdefault(dialog.begin.home, []).append((pooled, dialog))
        for home, asked in homes.items():
            self._hear(home, asked)
        with self._changed:
            if self._lingers and not self._waiting():
                self._closed = True
            return self._pooling.closing > 0

    def _hear(self, home: Address, asked: list[tuple[Pooled, Dialog]]) -> None:
        """Ask one home. A home that does not answer is logged, and the other homes are asked all the same."""
        try:
            self._ask(home, asked)
            self._trouble.over(home)
        except KafkaUnavailable as error:
            if times := self._trouble.due(home):
                log.warning("a pool has no news of its conversations, asked %d times: %s", times, error)

    def _wanted(self, now: int) -> list[Pooled]:
        """Conversations to ask about: those closing or broken, and every `REST_S` the open ones, too."""
        unfinished = self._pooling.unfinished(POOL_LOOK_ENTRIES_MAX)
        if now < self._look_at_all_ms:
            return unfinished
        self._look_at_all_ms = now + round(REST_S * 1000)
        for slot in list(self._by_mark.values()):
            if slot.dialog is not None:
                self._pooling.noticed(slot.place, slot.dialog.staged.sent, now)
        return [*unfinished, *(one for one in self._pooling.known.values() if one.stage is Stage.OPEN)]

    def _ask(self, home: Address, asked: list[tuple[Pooled, Dialog]]) -> None:
        """Ask one home how conversations stand and what came back, and pass the answers to `Pooling`.

        If another process took over a named pool, stop this session. If two processes began to use the pool before
        they could notice each other, the one with the later session goes on, and adopts what the other one left.
        """
        sender = self._means.sender
        groups = {pooled.place.group for pooled, _ in asked} if self.options.name is not None else ()

        def question(state: Partition) -> tuple[list[tuple[Pooled, Standing]], bool, list[bytes]]:
            standings = [(pooled, standing_of(state, sender.session, dialog.staged)) for pooled, dialog in asked]
            writer = state.writers.get(sender.session.writer)
            closed = writer is not None and writer.closed_at is not None
            return standings, closed, rivals_of(state, sender.session, groups)

        bounced, (standings, closed, rivals) = self._means.mailboxes.look(
            sender, home, self._is_ours, question, timeout_s=HOME_S
        )
        if self.options.name is not None and (closed or any(rival > sender.session.writer for rival in rivals)):
            log.error("pool %r was taken over by another process", self.options.name)
            sender.decide(self._stop)
            return
        if rivals:
            self._inherit_again()
        returned = {mark_of(one.conversation) for one in bounced}
        with self._changed:
            due, held = self._due(home), self._held()
            for slot in due:
                self._pooling.try_again(slot.place)
            for slot in held:
                assert slot.last is not None, "something came back"
                if mark_of(slot.place.group) not in returned and slot.last.begin.home == home:
                    self._go_past(slot.place)
            self._do(self._pooling.home_says(standings, bounced, now_ms()))
            for slot in (*due, *held):
                self._pooling.let_pass(slot.place)
                self._vacate(slot.place)
