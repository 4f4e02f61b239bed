"""The staging steps of an owner's driver, for tests of transactions between receive and commit."""

from __future__ import annotations

from collections.abc import Callable

from konverse.dialog.owner.staging import Staging
from konverse.dialog.state.endpoint import Endpoint
from konverse.dialog.transaction.begun import NewDialog
from konverse.dialog.transaction.received import GroupPlace
from konverse.dialog.transaction.transaction import Transaction
from konverse.schemas.identifiers import Address
from konverse.schemas.wire.journal import CommitOperations

from .builders import Side
from .hosts import host_of


def taken(staging: Staging) -> Transaction:
    """The next group, taken."""
    transaction = staging.take()
    assert transaction is not None, "no group is free and ready"
    return transaction


def finds(staging: Staging, elsewhere: Callable[[bytes], GroupPlace | None] = lambda _: None) -> Staging:
    """Let the staging's transactions lock groups of its partition, and find all other groups with `elsewhere`."""

    def lock_or_find(transaction: Transaction, dialog: Endpoint | NewDialog, group: bytes) -> Address | None:
        here = staging.locks.is_here(transaction, dialog, group)
        return staging.lock(transaction, dialog, group, None if here else elsewhere(group))

    host_of(staging).lock = lock_or_find
    return staging


def commit(staging: Staging, side: Side) -> CommitOperations:
    """Commit the finished transactions as an owner does."""
    operations, transactions = staging.merge()
    side.commit(**{name: getattr(operations, name) for name in CommitOperations.__dataclass_fields__})
    staging.release(transactions)
    return operations
