"""Conversation groups handed out, and what came back: between the queues of a partition and its next commit.

Transactions on several conversation groups of a partition: one commits, and with it all (behaviour 85).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from konverse.dialog.rules.groups import said
from konverse.dialog.state.endpoint import Endpoint
from konverse.dialog.state.partition import Judge, Partition, indices
from konverse.dialog.state.ready import Ready, by_level
from konverse.dialog.state.transitions import State
from konverse.dialog.transaction.received import Rule, Scope
from konverse.dialog.transaction.transaction import NOT_GROUPED, Transaction, family, more_of
from konverse.schemas.errors import TransactionTooLarge
from konverse.schemas.limits import COMMIT_BYTES_TARGET, COMMIT_GROUPS_MAX, TRANSACTION_GROUPS_MAX
from konverse.schemas.wire.journal import EndOperation, Operations, Sends
from konverse.schemas.wire.operations import Cleanup, Finish, GiveBack, Move, MoveAway, SetTimer, Withdraw

from .commands import Orders
from .drops import Dropping
from .locks import is_in_the_way, let_go, note_held, take_apart
from .relocations import Altering, Leaving, Moving
from .settings import OwnerSettings


def _locked(endpoint: Endpoint) -> list[Endpoint]:
    """All endpoints of its group, which nobody else gets now."""
    members = by_level(endpoint.members)
    for member in members:
        member.held = True
    return members


class Staging:
    """Who holds which group, and which finished transactions wait for a commit."""

    def __init__(self, state: Partition, rule: Rule, settings: OwnerSettings) -> None:
        self.state = state
        self.scope = Scope(state.identity.incarnation, state.identity.partition, rule)
        self.scope.now_ms = partial(getattr, state, "now_ms")  # whoever copies an owner copies no lambda
        self.settings = settings
        self.batch = min(settings.batch, COMMIT_GROUPS_MAX)
        self.finished: list[Transaction] = []
        self.judge: Judge | None = None
        """Who decides which messages are rejected, once the partition is ours; nobody: none is."""
        self.moving = Moving(state, self.free)
        self.altering = Altering(state, self.moving)
        self.leaving = Leaving(state, self.moving)
        self.dropping = Dropping(state)
        self.orders = Orders(state, self.free)
        self.size_bytes = 0
        self.several = False
        """Some of what was finished moves conversations to other groups, or is on several of them."""
        self.tried: deque[Endpoint] | None = None
        """Where the next group comes from while an owner is careful: those of an open TRY (`dialog.owner.poison`)."""
        self.out = 0
        """Transactions that are with handlers."""
        self.overtaken: list[Transaction] = []
        """Of the last `merge`: those of which nothing was committed, because a session's END came before."""

    @property
    def ready(self) -> Ready:
        """Where the next group comes from: all that are ready, or those of an open TRY."""
        return self.state.ready if self.tried is None else self.tried

    @property
    def waiting(self) -> bool:
        """Something waits for the next commit."""
        return bool(self.finished or self.moving or self.dropping)

    @property
    def full(self) -> bool:
        """The next commit holds as much as it should."""
        return len(self.finished) >= self.batch or self.size_bytes >= COMMIT_BYTES_TARGET

    def take(self) -> Transaction | None:
        """The ready messages of the next free group, locked (behaviours 64, 71, 72, 219); None when all wait."""
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
                locked = _locked(endpoint)
                members = [(m, m.queue[:most]) for m in locked if m.waits]
            self.out += 1
            return Transaction(members, locked, state.endings, self.scope)
        return None

    def take_from(self, endpoint: Endpoint, *, whole: bool) -> Transaction | None:
        """The ready messages of this group, or of this conversation alone; the group is locked (behaviour 75).

        None when there are none, or somebody else has it, or it may not be handed out now.
        """
        asked = by_level(endpoint.members) if whole else [endpoint]
        most = self.settings.max_messages
        members = [(member, member.queue[:most]) for member in asked if member.waits]
        if endpoint.held or not members or (self.altering.services and self.altering.takes(endpoint)):
            return None
        if self.state.moves.leaving and self.leaving.takes(endpoint):
            return None
        if self.tried is not None:  # under a TRY its groups are handed out once
            tried = [member for member in endpoint.members if member in self.tried]
            if not tried:
                return None
            for member in tried:
                self.tried.remove(member)
        locked = NOT_GROUPED if endpoint.group is None else _locked(endpoint)
        endpoint.held = True
        self.out += 1
        return Transaction(members, locked, self.state.endings, self.scope)

    def finish(self, transaction: Transaction) -> None:
        """The handler is done: what it did joins the next commit."""
        self.out -= 1
        if transaction.more is not None:
            self.several = True
            gather(self, transaction)
        self.finished.append(transaction)
        self.size_bytes += transaction.size_bytes

    def roll_back(self, transaction: Transaction) -> None:
        """Nothing came of it: its messages wait as before, and nothing of it was written (behaviour 74)."""
        for one in self.take_apart(transaction):
            self.out -= 1
            self.let_go(one)

    def take_apart(self, transaction: Transaction) -> list[Transaction]:
        """Of one that came back, all of its groups, each by itself."""
        return [transaction] if transaction.more is None else take_apart(self, transaction)

    def let_go(self, transaction: Transaction) -> None:
        """The group of a transaction that came back is ready again."""
        transaction.clear()
        self.free(transaction.dialog)

    def merge(self) -> tuple[Operations, list[Transaction]]:
        """What was finished, as the operations of one commit, and the transactions to `release` after it."""
        finished = self._next_commit()
        several = self.several
        if several:
            finished = spread(self, finished)
        operations = Operations()
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
            operations.rare[:0] = said(self.state, operations.begins)
        return operations, finished

    def _next_commit(self) -> list[Transaction]:
        """What was finished first, up to the size of a commit; the rest joins the one after it."""
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
        """The commit was applied: the groups of these transactions may be taken again."""
        if self.several:
            release(self, transactions)
            return
        for transaction in transactions:
            self.free(transaction.dialog)

    def free(self, endpoint: Endpoint) -> None:
        """Nothing holds its group any more, unless it leaves, or an operator wants something with it."""
        if self.state.moves.leaving and self.leaving.keeps(endpoint):
            return
        if self.orders and self.orders.keeps(endpoint):
            return
        table, ready = self.state.table, self.state.ready
        for member in endpoint.members if endpoint.group is not None else (endpoint,):
            member.held = False
            member.ending = None
            if member.waits and table[member.index] is member:
                ready.append(member)  # each: one of them may be ended before the group is taken

    def _overtaken(self, transaction: Transaction) -> bool:
        """Of it or one that it is committed with something is not any more as it was."""
        if transaction.more is None:
            return self._discarded(transaction)
        return any(self._discarded(one) or is_in_the_way(self, one) for one in family(transaction))

    def _discarded(self, transaction: Transaction) -> bool:
        """A session's END came before the handler was done: the messages that it read were discarded by that."""
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
        touched = {index for index in touched if index >= 0}  # the others are begun by it
        for member in transaction.locked or transaction.members:
            if member.index in touched:
                if table[member.index] is not member or member.committed is State.DISCONNECTED_OUTBOUND:
                    return True
                touched.discard(member.index)
        return bool(touched)


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


class _Staged(NamedTuple):
    sends: list[Sends]
    ends: list[EndOperation]
    finishes: list[Finish]
    timers: list[SetTimer]
    cleanups: list[Cleanup | GiveBack]
    moves: list[Move | MoveAway]


def place(transaction: Transaction, operations: Operations, free: Iterator[int]) -> _Staged:
    """Put what a transaction begins into a commit; what it sends and ends, with the indices that it will have there."""
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
