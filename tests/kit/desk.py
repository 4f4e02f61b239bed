"""A partition whose handlers begin dialogs, and the partition of their targets, without servers."""

from __future__ import annotations

from konverse.dialog.owner.settings import OwnerSettings
from konverse.dialog.owner.staging import Staging
from konverse.dialog.transaction.begun import NewDialog
from konverse.dialog.transaction.received import Clauses
from konverse.dialog.transaction.transaction import Transaction
from konverse.routing.loops import with_hops
from konverse.schemas.identifiers import Role
from konverse.schemas.wire.journal import CommitOperations
from konverse.schemas.wire.records import Begin
from tests.kit.builders import Pair, Side, anything, identifier
from tests.kit.staging import finds


class Desk:
    """A partition of `orders` whose handlers begin dialogs with `depot`."""

    def __init__(self) -> None:
        self.pair = Pair()
        self.side = self.pair.target
        self.depot = Side("depot")
        self.staging = finds(Staging(self.side.state, anything, OwnerSettings()))
        self.staging.context.begin = self._begin
        self._count = 0

    def _begin(self, clauses: Clauses) -> tuple[bytes, Begin]:
        self._count += 1
        conversation = identifier(f"begun {self._count}")
        near, far, contract, group, key, lifetime_ms, hops = clauses
        if hops:
            conversation = with_hops(conversation, hops)
        begin = Begin(near, far, contract, self.side.address, self.depot.address, group or conversation, key)
        return conversation, begin._replace(lifetime_ms=lifetime_ms)

    def take(self) -> Transaction:
        transaction = self.staging.take()
        assert transaction is not None, "no group is ready"
        return transaction

    def order(self, name: str = "an order") -> Transaction:
        """A client sends an order. Returns the transaction that has received it."""
        self.pair.begin(name)
        transaction = self.take()
        list(transaction)
        return transaction

    def commit(self, *transactions: Transaction) -> None:
        for transaction in transactions:
            self.staging.finish(transaction)
        operations, merged = self.staging.merge()
        self.side.commit(**{name: getattr(operations, name) for name in CommitOperations.__dataclass_fields__})
        self.staging.release(merged)

    def answer(self, dialog: NewDialog) -> None:
        """`depot` receives the dialog's messages and answers."""
        self.side.deliver(self.depot)
        receiver = self.depot.state.endpoint(Role.TARGET, dialog.conversation)
        assert receiver is not None
        self.depot.send(receiver, b"answer")
        self.depot.deliver(self.side)
