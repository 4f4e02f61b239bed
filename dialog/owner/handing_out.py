"""The partitions of one process: chooses the one that hands out the next group, and handles groups that come back.

Drivers are `bridge.reader` and the simulator. They ask for a group, call a handler, report how it ended, and commit
(protocol.md section 9h).

A handler that received nothing and did nothing may be waiting for something. Its group rests before it is handed out
again, and longer each time: a handler that never receives must not keep a processor busy.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

from konverse.schemas.limits import RESTING_ENTRIES_MAX

from .events import LEADING
from .owner import highest_first

if TYPE_CHECKING:
    from collections.abc import Callable

    from konverse.dialog.state.endpoint import Endpoint
    from konverse.dialog.transaction.transaction import Transaction

    from .owner import Owner

REST_MS: Final = 50
REST_MAX_MS: Final = 1_000
"""Longest rest. A message that arrives during a rest waits at most this long."""


class HandingOut:
    """The partitions that one process owns, and their groups that rest."""

    def __init__(self) -> None:
        self.owners: list[Owner] = []
        """The owner that was served longest ago comes first."""
        self.resting = RestingGroups()

    def join(self, owner: Owner) -> None:
        """Add an owner, in place of an earlier one of the same partition."""
        number = owner.identity.partition
        self.owners = [*(other for other in self.owners if other.identity.partition != number), owner]

    def leave(self, owner: Owner) -> None:
        """Hand out nothing more of this owner."""
        self.owners = [other for other in self.owners if other is not owner]

    def served(self, owner: Owner) -> None:
        """Put the owner after all others."""
        if owner in self.owners:
            self.owners = [*(other for other in self.owners if other is not owner), owner]

    def next_group(self, commit: Callable[[Owner], None]) -> tuple[Owner, Transaction] | None:
        """The next group and its owner: one of the highest level that is ready in these partitions (behaviour 219)."""
        for owner in highest_first(self.owners):
            transaction = take(owner, commit)
            if transaction is not None:
                return owner, transaction
        return None

    def ended(self, owner: Owner, transaction: Transaction, *, commits: bool, error: str | None, now_ms: int) -> int:
        """Process the end of a handler's work: its group is committed, rests, or has failed with `error`.

        Without an error, work that is not committed was abandoned, which is no failed attempt of the group. Returns
        the result of `RestingGroups.add` for a group that rests, else 0.
        """
        if owner.phase is not LEADING:
            return 0
        try:
            return self._ended(owner, transaction, commits=commits, error=error, now_ms=now_ms)
        except BaseException:
            owner.interrupted()
            raise

    def _ended(self, owner: Owner, transaction: Transaction, *, commits: bool, error: str | None, now_ms: int) -> int:
        if commits and not transaction.idle:
            self.resting.worked(transaction)
            owner.finish(transaction)
            return 0
        self.served(owner)
        if commits:
            return self.resting.add(owner, transaction, now_ms)
        if error is None:
            owner.staging.roll_back(transaction)
        else:
            owner.trial.fail(transaction, error)
        return 0

    def hand_out_again(self, now_ms: int) -> None:
        """Make the groups ready again whose rest is over."""
        for owner, transaction in self.resting.due(now_ms):
            if owner.phase is LEADING:
                owner.staging.roll_back(transaction)

    @property
    def ready(self) -> bool:
        """Whether a group can probably be taken now."""
        return any(map(can_take, self.owners))

    @property
    def unread(self) -> int:
        """Messages that wait in these partitions, including those with handlers until they are committed."""
        return sum(owner.trial.unread[0] for owner in self.owners)

    def scarce(self, plenty: int) -> bool:
        """Whether to fetch more now: fewer than `plenty` messages wait, or some partition has no group to hand out.

        Otherwise a COMMIT should be finished first: messages that wait long leave the CPU caches.
        """
        return not all(owner.staging.ready for owner in self.owners) or self.unread < plenty


def can_take(owner: Owner) -> bool:
    """Whether it makes sense to ask this owner for a group."""
    staging = owner.staging
    return bool(staging.ready) and owner.free and not (staging.full and owner.committing)


def take(
    owner: Owner, commit: Callable[[Owner], None], wanted: Endpoint | None = None, *, whole: bool = True
) -> Transaction | None:
    """The next group of an owner, or the group of `wanted`; None when there is none now.

    Without `whole` the transaction has only the messages of `wanted`. While the next COMMIT is full nothing is handed
    out: it is appended first, or the one in flight is awaited (M284).
    """
    staging = owner.staging
    if staging.full:
        if not owner.committing:
            commit(owner)
        if staging.full:
            return None
    return owner.take(wanted, whole=whole) if wanted is not None or staging.ready else None


def take_further(owner: Owner, transaction: Transaction) -> Transaction | None:
    """A further group for a transaction, committed together with it; None when none may be taken now."""
    return owner.staging.further(transaction) if owner.free else None


def let_others_pass(owner: Owner) -> Transaction | None:
    """After a crash, skip the next group of the open TRY, as the caller wants another one. Returns the skipped one.

    After a crash groups are handed out a few at a time, so the wanted group may have to wait for groups that no handler
    asks for.
    """
    staging = owner.staging
    passed = owner.take() if owner.trial.careful and staging.ready else None
    if passed is not None:
        staging.roll_back(passed)
    return passed


def should_commit(owner: Owner, *, acknowledgements: bool) -> bool:
    """Whether something must be committed and no COMMIT is in flight.

    Acknowledgements alone are a reason when asked for, or when the outbox is full.
    """
    if owner.committing:
        return False
    return owner.staging.waiting or bool((acknowledgements or owner.congested) and owner.emitter.acknowledged())


def _rest_ms(times: int) -> int:
    """Length of the n-th rest in a row. The exponent is bounded, because a group may rest for years."""
    return min(REST_MAX_MS, REST_MS << min(times - 1, 10)) if times else 0


class RestingGroups:
    """The resting groups of one process."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Owner, Transaction]] = []
        """End of the rest, a unique number, owner and transaction."""
        self._times: dict[bytes, int] = {}
        """Conversation for which the group was handed out -> its number of rests in a row."""
        self._count = 0

    def __bool__(self) -> bool:
        return bool(self._heap)

    def add(self, owner: Owner, transaction: Transaction, now_ms: int) -> int:
        """Let a group rest because its handler did nothing.

        Returns its number of rests in a row when it reaches the longest rest for the first time, else 0.
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
        """Note that a handler did something: the count of rests starts again."""
        if self._times:
            self._times.pop(transaction.dialog.conversation, None)

    def due(self, now_ms: int) -> list[tuple[Owner, Transaction]]:
        """Remove and return the groups whose rest is over."""
        found: list[tuple[Owner, Transaction]] = []
        while self._heap and self._heap[0][0] <= now_ms:
            found.append(heappop(self._heap)[2:])
        return found

    def clear(self) -> None:
        """Forget all groups: nothing more is handed out."""
        self._heap.clear()
        self._times.clear()
