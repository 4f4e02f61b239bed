"""The takeover of a named pool: finds conversations and messages that another process left, and adopts them.

If the former process still lives, its session is closed before this session sends anything.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from konverse.bridge.runtime.clock import now_ms
from konverse.dialog.pool.recycling import LeftConversation, end_once, is_pooled, left_behind, recycle, stream_ended
from konverse.dialog.session.adoption import FoundState as Adoptable
from konverse.schemas.errors import OutcomeUnknown
from konverse.schemas.identifiers import Role, mark_of

from .groups import PoolGroups
from .keeper import PoolKeeper
from .slots import Slot

if TYPE_CHECKING:
    from konverse.bridge.client.dialog import Dialog
    from konverse.bridge.runtime.settings import PoolOptions
    from konverse.dialog.session.lanes import Produce
    from konverse.dialog.state.partition import Partition
    from konverse.schemas.identifiers import Address

    from .context import PoolContext

log: Final = logging.getLogger("konverse.pool")

POLL_S: Final = 0.05

GroupOf = Callable[[bytes, bytes | None], bytes | None]
"""(mark, Kafka key) -> the pool's group with that mark and key; None for another pool, or for an unknown key."""


class PoolTakeover:
    """Adopts conversations and messages that other processes left in one pool. Its methods acquire the locks."""

    def __init__(self, keeper: PoolKeeper, groups: PoolGroups) -> None:
        self._keeper = keeper
        self._groups = groups
        self._options = keeper.options
        self._context = keeper.context
        self._slots = keeper.slots
        self.complete = keeper.options.name is None
        """Whether everything that other processes left was adopted. Always true for a pool without a name."""
        self._returned: dict[bytes, Address] = {}
        """Mark -> home of messages that bounced after their conversation was over; adopted when their key is used."""
        self._adopting = threading.Lock()
        """Held during an adoption. Acquired before the lock of `slots`, and never by a reader."""

    def adopt_all(self) -> None:
        """Before the first conversation of a named pool, adopt everything that another process left in it.

        A former sender that still lives is stopped. Its messages that were not received have come back, and are sent
        again first. The lock of `slots` is not held meanwhile: this thread waits for the readers of the homes, which
        need that lock. Raises OutcomeUnknown, KafkaUnavailable.
        """
        if self.complete:
            return
        with self._adopting:
            if self.complete:
                return
            found = find_leftovers(self._context, self._options, self._groups.find)
            self._adopt(found.keys, found.left)
            known = {mark_of(group) for group in found.keys}
            self._returned = {mark: home for mark, home in found.returned.items() if mark not in known}
            self.complete = True

    def adopt_returned(self, slot: Slot) -> None:
        """As `adopt_all`, for a slot with nothing but bounced messages: their key was unknown before this send."""
        if mark_of(slot.place.group) not in self._returned:
            return
        with self._adopting:
            home = self._returned.get(mark_of(slot.place.group))
            if home is not None:
                keys = {slot.place.group: slot.key}
                ask = self._context.mailboxes.ask
                self._adopt(keys, ask(home, lambda state: left_behind(state, keys), keep_up=True))
                del self._returned[mark_of(slot.place.group)]

    def repeat(self) -> None:
        """Let the next send adopt conversations that another process has begun in this pool meanwhile."""
        with self._slots.changed:
            if self.complete:
                log.warning("%s is also used by another process; this process takes it over", self._options.title)
            self.complete = False
            self._slots.sends.clear()

    def _adopt(self, keys: Mapping[bytes, bytes | None], left: LeftConversation) -> None:
        context, pooling, routes = self._context, self._keeper.pooling, self._keeper.routes
        groups = {mark_of(group): group for group in keys}
        with self._slots.changed:
            slots = {mark: self._keeper.slot_of(group, keys[group]) for mark, group in groups.items()}
            for conversation, code in left.codes.items():
                pooling.remember(conversation, code)
            wanted = [
                routes.clauses(slots[mark_of(one)], UUID(bytes=one), routes.way_to(left.services.get(one)))
                for one in left.conversations
                if one not in pooling.known  # else adopted already, or begun here
            ]
        own = {*left.conversations}.intersection(context.sender.session.dialogs)  # of a pool closed here earlier
        adopted = context.adopt(wanted, writers=left.writers) if wanted else []
        still_open = [
            dialog for dialog, standing in adopted if standing is Adoptable.OPEN and dialog.id.bytes not in own
        ]
        try:
            ended = streams_ended(context, still_open, self._options.end_of_stream)
            with self._slots.changed:
                for dialog, standing in adopted:
                    slot = slots[mark_of(dialog.id.bytes)]
                    self._take_in(slot, dialog, standing, stream_ended=dialog.id.bytes in ended)
        except BaseException:
            for dialog in still_open:
                if dialog.id.bytes not in pooling.known:  # else the next attempt would take it for one of its own
                    context.sender.ended_by_peer(dialog.id.bytes)
            raise
        for home in {slot.last.begin.home for slot in slots.values() if slot.last is not None}:
            bounced, _ = context.mailboxes.read(context.sender, home, self._slots.is_ours, lambda _: None)
            with self._slots.changed:
                self._keeper.run_effects(pooling.read_home([], bounced, now_ms()))

    def _take_in(self, slot: Slot, dialog: Dialog, standing: Adoptable, *, stream_ended: bool) -> None:
        """Make a conversation of another process the open one of its slot, or have it ended."""
        slots, sender = self._slots, self._context.sender
        slot.last = dialog
        if standing is Adoptable.OPEN and stream_ended:
            dialog.finish()
        elif standing is Adoptable.OPEN and slot.dialog is None:
            slot.place.way, slot.place.way_ms = self._keeper.routes.way_to(dialog.begin.to_service), now_ms()
            slots.use(slot, dialog, now_ms(), adopted=True)
            return
        elif standing is Adoptable.OPEN:
            sender.decide_with_room(dialog.staged, partial(self._close_stream, dialog))
        elif standing is Adoptable.NOT_OPENED:
            sender.decide(partial(end_once, dialog=dialog.staged))
        if standing in (Adoptable.OPEN, Adoptable.FINISHED, Adoptable.ENDED):
            slots.pooling.closes(slot.place, dialog.id.bytes, now_ms(), ended=standing is Adoptable.ENDED)
            slots.dialogs[dialog.id.bytes] = dialog

    def _close_stream(self, dialog: Dialog) -> list[Produce]:
        return recycle(self._context.sender.session, dialog.staged, self._options.end_of_stream)


class Leftovers(NamedTuple):
    """Conversations and messages that other processes left in a pool, in all its homes."""

    keys: dict[bytes, bytes | None]
    """Group -> Kafka key of its records."""
    left: LeftConversation
    returned: dict[bytes, Address]
    """Mark of a conversation with bounced messages -> its home."""


def find_leftovers(context: PoolContext, options: PoolOptions, group_of: GroupOf) -> Leftovers:
    """Find the leftovers of other processes in a pool, once its homes have ingested everything that Kafka holds now.

    Raises OutcomeUnknown when the homes need longer than `context.timeout_s`, as when no reader reads the queue.
    """
    deadline = time.monotonic() + context.timeout_s
    keys: dict[bytes, bytes | None] = {}
    lefts: list[LeftConversation] = []
    returned: dict[bytes, Address] = {}
    for home, end in context.ends_of_homes().items():
        while context.mailboxes.ask(home, _ingested, keep_up=True, timeout_s=deadline - time.monotonic()) < end:
            if time.monotonic() > deadline:
                raise OutcomeUnknown(
                    f"pool {options.name!r} cannot find the messages that another process has left: no reader has "
                    f"read the queue of {options.from_service!r} for {context.timeout_s} s. Start a reader there; "
                    "try again"
                )
            time.sleep(POLL_S)
        found, left, marks = context.mailboxes.ask(home, lambda state: _left_in(state, group_of), keep_up=True)
        keys |= found
        lefts.append(left)
        returned |= dict.fromkeys(marks, home)
    return Leftovers(keys, _merged(lefts), returned)


def _ingested(home: Partition) -> int:
    return home.ingest_to


def _left_in(home: Partition, group_of: GroupOf) -> tuple[dict[bytes, bytes | None], LeftConversation, list[bytes]]:
    """Groups of the pool with their keys, their leftovers, and the marks of bounced messages of any pool."""
    sides = (one for one in home.live() if one.role is Role.INITIATOR and is_pooled(one))
    keys = {one.group_id: one.key for one in sides if group_of(mark_of(one.group_id), one.key) == one.group_id}
    marks = dict.fromkeys((mark_of(one.conversation), one.key) for one in home.mailbox.entries.values())
    for mark, key in marks:  # for conversations that are over
        group = group_of(mark, key)
        if group is not None:
            keys.setdefault(group, key)
    return keys, left_behind(home, keys), [mark for mark, _ in marks]


def _merged(lefts: Iterable[LeftConversation]) -> LeftConversation:
    """Merge the leftovers of several homes."""
    whole = LeftConversation([], [], {}, {})
    for left in lefts:
        whole.conversations.extend(left.conversations)
        whole.writers.extend(writer for writer in left.writers if writer not in whole.writers)
        whole.codes.update(left.codes)
        whole.services.update(left.services)
    return whole


def streams_ended(context: PoolContext, dialogs: Iterable[Dialog], end_of_stream: str) -> set[bytes]:
    """Ids of the dialogs whose target has EndOfStream, or no endpoint any more. Each target partition is asked once."""
    at: dict[Address, list[bytes]] = {}
    for dialog in dialogs:
        at.setdefault(dialog.begin.target, []).append(dialog.id.bytes)
    ended = set[bytes]()
    for target, conversations in at.items():

        def question(state: Partition, asked: list[bytes] = conversations) -> list[bytes]:
            return [one for one in asked if stream_ended(state, one, end_of_stream)]

        ended.update(context.mailboxes.ask(target, question, keep_up=True))
    return ended
