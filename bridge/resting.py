"""Groups whose handler took nothing of them and did nothing: handed out again a little later, and later each time.

A handler may have waited for something that comes soon. One that never takes anything shall not keep a processor busy.
"""

from __future__ import annotations

import logging
import time
from heapq import heappop, heappush
from typing import Final

from konverse.dialog.owner import Owner
from konverse.dialog.transaction import Transaction
from konverse.schemas.limits import RESTING_ENTRIES_MAX

log: Final = logging.getLogger("konverse.reader")

REST_S: Final = 0.05
REST_MAX_S: Final = 1.0
"""What comes meanwhile for such a group waits so long at most."""


def _rest_s(times: int) -> float:
    """How long a group rests the n-th time in a row; it may do so for years."""
    return min(REST_MAX_S, REST_S * 2.0 ** min(times - 1, 10))


class Resting:
    """Those of one reader. Whoever calls holds its lock."""

    def __init__(self, queue: str) -> None:
        self._queue = queue
        self._heap: list[tuple[float, int, Owner, Transaction]] = []
        """When each is handed out again, and a number that no two have."""
        self._times: dict[bytes, int] = {}
        """Conversation for which the group was handed out -> how often in a row it rested."""
        self._count = 0

    def __bool__(self) -> bool:
        return bool(self._heap)

    def add(self, owner: Owner, transaction: Transaction) -> None:
        """Its block has ended, and nothing was done in it."""
        conversation = transaction.dialog.conversation
        if len(self._times) >= RESTING_ENTRIES_MAX:
            self._times.clear()
        times = self._times[conversation] = self._times.get(conversation, 0) + 1
        rest_s = _rest_s(times)
        if rest_s == REST_MAX_S > _rest_s(times - 1):
            log.warning(
                "a handler of queue %r has taken nothing of conversation %s for %d times in a row; it is called again "
                "every %.0f s. Receive its messages, or end the conversation",
                self._queue,
                transaction.dialog.id,
                times,
                REST_MAX_S,
            )
        self._count += 1
        heappush(self._heap, (time.monotonic() + rest_s, self._count, owner, transaction))

    def worked(self, transaction: Transaction) -> None:
        """Something was done in its block."""
        if self._times:
            self._times.pop(transaction.dialog.conversation, None)

    def due(self) -> list[tuple[Owner, Transaction]]:
        """Those whose groups are handed out again now."""
        now = time.monotonic()
        found: list[tuple[Owner, Transaction]] = []
        while self._heap and self._heap[0][0] <= now:
            found.append(heappop(self._heap)[2:])
        return found

    def clear(self) -> None:
        """The reader is closed."""
        self._heap.clear()
        self._times.clear()
