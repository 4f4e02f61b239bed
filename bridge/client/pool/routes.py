"""Begins the conversations of a pool, to the services to which redirections lead (behaviour 233).

A place first sends to the pool's own service. A router there may return the messages of a conversation, preceded by a
note that names another service: the pool resends them to that service, and sends later messages there too. When a
redirection leads nowhere (a circle, or a service that does not accept the contract), the place is astray: its messages
stay in the mailbox, and the pool tries its own service again after `POOL_ASTRAY_MS`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from konverse.bridge.client.begin import BeginClauses
from konverse.bridge.client.dialog import BouncedMessage
from konverse.bridge.runtime.clock import now_ms
from konverse.bridge.runtime.ids import random_id
from konverse.bridge.runtime.settings import PoolOptions
from konverse.dialog.pool.places import PoolPlace, Way
from konverse.dialog.pool.recycling import end_once
from konverse.routing.documents import read_redirect
from konverse.routing.loops import followed
from konverse.schemas.catalog.table_entries import Target
from konverse.schemas.errors import BadInput, InvalidRoute
from konverse.schemas.identifiers import conversation_in, mark_of
from konverse.schemas.limits import POOL_ASTRAY_MS
from konverse.schemas.wire.records import BounceReason, Timer

from .context import PoolContext
from .slots import Slot, Slots

if TYPE_CHECKING:
    from konverse.bridge.client.dialog import Dialog
    from konverse.dialog.state.mailbox import Bounced

log: Final = logging.getLogger("konverse.pool")


def follower(service: str) -> Callable[[Way, bytes], Way]:
    """Returns the function that appends the service named by a RedirectTo document to a way.

    `service` is the pool's own. The function raises InvalidRoute for a circle or too many redirections.
    """
    own = Target(service)

    def follow(way: Way, body: bytes) -> Way:
        return followed((own, *way), read_redirect(body))[1:]

    return follow


class PoolRoutes:
    """The routes of a pool's places. Called under the lock of `slots`, except for `undelivered`."""

    def __init__(self, options: PoolOptions, context: PoolContext, slots: Slots) -> None:
        self._options = options
        self._context = context
        self._slots = slots

    def open(self, slot: Slot) -> Dialog:
        """Begin a conversation for a slot that has none. Raises InvalidRoute when its way leads nowhere."""
        since = now_ms()
        dialog = self._begin(slot)
        self._slots.use(slot, dialog, since)
        return dialog

    def _begin(self, slot: Slot) -> Dialog:
        options, way = self._options, self._slots.pooling.way_of(slot.place, now_ms())
        conversation = UUID(bytes=conversation_in(slot.place.group, random_id()))
        try:
            if way:
                self._context.check_target(way[-1])
            dialog = self._context.begin(self.clauses(slot, conversation, way))
        except BadInput as error:
            if not way:
                raise
            if slot.place.forget_way(now_ms()):
                return self._begin(slot)
            names = " to ".join(repr(one.service) for one in (Target(options.to_service), *way))
            self._slots.pooling.stray(slot.place, f"redirected from {names}: {error}", now_ms())
            self.log_astray(slot.place)
            raise InvalidRoute(self._why_astray(slot.place)) from error
        if options.timer_s is not None:
            try:
                timer = Timer(round(options.timer_s * 1000), options.end_of_stream)
                self._context.sender.set_timer(dialog.staged, timer)
            except BaseException:  # Ctrl-C too: `set_timer` may wait for a minute
                # the pool does not know this conversation yet, so nothing else would end it
                self._context.sender.decide(partial(end_once, dialog=dialog.staged))
                raise
        return dialog

    def clauses(self, slot: Slot, conversation: UUID, way: Way) -> BeginClauses:
        """The clauses of BEGIN DIALOG. With `size` the key is random, so recycling moves load to other partitions."""
        options, key = self._options, slot.key
        if key is None and options.size is not None:
            key = random_id()
        return BeginClauses(
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

    def way_to(self, service: str | None) -> Way:
        """The way of a conversation that another process began with `service`."""
        return () if service is None or service == self._options.to_service else (Target(service),)

    # ------------------------------------------------------------------------------------------------------- astray

    def check(self, place: PoolPlace) -> None:
        """Raise InvalidRoute when the place is astray."""
        if place.astray is not None:
            raise InvalidRoute(self._why_astray(place))

    def log_astray(self, place: PoolPlace) -> None:
        """Log that the redirections of a place lead nowhere."""
        log.error(
            "%s cannot deliver the messages of conversation group %s: %s",
            self._options.title,
            UUID(bytes=place.group),
            self._why_astray(place),
        )

    def undelivered(self) -> list[Undelivered]:
        """The messages that came back to astray places, read from their homes."""
        with self._slots.changed:
            astray = [
                (self._slots.find(place), self._why_astray(place)) for place in self._slots.pooling.astray.values()
            ]
        return [Undelivered(reason, self._messages_of(slot)) for slot, reason in astray if slot is not None]

    def _why_astray(self, place: PoolPlace) -> str:
        return (
            f"{place.astray}. The messages are kept in the mailbox of their sender and sent to "
            f"{self._options.to_service!r} again every {POOL_ASTRAY_MS // 1000} s; `pool.undelivered` lists them"
        )

    def _messages_of(self, slot: Slot) -> list[BouncedMessage]:
        context, last, mark = self._context, slot.last, mark_of(slot.place.group)
        if last is None:
            return []

        def wanted(one: Bounced) -> bool:
            return mark_of(one.conversation) == mark and one.bounce.reason is not BounceReason.REDIRECTED

        found, _ = context.mailboxes.read(context.sender, last.begin.home, wanted, lambda _: None)
        return [BouncedMessage(context.mailboxes, context.sender, last.staged, one) for one in found]


class Undelivered(NamedTuple):
    """Messages for which a pool found no service."""

    reason: str
    """Where they were redirected to, and why no service takes them."""
    messages: list[BouncedMessage]
    """In the order in which they were sent. A confirmed message is not tried again."""
