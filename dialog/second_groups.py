"""Transactions on several conversation groups of a partition: one commits, and with it all (behaviour 85)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konverse.schemas.errors import TransactionTooLarge
from konverse.schemas.limits import TRANSACTION_GROUPS_MAX

from .regrouping import family, let_go, more_of, note_held

if TYPE_CHECKING:
    from .staging import Staging
    from .transaction import Transaction


def further(staging: Staging, transaction: Transaction) -> Transaction | None:
    """The next free group, locked, as a part of a transaction; None when all wait."""
    more = more_of(family(transaction)[0])
    if len(more.parts) + 1 >= TRANSACTION_GROUPS_MAX:
        raise TransactionTooLarge(f"a transaction works on {TRANSACTION_GROUPS_MAX} conversation groups at most")
    part = staging.take()
    if part is not None:
        part.join(more.first)
        more.parts = [*more.parts, part]
    return part


def gather(staging: Staging, transaction: Transaction) -> None:
    """A transaction is finished, and its further groups with it."""
    parts = family(transaction)[1:]
    staging.out -= len(parts)
    transaction.size_bytes += sum(part.size_bytes for part in parts)


def spread(staging: Staging, finished: list[Transaction]) -> list[Transaction]:
    """What was finished, and all their further groups, before the commit."""
    for transaction in finished:
        if transaction.more is not None:
            note_held(staging, transaction)
    return [one for transaction in finished for one in family(transaction)]


def release(staging: Staging, transactions: list[Transaction]) -> None:
    """The commit was applied: all groups of these transactions may be taken again."""
    for transaction in transactions:
        if transaction.more is None:
            staging.free(transaction.dialog)
        elif transaction.more.first is transaction:
            let_go(staging, transaction)
    staging.several = any(transaction.more is not None for transaction in staging.finished)
