"""Hands conversation groups out to handlers, and collects the handlers' work for the next COMMIT.

A transaction may work on several groups of the partition; its COMMIT holds all of them (behaviour 85).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from konverse.dialog.rules.groups import prioritize_operations
from konverse.dialog.state.endpoint import Endpoint
from konverse.dialog.state.partition import AdmissionPolicy, Partition, indices
from konverse.dialog.state.ready import Ready, by_level
from konverse.dialog.state.transitions import State
from konverse.dialog.transaction.begun import NewDialog
from konverse.dialog.transaction.received import GroupPlace, MessageContext, Rule
from konverse.dialog.transaction.transaction import NOT_GROUPED, Transaction, TransactionContext, family, more_of
from konverse.schemas.errors import TransactionTooLarge
from konverse.schemas.identifiers import Address
from konverse.schemas.limits import COMMIT_BYTES_TARGET, COMMIT_GROUPS_MAX, TRANSACTION_GROUPS_MAX
from konverse.schemas.wire.journal import CommitOperations, EndOperation, Sends
from konverse.schemas.wire.operations import Cleanup, Finish, GiveBack, Move, MoveAway, SetTimer, Withdraw

from .drops import DroppedConversations
from .locks import GroupLocks
from .relocations import AlteredServices
from .settings import OwnerSettings


class Staging:
    """Hands out groups as transactions, and keeps the finished transactions that wait for a COMMIT."""

    def __init__(self, state: Partition, rule: Rule, settings: OwnerSettings) -> None:
        self.state = state
        now_ms = partial(getattr, state, "now_ms")  # unlike a lambda, it is copied with the owner
        messages = MessageContext(state.identity.incarnation, state.identity.partition, now_ms)
        self.context = TransactionContext(messages, rule)
        self.settings = settings
        self.batch = min(settings.batch, COMMIT_GROUPS_MAX)
        self.finished: list[Transaction] = []
        self.judge: AdmissionPolicy | None = None
        """Decides which messages are rejected, once the owner leads; None: no message is rejected."""
        self.locks = GroupLocks(state)
        self.moving, self.leaving = self.locks.moving, self.locks.leaving
        self.altering = AlteredServices(state, self.moving)
        self.dropping = DroppedConversations(state)
        self.size_bytes = 0
        self.several = False
        """Whether a finished transaction moves conversations to other groups, or works on several groups."""
        self.tried: deque[Endpoint] | None = None
        """Groups of the open TRY that were not handed out yet, while the owner is careful (`dialog.owner.poison`);
        else None."""
        self.out = 0
        """Number of transactions that handlers have."""
        self.overtaken: list[Transaction] = []
        """Transactions that the last `merge` dropped, because the state had changed under them."""

    @property
    def ready(self) -> Ready:
        """The groups from which the next one is taken: all ready groups, or those of the open TRY."""
        return self.state.ready if self.tried is None else self.tried

    @property
    def waiting(self) -> bool:
        """Whether something waits for the next COMMIT."""
        return bool(self.finished or self.moving or self.dropping)

    @property
    def full(self) -> bool:
        """Whether the next COMMIT has reached its size."""
        return len(self.finished) >= self.batch or self.size_bytes >= COMMIT_BYTES_TARGET

    def take(self) -> Transaction | None:
        """Lock the next free group, and return its ready messages (64, 71, 72, 219); None when no group is free."""
        state = self.state
        ready = state.ready if self.tried is None else self.tried
        table = state.table
        most, altered, leaving = self.settings.max_messages, self.altering.services, state.moves.leaving
        while ready:
            endpoint = ready.popleft()
            if endpoint.held or not (endpoint.queue or endpoint.urgent) or table[endpoint.index] is not endpoint:
                continue
            if altered and self.altering.takes(endpoint):
                continue
            if leaving and self.leaving.takes(endpoint):
                continue
            if endpoint.group is None:
                endpoint.held = True
                locked: list[Endpoint] = NOT_GROUPED
                members = [(endpoint, endpoint.queue[:most])]
            else:
                locked = self.locks.hold(endpoint)
                members = [(m, m.queue[:most]) for m in locked if m.waits]
            self.out += 1
            return Transaction(members, locked, state.endings, self.context)
        return None

    def take_from(self, endpoint: Endpoint, *, whole: bool) -> Transaction | None:
        """Lock the group of `endpoint`. Returns its ready messages, without `whole` only those of `endpoint` (75).

        None when no message is ready, another transaction has the group, or it may not be handed out now.
        """
        asked = by_level(endpoint.members) if whole else [endpoint]
        most = self.settings.max_messages
        members = [(member, member.queue[:most]) for member in asked if member.waits]
        if endpoint.held or not members or (self.altering.services and self.altering.takes(endpoint)):
            return None
        if self.state.moves.leaving and self.leaving.takes(endpoint):
            return None
        if self.tried is not None:  # each group of a TRY is handed out once
            tried = [member for member in endpoint.members if member in self.tried]
            if not tried:
                return None
            for member in tried:
                self.tried.remove(member)
        locked = NOT_GROUPED if endpoint.group is None else self.locks.hold(endpoint)
        endpoint.held = True
        self.out += 1
        return Transaction(members, locked, self.state.endings, self.context)

    def further(self, transaction: Transaction) -> Transaction | None:
        """Lock the next free group as a part of the transaction; None when no group is free.

        Raises TransactionTooLarge at TRANSACTION_GROUPS_MAX groups.
        """
        more = more_of(family(transaction)[0])
        if len(more.parts) + 1 >= TRANSACTION_GROUPS_MAX:
            raise TransactionTooLarge(f"a transaction works on {TRANSACTION_GROUPS_MAX} conversation groups at most")
        part = self.take()
        if part is not None:
            part.join(more.first)
            more.parts = [*more.parts, part]
        return part

    def lock(
        self, transaction: Transaction, dialog: Endpoint | NewDialog, group: bytes, found: GroupPlace | None
    ) -> Address | None:
        """Lock the group to which `dialog` moves, as `GroupLocks.lock`."""
        return self.locks.lock(transaction, dialog, group, found, careful=self.tried is not None)

    def finish(self, transaction: Transaction) -> None:
        """Put a handler's finished work into the next COMMIT."""
        self.out -= 1
        if transaction.more is not None:
            self.several = True
            parts = transaction.more.parts
            self.out -= len(parts)
            transaction.size_bytes += sum(part.size_bytes for part in parts)
        self.finished.append(transaction)
        self.size_bytes += transaction.size_bytes

    def roll_back(self, transaction: Transaction) -> None:
        """Drop the work of a transaction, and make its groups ready: the messages wait as before (behaviour 74)."""
        for one in self.locks.take_apart(transaction):
            self.out -= 1
            self.discard(one)

    def discard(self, transaction: Transaction) -> None:
        """Drop the work of a transaction, and make its group ready."""
        transaction.clear()
        self.locks.free(transaction.dialog)

    def merge(self) -> tuple[CommitOperations, list[Transaction]]:
        """The operations of the next COMMIT, and the transactions to `release` after it was applied."""
        finished = self._next_commit()
        several = self.several
        if several:
            finished = self._spread(finished)
        operations = CommitOperations()
        self.overtaken = []
        endings = self.state.endings
        free = indices(self.state)
        for transaction in finished:
            if transaction.endings != endings and self._overtaken(transaction):
                self.overtaken.append(transaction)
                continue
            received = transaction.received
            operations.receive_endpoints += received
            operations.receive_positions += received.values()
            does = place(transaction, operations, free) if transaction.begins else transaction
            operations.sends += does.sends
            operations.ends += does.ends
            operations.rare += does.finishes
            operations.rare += does.timers
            operations.rare += does.cleanups
            operations.rare += [Withdraw(end.endpoint) for end in does.ends if end.code]
            if several:
                operations.rare += does.moves
        operations.rare += self.moving.operations()
        if self.state.unsaid or operations.begins:
            operations.rare[:0] = prioritize_operations(self.state, operations.begins)
        return operations, finished

    def _spread(self, finished: list[Transaction]) -> list[Transaction]:
        """The finished transactions, one for each of their groups. Notes which groups to unlock after the COMMIT."""
        for transaction in finished:
            if transaction.more is not None:
                self.locks.note(transaction)
        return [one for transaction in finished for one in family(transaction)]

    def _next_commit(self) -> list[Transaction]:
        """The transactions that finished first, up to the size of a COMMIT. The others join the one after it."""
        total, count = self.size_bytes, len(self.finished)
        if total > COMMIT_BYTES_TARGET:
            total = count = 0
            while total < COMMIT_BYTES_TARGET:
                total += self.finished[count].size_bytes
                count += 1
        finished, self.finished = self.finished[:count], self.finished[count:]
        self.size_bytes -= total
        return finished

    def release(self, transactions: list[Transaction]) -> None:
        """The COMMIT was applied: unlock the groups of these transactions."""
        free = self.locks.free
        for transaction in transactions:
            if transaction.more is None:
                free(transaction.dialog)
            elif transaction.more.first is transaction:
                self.locks.free_noted(transaction)
        if self.several:
            self.several = any(transaction.more is not None for transaction in self.finished)

    def _overtaken(self, transaction: Transaction) -> bool:
        """Whether the state has changed under the transaction, or under one that is committed with it."""
        if transaction.more is None:
            return self._discarded(transaction)
        return any(self._discarded(one) or self.locks.is_in_the_way(one) for one in family(transaction))

    def _discarded(self, transaction: Transaction) -> bool:
        """Whether an endpoint of the staged work has ended or is forgotten, for example by a session's END (M30)."""
        table = self.state.table
        touched = {
            *transaction.received,
            *(sends[0] for sends in transaction.sends),
            *(end.endpoint for end in transaction.ends),
            *(finish.endpoint for finish in transaction.finishes),
            *(timer.endpoint for timer in transaction.timers),
            *(cleanup.endpoint for cleanup in transaction.cleanups),
        }
        if transaction.more is not None:
            touched.update(move.endpoint for move in transaction.moves)
        touched = {index for index in touched if index >= 0}  # below 0: endpoints that it begins
        for member in transaction.locked or transaction.members:
            if member.index in touched:
                if table[member.index] is not member or member.committed is State.DISCONNECTED_OUTBOUND:
                    return True
                touched.discard(member.index)
        return bool(touched)


class _Staged(NamedTuple):
    sends: list[Sends]
    ends: list[EndOperation]
    finishes: list[Finish]
    timers: list[SetTimer]
    cleanups: list[Cleanup | GiveBack]
    moves: list[Move | MoveAway]


def place(transaction: Transaction, operations: CommitOperations, free: Iterator[int]) -> _Staged:
    """Add the begins of a transaction to a COMMIT. Returns its other work, with the indices of the new endpoints."""
    begun = transaction.begins
    operations.begins += [(one.conversation, one.begin) for one in begun]
    places = {one.index: index for one, index in zip(begun, free, strict=False)}
    return _Staged(
        [(places.get(index, index), kind, bodies) for index, kind, bodies in transaction.sends],
        [end._replace(endpoint=places.get(end.endpoint, end.endpoint)) for end in transaction.ends],
        [Finish(places.get(finish.endpoint, finish.endpoint)) for finish in transaction.finishes],
        [timer._replace(endpoint=places.get(timer.endpoint, timer.endpoint)) for timer in transaction.timers],
        [cleanup._replace(endpoint=places.get(cleanup.endpoint, cleanup.endpoint)) for cleanup in transaction.cleanups],
        [move._replace(endpoint=places.get(move.endpoint, move.endpoint)) for move in transaction.moves],
    )
