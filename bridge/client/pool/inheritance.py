"""Finds what another process left of a named pool: living conversations and bounced messages, in all homes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from konverse.dialog.pool.recycling import Left, is_pooled, left_behind, stream_ended
from konverse.schemas.errors import OutcomeUnknown
from konverse.schemas.identifiers import Role, mark_of

if TYPE_CHECKING:
    from konverse.bridge.client.dialog import Dialog
    from konverse.bridge.runtime.settings import PoolOptions
    from konverse.dialog.state.partition import Partition
    from konverse.schemas.identifiers import Address

    from .slots import Means

POLL_S: Final = 0.05

GroupOf = Callable[[bytes, bytes | None], bytes | None]
"""(mark, Kafka key) -> the pool's group with that mark and key; None for another pool, or for an unknown key."""


class Heritage(NamedTuple):
    """What other processes left of a pool, in all its homes."""

    keys: dict[bytes, bytes | None]
    """Group -> Kafka key of its records."""
    left: Left
    returned: dict[bytes, Address]
    """Mark of a conversation with bounced messages -> its home."""


def look_for(means: Means, options: PoolOptions, group_of: GroupOf) -> Heritage:
    """What other processes left of a pool, by homes that have ingested everything that Kafka holds now.

    Raises OutcomeUnknown when that takes longer than `means.timeout_s`, as when no reader reads the queue.
    """
    deadline = time.monotonic() + means.timeout_s
    keys: dict[bytes, bytes | None] = {}
    lefts: list[Left] = []
    returned: dict[bytes, Address] = {}
    for home, end in means.ends_of_homes().items():
        while means.mailboxes.ask(home, _heard, keep_up=True, timeout_s=deadline - time.monotonic()) < end:
            if time.monotonic() > deadline:
                raise OutcomeUnknown(
                    f"pool {options.name!r} cannot know what another process has left, as nobody has read the queue of "
                    f"{options.from_service!r} for {means.timeout_s} s. Let a reader run there; try again"
                )
            time.sleep(POLL_S)
        found, left, marks = means.mailboxes.ask(home, lambda state: _left_in(state, group_of), keep_up=True)
        keys |= found
        lefts.append(left)
        returned |= dict.fromkeys(marks, home)
    return Heritage(keys, together(lefts), returned)


def _heard(home: Partition) -> int:
    return home.ingest_to


def _left_in(home: Partition, group_of: GroupOf) -> tuple[dict[bytes, bytes | None], Left, list[bytes]]:
    """Groups of the pool with their keys, what is left of them, and the marks of bounced messages of any pool."""
    sides = (one for one in home.live() if one.role is Role.INITIATOR and is_pooled(one))
    keys = {one.group_id: one.key for one in sides if group_of(mark_of(one.group_id), one.key) == one.group_id}
    marks = dict.fromkeys((mark_of(one.conversation), one.key) for one in home.mailbox.entries.values())
    for mark, key in marks:  # for conversations that are over
        group = group_of(mark, key)
        if group is not None:
            keys.setdefault(group, key)
    return keys, left_behind(home, keys), [mark for mark, _ in marks]


def together(lefts: Iterable[Left]) -> Left:
    """Merge what is left in several homes."""
    whole = Left([], [], {}, {})
    for left in lefts:
        whole.conversations.extend(left.conversations)
        whole.writers.extend(writer for writer in left.writers if writer not in whole.writers)
        whole.codes.update(left.codes)
        whole.services.update(left.services)
    return whole


def streams_ended(means: Means, dialogs: Iterable[Dialog], end_of_stream: str) -> set[bytes]:
    """Which of these conversations have EndOfStream at their targets. Each target partition is asked once."""
    at: dict[Address, list[bytes]] = {}
    for dialog in dialogs:
        at.setdefault(dialog.begin.target, []).append(dialog.id.bytes)
    ended = set[bytes]()
    for target, conversations in at.items():

        def question(state: Partition, asked: list[bytes] = conversations) -> list[bytes]:
            return [one for one in asked if stream_ended(state, one, end_of_stream)]

        ended.update(means.mailboxes.ask(target, question, keep_up=True))
    return ended
