"""Transactions that end too late: what they did is received again by whoever has their partition now."""

from __future__ import annotations

from konverse.dialog.received import Scope
from konverse.dialog.transaction import Transaction


class Late:
    """How many there were. It takes the place of a reader, which need not stay alive for those who still hold them."""

    def __init__(self) -> None:
        self.count = 0

    def attach(self, scope: Scope) -> None:
        """Be asked by the transactions of an owner that has lost its partition."""
        nobody = Scope(scope.incarnation, scope.partition, scope.rule)
        scope.done, scope.lock, scope.further = self.ended, nobody.lock, nobody.further
        scope.elsewhere = nobody.elsewhere

    def ended(self, transaction: Transaction, commit: bool) -> None:  # noqa: FBT001  # a callback's shape
        """A `with` block ends, to commit or to roll back."""
        self.count += commit and not transaction.idle
