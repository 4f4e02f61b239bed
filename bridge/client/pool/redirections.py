"""Begins the conversations of a pool where redirections lead (behaviour 233), and resends messages that came back.

A place first goes to the pool's own service. A router there may give a conversation back, behind a note that names
another service: the messages are sent again to that service, and so are later ones. When a redirection leads nowhere
(a circle, or a service that does not accept the contract), the place is astray: its messages stay in the mailbox, and
the pool asks its own service again after `POOL_ASTRAY_MS`.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from konverse.bridge.client.begin import Wanted
from konverse.bridge.client.dialog import BouncedMessage
from konverse.bridge.runtime.clock import now_ms
from konverse.bridge.runtime.ids import random_id
from konverse.bridge.runtime.settings import PoolOptions
from konverse.dialog.pool.places import GiveUp, Place, Resend, Stray, Way
from konverse.dialog.pool.pool import Pooling
from konverse.dialog.pool.recycling import end_once
from konverse.routing.documents import read_redirect
from konverse.routing.loops import followed
from konverse.schemas.catalog.table_entries import Target
from konverse.schemas.errors import BadInput, ConversationEnded, InvalidRoute, KonverseError, QueueFull
from konverse.schemas.identifiers import conversation_in, mark_of
from konverse.schemas.limits import POOL_ASTRAY_MS
from konverse.schemas.wire.records import BounceReason, Timer

from .slots import Means, Slot

if TYPE_CHECKING:
    from konverse.bridge.client.dialog import Dialog
    from konverse.dialog.session.dialogs import SessionDialog
    from konverse.dialog.state.mailbox import Bounced
    from konverse.schemas.identifiers import Address

log: Final = logging.getLogger("konverse.pool")


def follower(service: str) -> Callable[[Way, bytes], Way]:
    """Returns the function that appends the service named by a RedirectTo document to a way.

    `service` is the pool's own. The function raises InvalidRoute for a circle or too many redirections.
    """
    own = Target(service)

    def follow(way: Way, body: bytes) -> Way:
        return followed((own, *way), read_redirect(body))[1:]

    return follow


class Ways:
    """The part of `Keeping` that begins conversations."""

    options: PoolOptions
    _means: Means
    _pooling: Pooling
    _by_mark: dict[bytes, Slot]
    _dialogs: dict[bytes, Dialog]
    _sends: dict[object, SessionDialog]
    _shut: bool

    def _open(self, slot: Slot) -> Dialog:
        """Begin a conversation for a place that has none."""
        since = now_ms()
        return self._use(slot, self._begin(slot), since)

    def _use(self, slot: Slot, dialog: Dialog, since_ms: int, *, adopted: bool = False) -> Dialog:
        conversation = dialog.id.bytes
        self._pooling.begun(slot.place, conversation, since_ms, adopted=adopted)
        self._dialogs[conversation] = dialog
        slot.dialog = slot.last = dialog
        self._by_mark.setdefault(mark_of(slot.place.group), slot)  # the slot may have been evicted
        self._publish(slot)
        return dialog

    def _publish(self, slot: Slot) -> None:
        """Let senders find the slot's conversation without a lock, unless messages that came back must go first."""
        if slot.dialog is not None and not self._shut and not slot.place.waits:
            self._sends.update(dict.fromkeys(slot.names, slot.dialog.staged))

    def _begin(self, slot: Slot) -> Dialog:
        """BEGIN DIALOG to the service where the place's way leads. Raises InvalidRoute when it leads nowhere."""
        options, way = self.options, self._pooling.way_of(slot.place, now_ms())
        conversation = UUID(bytes=conversation_in(slot.place.group, random_id()))
        try:
            if way:
                self._means.check_target(way[-1].service)
            dialog = self._means.begin(self._clauses(slot, conversation, way))
        except BadInput as error:
            if not way:
                raise
            if slot.place.forget_way(now_ms()):
                return self._begin(slot)
            names = " to ".join(repr(one.service) for one in (Target(options.to_service), *way))
            self._pooling.stray(slot.place, f"redirected from {names}: {error}", now_ms())
            self._say_astray(Stray(slot.place))
            raise InvalidRoute(self._astray(slot.place)) from error
        if options.timer_s is not None:
            try:
                timer = Timer(round(options.timer_s * 1000), options.end_of_stream)
                self._means.sender.set_timer(dialog.staged, timer)
            except KonverseError:
                # the pool does not know this conversation yet, so nothing else would end it
                self._means.sender.decide(partial(end_once, dialog=dialog.staged))
                raise
        return dialog

    def _clauses(self, slot: Slot, conversation: UUID, way: Way) -> Wanted:
        """The clauses of BEGIN DIALOG. With `size` the key is random, so recycling moves load to other partitions."""
        options, key = self.options, slot.key
        if key is None and options.size is not None:
            key = random_id()
        return Wanted(
            options.from_service,
            way[-1].service if way else options.to_service,
            options.contract,
            group=UUID(bytes=slot.place.group),
            key=key,
            conversation_id=conversation,
            lifetime=options.lifetime,
            broker_instance=way[-1].broker_instance if way else None,
            returning=True,
            own_id=True,
        )

    def _way_to(self, service: str | None) -> Way:
        """The way of a conversation that another process began with `service`."""
        return () if service is None or service == self.options.to_service else (Target(service),)

    def _check_way(self, place: Place) -> None:
        """Raise InvalidRoute when the place is astray."""
        if place.astray is not None:
            raise InvalidRoute(self._astray(place))

    def _astray(self, place: Place) -> str:
        return (
            f"{place.astray}. What was sent waits where it came back to, and goes to {self.options.to_service!r} again "
            f"every {POOL_ASTRAY_MS // 1000} s; `pool.undelivered` shows it"
        )

    def _say_astray(self, effect: Stray) -> None:
        log.error("a pool has nowhere to send what it was given: %s", self._astray(effect.place))

    def _due(self, home: Address | None = None) -> list[Slot]:
        """Slots whose astray places are due to be tried again: those of one home, or all."""
        now = now_ms()
        slots = (self._by_mark.get(mark) for mark, place in self._pooling.astray.items() if place.again_ms <= now)
        lasts = ((slot, slot.last) for slot in slots if slot is not None)
        return [slot for slot, last in lasts if last is not None and home in {None, last.begin.home}]

    def _held(self) -> list[Slot]:
        """Slots with messages that came back and found no room to be resent: their homes are asked again."""
        slots = (self._by_mark.get(mark) for mark in self._pooling.behind)
        return [slot for slot in slots if slot is not None and slot.last is not None]

    def _waiting_at(self, slot: Slot) -> list[BouncedMessage]:
        """The messages that came back to an astray place."""
        means, last, mark = self._means, slot.last, mark_of(slot.place.group)
        if last is None:
            return []

        def wanted(one: Bounced) -> bool:
            return mark_of(one.conversation) == mark and one.bounce.reason is not BounceReason.REDIRECTED

        found, _ = means.mailboxes.look(means.sender, last.begin.home, wanted, lambda _: None)
        return [BouncedMessage(means.mailboxes, means.sender, last.staged, one) for one in found]


class Undelivered(NamedTuple):
    """Messages for which a pool found no service."""

    reason: str
    """Where they were redirected to, and why no service takes them."""
    messages: list[BouncedMessage]
    """In the order in which they were sent. A confirmed message is not tried again."""


class Returning(Ways):
    """The part of `Keeping` that carries out `Pooling`'s decisions about messages that came back."""

    def _resend(self, effect: Resend) -> None:
        place = effect.place
        slot = self._by_mark.get(mark_of(place.group))
        if slot is None or place.astray is not None:
            return
        self._pooling.hold(place)  # else senders on the fast path could use a conversation that is opened below
        for name in slot.names:
            self._sends.pop(name, None)
        try:
            to = (slot.dialog or self._open(slot)).staged
            for bounced in effect.bounced:
                self._means.mailboxes.redirect(self._means.sender, to, bounced)
                self._pooling.resent(place)
        except (ConversationEnded, QueueFull, InvalidRoute) as error:  # the next look finds them in the mailbox again
            slot.refused = str(error)
            log.debug("what came back is sent again later: %s", error)
            if slot.last is None:  # no home to look at: they are found once a conversation is begun
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
        """Text of QueueFull: why new messages of a place have to wait."""
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
        """The messages that came back to a place were sent again or are gone: new messages may follow."""
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
        staged = (slot.dialog or slot.last or self._open(slot)).staged  # any of the group: home trusts the session
        for one in bounced:
            self._means.mailboxes.confirm(self._means.sender, staged, one.id)
