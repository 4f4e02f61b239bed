"""The slots of a pool: one for each key, each thread, or each of `size` conversations, with the pool's lock.

`PoolState` keeps the places of a pool, and decides. A slot connects a place with the dialog on which this process sends
for it. Senders find the dialog in `sends` without a lock, as long as no messages that came back must go first.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from konverse.bridge.runtime.clock import now_ms
from konverse.dialog.pool.places import PoolPlace
from konverse.dialog.pool.pool import PoolState
from konverse.schemas.identifiers import mark_of

if TYPE_CHECKING:
    from konverse.bridge.client.dialog import Dialog
    from konverse.dialog.state.mailbox import Bounced
    from konverse.schemas.identifiers import Address


class Slot:
    """A place of the pool, with the dialog that its senders use at present."""

    __slots__ = ("dialog", "key", "last", "names", "place", "refused")

    def __init__(self, place: PoolPlace, key: bytes | None) -> None:
        self.place = place
        self.key = key
        """Kafka key of its records; None: the group's id."""
        self.names: list[object] = []
        """Names under which senders find it: keys, thread idents, or numbers below `size`."""
        self.dialog: Dialog | None = None
        self.last: Dialog | None = None
        """The latest dialog, even if it is over: messages that came back are at its home."""
        self.refused: str | None = None
        """Why the last attempt to resend messages that came back has failed."""


class Slots:
    """The tables of a pool, and the lock that guards them."""

    def __init__(self, pooling: PoolState) -> None:
        self.pooling = pooling
        self.changed = threading.Condition(threading.RLock())
        """Guards `pooling` and all tables; senders read `sends` without it. Notified when effects were carried out."""
        self.by_name: dict[object, Slot] = {}
        self.by_mark: dict[bytes, Slot] = {}
        self.sends: dict[object, Dialog] = {}
        """Name -> its open conversation, for the fast path of `Pool.send`; always the same dict."""
        self.dialogs: dict[bytes, Dialog] = {}
        """Conversation id -> dialog, for conversations that are not over."""
        self.shut = False
        """Whether sends are refused."""

    # ------------------------------------------------------------------------------------------------------- slots

    def at(self, place: PoolPlace, key: bytes | None) -> Slot:
        """The slot of a place, created if there is none."""
        slot = self.by_mark.get(mark_of(place.group))
        if slot is None:
            slot = self.by_mark[mark_of(place.group)] = Slot(place, key)
        return slot

    def find(self, place: PoolPlace) -> Slot | None:
        """The slot of a place, if it has one."""
        return self.by_mark.get(mark_of(place.group))

    def vacate(self, place: PoolPlace) -> None:
        """Hide a conversation that is no longer open from senders; forget the names of an evicted place."""
        mark = mark_of(place.group)
        if (slot := self.by_mark.get(mark)) is None:
            return
        if place.current is None:
            slot.dialog = None
            self.hide(slot)
        if mark not in self.pooling.places:
            for name in slot.names:
                self.by_name.pop(name, None)
                self.sends.pop(name, None)
            slot.names.clear()
            if mark not in self.pooling.evicted:
                del self.by_mark[mark]

    def is_ours(self, bounced: Bounced) -> bool:
        """Whether a message that came back belongs to a slot."""
        return mark_of(bounced.conversation) in self.by_mark

    def astray(self, home: Address | None = None) -> list[Slot]:
        """Slots whose redirections lead nowhere and are due to be tried again: those of one home, or all."""
        now = now_ms()
        slots = (self.by_mark.get(mark) for mark, place in self.pooling.astray.items() if place.again_ms <= now)
        lasts = ((slot, slot.last) for slot in slots if slot is not None)
        return [slot for slot, last in lasts if last is not None and home in {None, last.begin.home}]

    def resends_pending(self) -> list[Slot]:
        """Slots with returned messages that could not be resent yet: their homes are asked again."""
        slots = (self.by_mark.get(mark) for mark in self.pooling.resends_pending)
        return [slot for slot in slots if slot is not None and slot.last is not None]

    # ------------------------------------------------------------------------------------------------------- names

    def name(self, slot: Slot, name: object) -> None:
        """Let senders find the slot under one more name."""
        slot.names.append(name)
        self.by_name[name] = slot
        self.publish(slot)

    def forget_name(self, name: object) -> None:
        """Drop a name under which nothing is sent any more."""
        if name in self.by_name:
            self.by_name.pop(name).names.remove(name)
            self.sends.pop(name, None)

    # --------------------------------------------------------------------------------------------------- for senders

    def use(self, slot: Slot, dialog: Dialog, since_ms: int, *, adopted: bool = False) -> None:
        """Make a dialog the open conversation of a slot."""
        conversation = dialog.id.bytes
        self.pooling.begun(slot.place, conversation, since_ms, adopted=adopted)
        self.dialogs[conversation] = dialog
        slot.dialog = slot.last = dialog
        self.by_mark.setdefault(mark_of(slot.place.group), slot)  # the slot may have been evicted
        self.publish(slot)

    def publish(self, slot: Slot) -> None:
        """Let senders find the slot's conversation without a lock, unless messages that came back must go first."""
        if slot.dialog is not None and not self.shut and not slot.place.waits:
            self.sends.update(dict.fromkeys(slot.names, slot.dialog))

    def hide(self, slot: Slot) -> None:
        """Make senders take the lock before they use the slot."""
        for name in slot.names:
            self.sends.pop(name, None)

    def shut_out(self) -> None:
        """Refuse sends from now on."""
        self.shut = True
        self.sends.clear()

    def after_fork(self) -> None:
        """Mark as closed in a forked child (`bridge.runtime.forks`)."""
        self.shut_out()
        self.changed = threading.Condition(threading.RLock())
