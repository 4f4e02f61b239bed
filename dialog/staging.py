"""Conversation groups handed out, and what came back: between the queues of a partition and its next commit."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from functools import partial

from konverse.schemas.journal import Operations
from konverse.schemas.limits import (
    COMMIT_BYTES_TARGET,
    COMMIT_GROUPS_MAX,
    TIME_LAG_MS_MAX,
    TRY_GROUPS_MAX,
    UNCOMMITTED_MS_MAX,
)
from konverse.schemas.operations import Withdraw

from .altering import Altering
from .begun import indices, place
from .dropping import Dropping
from .endpoint import Endpoint
from .leaving import Leaving
from .moving import Moving
from .orders import Orders
from .partition import Partition
from .priorities import Ready, by_level, said
from .received import Rule, Scope
from .regrouping import family, is_in_the_way, lock_wherever, take_apart
from .rejecting import Judge
from .second_groups import gather, release, spread
from .states import State
from .transaction import NOT_GROUPED, Transaction
from .turns import Turns


@dataclass(frozen=True, slots=True)
class OwnerSettings:
    """What a user may choose, and what the owners of a process share."""

    batch: int = 100
    """Conversation groups that share one commit, at most."""
    max_messages: int | None = None
    """Messages of one conversation that a transaction gets, at most (RECEIVE TOP n)."""
    view_interval_ms: int | None = 100
    """The view is written at most this often; None: there is none."""
    alive_every_ms: int = TIME_LAG_MS_MAX // 2
    """The journal never stands still for longer."""
    turns: Turns = field(default_factory=Turns)
    """Of all owners of the process."""
    uncommitted_ms: int = UNCOMMITTED_MS_MAX
    """What came in and what arrived elsewhere is committed within that, also when no handler has done anything."""
    handlers: int = TRY_GROUPS_MAX
    """So many run at a time here, as far as that is known."""
    hands_out: bool = True
    """Groups are handed out here; an owner that only looks after a partition announces none of them by TRY."""


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
        self.scope.lock = partial(lock_wherever, self)
        self.several = False
        """Some of what was finished moves conversations to other groups, or is on several of them."""
        self.tried: deque[Endpoint] | None = None
        """Where the next group comes from while an owner is careful: those of an open TRY (`dialog.trial`)."""
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
