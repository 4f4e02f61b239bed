"""How a named pool takes over the conversations of another process: `inheritance` finds them, this module adopts them.

The former sender is closed, if it still lives, before this session sends anything.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final
from uuid import UUID

from konverse.bridge.runtime.clock import now_ms
from konverse.dialog.pool.places import Effect
from konverse.dialog.pool.recycling import end_once, left_behind, recycle
from konverse.dialog.session.adoption import Standing as Adoptable
from konverse.schemas.identifiers import mark_of

from .inheritance import GroupOf, look_for, streams_ended
from .redirections import Returning
from .slots import Slot

if TYPE_CHECKING:
    from konverse.bridge.client.dialog import Dialog
    from konverse.dialog.pool.recycling import Left
    from konverse.dialog.session.lanes import Hand
    from konverse.dialog.session.session import Session
    from konverse.dialog.state.mailbox import Bounced
    from konverse.schemas.identifiers import Address

log: Final = logging.getLogger("konverse.pool")


class Inheriting(Returning):
    """The part of `Keeping` that adopts what another process left of a named pool."""

    _changed: threading.Condition
    _inheriting: threading.Lock
    _inherited: bool
    _returned: dict[bytes, Address]
    _place: Callable[[bytes, bytes | None], Slot]
    _do: Callable[[Iterable[Effect]], None]
    _is_ours: Callable[[Bounced], bool]

    def _inherit(self, group_of: GroupOf) -> None:
        """Before the first conversation of a named pool, adopt everything that another process left of it.

        A former sender that still lives is stopped. Its messages that were not received have come back, and are sent
        again first. `_changed` is not held meanwhile: this thread waits for the readers of the homes, and they need it.
        """
        if self._inherited:
            return
        with self._inheriting:
            if self._inherited:
                return
            heritage = look_for(self._means, self.options, group_of)
            self._go_on(heritage.keys, heritage.left)
            known = {mark_of(group) for group in heritage.keys}
            self._returned = {mark: home for mark, home in heritage.returned.items() if mark not in known}
            self._inherited = True

    def _inherit_again(self) -> None:
        """Another process has begun conversations of this pool meanwhile: the next send adopts them."""
        with self._changed:
            if self._inherited:
                log.warning("pool %r is used by another process, too, and is taken over from it", self.options.name)
            self._inherited = False
            self._sends.clear()

    def _inherit_returned(self, slot: Slot) -> None:
        """As `_inherit`, for a slot that has only bounced messages left: this send makes their key known."""
        if mark_of(slot.place.group) not in self._returned:
            return
        with self._inheriting:
            home = self._returned.get(mark_of(slot.place.group))
            if home is not None:
                keys = {slot.place.group: slot.key}
                self._go_on(keys, self._means.mailboxes.ask(home, lambda state: left_behind(state, keys), keep_up=True))
                del self._returned[mark_of(slot.place.group)]

    def _go_on(self, keys: Mapping[bytes, bytes | None], left: Left) -> None:
        means = self._means
        groups = {mark_of(group): group for group in keys}
        with self._changed:
            slots = {mark: self._place(group, keys[group]) for mark, group in groups.items()}
            for conversation, code in left.codes.items():
                self._pooling.remember(conversation, code)
            wanted = [
                self._clauses(slots[mark_of(one)], UUID(bytes=one), self._way_to(left.services.get(one)))
                for one in left.conversations
                if one not in self._pooling.known  # else adopted already, or begun here
            ]
        own = {*left.conversations}.intersection(means.sender.session.dialogs)  # of a pool closed in this process
        adopted = means.adopt(wanted, writers=left.writers) if wanted else []
        still_open = [
            dialog for dialog, standing in adopted if standing is Adoptable.OPEN and dialog.id.bytes not in own
        ]
        ended = streams_ended(means, still_open, self.options.end_of_stream)
        with self._changed:
            for dialog, standing in adopted:
                slot = slots[mark_of(dialog.id.bytes)]
                self._take_in(slot, dialog, standing, stream_ended=dialog.id.bytes in ended)
        for home in {slot.last.begin.home for slot in slots.values() if slot.last is not None}:
            bounced, _ = means.mailboxes.look(means.sender, home, self._is_ours, lambda _: None)
            with self._changed:
                self._do(self._pooling.home_says([], bounced, now_ms()))

    def _stop(self, session: Session) -> list[Hand]:
        session.stop(f"another process goes on with pool {self.options.name!r}, and with what this one sent in vain")
        return []

    def _take_in(self, slot: Slot, dialog: Dialog, standing: Adoptable, *, stream_ended: bool) -> None:
        """Make a conversation that another process left the open one of its slot, or see that it ends."""
        slot.last = dialog
        if standing is Adoptable.OPEN and stream_ended:
            dialog.finish()
        elif standing is Adoptable.OPEN and slot.dialog is None:
            slot.place.way, slot.place.way_ms = self._way_to(dialog.begin.to_service), now_ms()
            self._use(slot, dialog, now_ms(), adopted=True)
            return
        elif standing is Adoptable.OPEN:
            self._means.sender.decide_with_care(dialog.staged, partial(self._close_stream, dialog))
        elif standing is Adoptable.NOT_OPENED:
            self._means.sender.decide(partial(end_once, dialog=dialog.staged))
        if standing in (Adoptable.OPEN, Adoptable.FINISHED, Adoptable.ENDED):
            self._pooling.closes(slot.place, dialog.id.bytes, now_ms(), ended=standing is Adoptable.ENDED)
            self._dialogs[dialog.id.bytes] = dialog

    def _close_stream(self, dialog: Dialog) -> list[Hand]:
        return recycle(self._means.sender.session, dialog.staged, self.options.end_of_stream)
