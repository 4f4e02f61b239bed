"""What the driver of an owner does with groups, for tests between the queues and the next commit."""

from __future__ import annotations

from konverse.dialog.owner.staging import Staging
from konverse.dialog.transaction.transaction import Transaction
from konverse.schemas.wire.journal import Operations

from .builders import Side


def taken(staging: Staging) -> Transaction:
    """The next group."""
    transaction = staging.take()
    assert transaction is not None, "no group is free and ready"
    return transaction


def commit(staging: Staging, side: Side) -> Operations:
    """What an owner does with what was finished."""
    operations, transactions = staging.merge()
    side.commit(**{name: getattr(operations, name) for name in Operations.__dataclass_fields__})
    staging.release(transactions)
    return operations
