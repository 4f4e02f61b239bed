"""What a process hands out of its partitions to its handlers: which group next, and what becomes of one that came back.

Drivers are `bridge.reader` and the simulator. They ask, call handlers, tell how each has ended, and commit.

Groups whose handler took nothing of them and did nothing: handed out again a little later, and later each time.

A handler may have waited for something that comes soon. One that never takes anything shall not keep a processor busy.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

from konverse.schemas.limits import RESTING_ENTRIES_MAX

from .events import LEADING
from .owner import highest_first
from .staging import further

if TYPE_CHECKING:
    from collections.abc import Callable

    from konverse.dialog.state.endpoint import Endpoint
    from konverse.dialog.transaction.transaction import Transaction

    from .owner import Owner

REST_MS: Final = 50
REST_MAX_MS: Final = 1_000
"""What comes meanwhile for such a group waits so long at most."""


class HandingOut:
    """The partitions that one process owns, and the groups of them that rest."""

    def __init__(self) -> None:
        self.owners: list[Owner] = []
        """The one that has waited longest comes first."""
        self.resting = Resting()

    def join(self, owner: Owner) -> None:
        """Its groups are handed out, and none of an owner that had its partition before."""
        number = owner.identity.partition
        self.owners = [*(other for other in self.owners if other.identity.partition != number), owner]

    def leave(self, owner: Owner) -> None:
        """Nothing of it is handed out any more."""
        self.owners = [other for other in self.owners if other is not owner]

    def served(self, owner: Owner) -> None:
        """The others come before it now."""
        if owner in self.owners:
            self.owners = [*(other for other in self.owners if other is not owner), owner]

    def next_group(self, commit: Callable[[Owner], None]) -> tuple[Owner, Transaction] | None:
        """The next group, of the highest level that is ready in these partitions (behaviour 219), and whose it is."""
        for owner in highest_first(self.owners):
            transaction = take(owner, commit)
            if transaction is not None:
                return owner, transaction
        return None

    def ended(self, owner: Owner, transaction: Transaction, *, commits: bool, error: str, now_ms: int) -> int:
        """The work on a group is over: it is committed, rests a moment, or has failed with `error`.

        Returns what `Resting.add` returns.
        """
        if owner.phase is not LEADING:
            return 0
        if commits and not transaction.idle:
            self.resting.worked(transaction)
            owner.finish(transaction)
            return 0
        self.served(owner)
        if commits:
            return self.resting.add(owner, transaction, now_ms)
        owner.trial.fail(transaction, error)
        return 0

    def hand_out_again(self, now_ms: int) -> None:
        """What has rested is ready again."""
        for owner, transaction in self.resting.due(now_ms):
            if owner.phase is LEADING:
                owner.staging.roll_back(transaction)

    @property
    def ready(self) -> bool:
        """Some group can be taken now, or something is gone that seemed to be one."""
        return any(map(can_take, self.owners))

    @property
    def unread(self) -> int:
        """Messages that wait in these partitions, taken ones among them until they are committed."""
        return sum(owner.trial.unread[0] for owner in self.owners)

    def scarce(self, plenty: int) -> bool:
        """Less than `plenty` waits, or a partition has nothing to take while another's commit is awaited.

        Else more is not fetched before a commit is done: what waits long leaves the caches.
        """
        return not all(owner.staging.ready for owner in self.owners) or self.unread < plenty


def can_take(owner: Owner) -> bool:
    """Whether it makes sense to ask this owner for a group."""
    staging = owner.staging
    return bool(staging.ready) and owner.free and not (staging.full and owner.committing)


def take(
    owner: Owner, commit: Callable[[Owner], None], wanted: Endpoint | None = None, *, whole: bool = True
) -> Transaction | None:
    """The next group of an owner, or a wanted one, or of that one conversation alone; None when there is none now.

    While the next commit holds as much as it should nothing is handed out: it is made, or the one before is awaited.
    """
    staging = owner.staging
    if staging.full:
        if not owner.committing:
            commit(owner)
        if staging.full:
            return None
    return owner.take(wanted, whole=whole) if wanted is not None or staging.ready else None


def take_further(owner: Owner, transaction: Transaction) -> Transaction | None:
    """A further group for a transaction, which commits them together; None when none is free, or none may be taken."""
    return further(owner.staging, transaction) if owner.free else None


def let_others_pass(owner: Owner) -> Transaction | None:
    """After a crash groups have their turn, some at a time: one that nobody wants is passed over. Returns it.

    Called where a group is wanted that cannot be had now: it may have its turn behind the others.
    """
    staging = owner.staging
    passed = owner.take() if owner.trial.careful and staging.ready else None
    if passed is not None:
        staging.roll_back(passed)
    return passed


def should_commit(owner: Owner, *, acknowledgements: bool) -> bool:
    """Something waits for a commit, and none is on its way; acknowledgements wait when asked for, or for room."""
    if owner.committing:
        return False
    return owner.staging.waiting or bool((acknowledgements or owner.congested) and owner.emitter.acknowledged())


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
