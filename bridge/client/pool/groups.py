"""The conversation group of each key, thread or number of a pool.

All conversations of a key belong to one group, whose id follows from the pool's names. So the next process that opens a
named pool finds the group of a key again. Sends without a key use the group of a number: that of their thread, or, with
`size`, the numbers below `size` in rotation.
"""

from __future__ import annotations

import threading
from itertools import count
from threading import get_ident
from typing import TYPE_CHECKING, Final

from konverse.schemas.errors import BadInput
from konverse.schemas.identifiers import mark_of, pool_group

if TYPE_CHECKING:
    from uuid import UUID

    from .slots import Slots

NUMBERED_FOUND_MAX: Final = 1_000
"""The next user of a named pool finds the conversations of this many threads, or all `size`; timers end the others."""


class PoolGroups:
    """The groups of one pool. `of` is called under the lock of `slots`."""

    def __init__(self, namespace: UUID, size: int | None, slots: Slots) -> None:
        self._namespace = namespace
        self._size = size
        self._slots = slots
        self._turns = count()
        self.threads: dict[int, int] = {}
        """Number of a thread's conversation, from 0 on -> ident of the thread."""
        self._numbered: dict[bytes, bytes] | None = None
        """Mark -> group, for conversations without a key, which are numbered by thread or below `size`."""

    def name(self, key: object) -> object:
        """The name under which senders find a conversation: the key, the next number below `size`, or the thread."""
        if isinstance(key, (str, bytes)):
            return key
        if key is not None:
            raise BadInput(f"a pool key must be str or bytes, not {key!r}")
        return get_ident() if self._size is None else next(self._turns) % self._size

    def of(self, name: object, key: str | bytes | None) -> tuple[bytes, bytes | None]:
        """The group of a name that has no slot yet, and the Kafka key of its records. Raises BadInput."""
        if key is None:
            return pool_group(self._namespace, f"{name if self._size is not None else self._number(name)}"), None
        try:
            kafka_key = key.encode() if isinstance(key, str) else key
        except UnicodeEncodeError as error:
            raise BadInput(f"the pool key {key!r} cannot be encoded as UTF-8: {error.reason}") from None
        return pool_group(self._namespace, f"key {kafka_key.hex()}"), kafka_key

    def find(self, mark: bytes, key: bytes | None) -> bytes | None:
        """The group of this pool with a mark: that of the Kafka key, else a numbered one, which may have any key."""
        if key is not None:
            group = pool_group(self._namespace, f"key {key.hex()}")
            if mark_of(group) == mark:
                return group
        if self._numbered is None:
            numbers = range(max(NUMBERED_FOUND_MAX, self._size or 0))  # an earlier process may have had a larger size
            groups = (pool_group(self._namespace, f"{number}") for number in numbers)
            self._numbered = {mark_of(group): group for group in groups}
        return self._numbered.get(mark)

    def _number(self, thread: object) -> int:
        """The number of a thread's conversation: its own, or one of a thread that has ended, else the next one."""
        assert isinstance(thread, int), "a send without a key is named by its thread"
        threading.current_thread()  # lets `enumerate` list a thread that Python did not start
        living = {one.ident for one in threading.enumerate()}
        gone = [number for number, ident in self.threads.items() if ident not in living]
        own = [number for number, ident in self.threads.items() if ident == thread]  # its slot was evicted
        number = next(iter(own + gone), len(self.threads))
        # a later thread may get the ident of an ended one, and must not find its conversation
        self._slots.forget_name(self.threads.get(number))
        self.threads[number] = thread
        return number
