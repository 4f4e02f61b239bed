"""What a process hands out of its partitions to its handlers: which group next, and what becomes of one that came back.

Drivers are `bridge.reader` and the simulator. They ask, call handlers, tell how each has ended, and commit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .phase import LEADING
from .priorities import highest_first
from .resting import Resting
from .second_groups import further

if TYPE_CHECKING:
    from collections.abc import Callable

    from .endpoint import Endpoint
    from .owner import Owner
    from .transaction import Transaction


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
