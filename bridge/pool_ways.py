"""Where the conversations of a pool go: to its service, or where that has redirected them (behaviour 233)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from konverse.dialog.pooled import Place, Stray, Way
from konverse.dialog.pooling import Pooling
from konverse.dialog.recycling import end_once
from konverse.routing.decisions import Target
from konverse.routing.documents import read_redirect
from konverse.routing.redirections import followed
from konverse.schemas.errors import BadInput, InvalidRoute, KonverseError
from konverse.schemas.identifiers import conversation_in, mark_of
from konverse.schemas.limits import POOL_ASTRAY_MS
from konverse.schemas.records import BounceReason, Timer

from .beginning import Wanted
from .clock import now_ms
from .mailboxes import BouncedMessage
from .pool_slots import Means, Slot
from .random_ids import random_id
from .settings import PoolOptions

if TYPE_CHECKING:
    from konverse.dialog.lane import SessionDialog
    from konverse.dialog.mailbox import Bounced
    from konverse.schemas.identifiers import Address

    from .dialog import Dialog

log: Final = logging.getLogger("konverse.pool")


def follower(service: str) -> Callable[[Way, bytes], Way]:
    """What a pool makes of a RedirectTo document, when it asks this service first. Raises InvalidRoute."""
    own = Target(service)

    def follow(way: Way, body: bytes) -> Way:
        return followed((own, *way), read_redirect(body))[1:]

    return follow


class Ways:
    """The part of a pool that begins conversations. What is said of `Keeping` holds here."""

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
        self._by_mark.setdefault(mark_of(slot.place.group), slot)  # it may have made room for others
        self._publish(slot)
        return dialog

    def _publish(self, slot: Slot) -> None:
        """Let its senders find its conversation without a lock, unless something else goes first."""
        if slot.dialog is not None and not self._shut and not slot.place.waits:
            self._sends.update(dict.fromkeys(slot.names, slot.dialog.staged))

    def _begin(self, slot: Slot) -> Dialog:
        """BEGIN DIALOG, with whom the place goes to now. Raises InvalidRoute when that is nobody."""
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
                # nobody knows of it, and nothing would ever end it
                self._means.sender.decide(partial(end_once, dialog=dialog.staged))
                raise
        return dialog

    def _clauses(self, slot: Slot, conversation: UUID, way: Way) -> Wanted:
        """Of BEGIN DIALOG. Of `size` conversations each one goes to a partition of its own: so load moves on."""
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
        """The way of a conversation that another process has begun with this service."""
        return () if service is None or service == self.options.to_service else (Target(service),)

    def _check_way(self, place: Place) -> None:
        """Raise InvalidRoute when it has nowhere to go."""
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
        """Places that have gone astray and are to be tried again: those of one home, or of all."""
        now = now_ms()
        slots = (self._by_mark.get(mark) for mark, place in self._pooling.astray.items() if place.again_ms <= now)
        lasts = ((slot, slot.last) for slot in slots if slot is not None)
        return [slot for slot, last in lasts if last is not None and home in {None, last.begin.home}]

    def _held(self) -> list[Slot]:
        """Places in which what came back found no room: their homes are asked for it again."""
        slots = (self._by_mark.get(mark) for mark in self._pooling.behind)
        return [slot for slot in slots if slot is not None and slot.last is not None]

    def _waiting_at(self, slot: Slot) -> list[BouncedMessage]:
        """What came back of a place that has gone astray."""
        means, last, mark = self._means, slot.last, mark_of(slot.place.group)
        if last is None:
            return []

        def wanted(one: Bounced) -> bool:
            return mark_of(one.conversation) == mark and one.bounce.reason is not BounceReason.REDIRECTED

        found, _ = means.mailboxes.look(means.sender, last.begin.home, wanted, lambda _: None)
        return [BouncedMessage(means.mailboxes, means.sender, last.staged, one) for one in found]


class Undelivered(NamedTuple):
    """What a pool could deliver nowhere."""

    reason: str
    """Where it was redirected to, and why nobody takes it there."""
    messages: list[BouncedMessage]
    """In the order in which they were sent. One that is confirmed is not tried again."""
