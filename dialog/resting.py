"""Groups whose handler took nothing of them and did nothing: handed out again a little later, and later each time.

A handler may have waited for something that comes soon. One that never takes anything shall not keep a processor busy.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

from konverse.schemas.limits import RESTING_ENTRIES_MAX

if TYPE_CHECKING:
    from .owner import Owner
    from .transaction import Transaction

REST_MS: Final = 50
REST_MAX_MS: Final = 1_000
"""What comes meanwhile for such a group waits so long at most."""


def _rest_ms(times: int) -> int:
    """How long a group rests the n-th time in a row; it may do so for years."""
    return min(REST_MAX_MS, REST_MS << min(times - 1, 10)) if times else 0


class Resting:
    """Those of one process."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Owner, Transaction]] = []
        """When each is handed out again, and a number that no two have."""
        self._times: dict[bytes, int] = {}
        """Conversation for which the group was handed out -> how often in a row it rested."""
        self._count = 0

    def __bool__(self) -> bool:
        return bool(self._heap)

    def add(self, owner: Owner, transaction: Transaction, now_ms: int) -> int:
        """Its block has ended, and nothing was done in it.

        Returns how often in a row that was so when the group rests the longest time for the first time, else 0.
        """
        conversation = transaction.dialog.conversation
        if len(self._times) >= RESTING_ENTRIES_MAX:
            self._times.clear()
        times = self._times[conversation] = self._times.get(conversation, 0) + 1
        rest_ms = _rest_ms(times)
        self._count += 1
        heappush(self._heap, (now_ms + rest_ms, self._count, owner, transaction))
        return times if rest_ms == REST_MAX_MS > _rest_ms(times - 1) else 0

    def worked(self, transaction: Transaction) -> None:
        """Something was done in its block."""
        if self._times:
            self._times.pop(transaction.dialog.conversation, None)

    def due(self, now_ms: int) -> list[tuple[Owner, Transaction]]:
        """Those whose groups are handed out again now."""
        found: list[tuple[Owner, Transaction]] = []
        while self._heap and self._heap[0][0] <= now_ms:
            found.append(heappop(self._heap)[2:])
        return found

    def clear(self) -> None:
        """Nothing is handed out any more."""
        self._heap.clear()
        self._times.clear()
