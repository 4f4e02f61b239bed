"""Handlers that fail, or that kill their process: how an owner deals with them (protocol.md section 7.1).

An ATTEMPT in the next COMMIT counts a handler that raises. A handler that kills its process reports nothing. So
after a CLAIM that did not follow a release the owner is careful: it hands out only groups that a TRY in its journal
names. A TRY must count before its groups are handed out, and all of them must come back before the next TRY. The first
TRYs name the oldest groups, as many as there are handlers; later ones name 64.

When the owner dies under an open TRY, the groups of that TRY become suspects. The next owner tries each of them alone,
before all others, once it has led for a moment. Partitions of one process take turns (`dialog.owner.settings`). When
everything that the dead owner may have handed out has been tried, an empty TRY ends the careful phase. From then on the
protection costs nothing.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from typing import Final, NamedTuple

from konverse.dialog.rules.attempts import attempts_of
from konverse.dialog.state.endpoint import Endpoint, bytes_of
from konverse.dialog.state.partition import Partition
from konverse.dialog.state.ready import counts_of
from konverse.dialog.state.recent import Alarm
from konverse.dialog.transaction.transaction import Transaction
from konverse.schemas.limits import (
    ATTEMPTS_MAX,
    SUSPENDED_BYTES_MAX,
    SUSPENDED_RECORDS_MAX,
    TRY_FIRST_GROUPS_MAX,
    TRY_GROUPS_MAX,
)
from konverse.schemas.wire.journal import CommitOperations
from konverse.schemas.wire.operations import Attempt, Suspend, Try

from .commands import Order, reason_of
from .staging import Staging

PAUSE_MS: Final = 50
"""Pause before a group that failed is handed out again; each further failure makes it four times as long.

So a group is not suspended when its handler fails because another system is briefly unavailable. No other group waits.
"""
PAUSE_FACTOR: Final = 4

SUSPECTS_AFTER_MS: Final = 500
"""For this time a new owner hands out only groups that are not suspects. Afterwards a suspect may kill the process, and
all groups of the process wait again."""

KILLED: Final = "the process of its handler died"
"""Reason of the suspension of a group that killed its owners."""


class Parked(NamedTuple):
    """Messages of suspended groups, and bytes of their bodies."""

    messages: int
    size_bytes: int


NOTHING_PARKED: Final = Parked(0, 0)


class PoisonWatch:
    """The groups that one owner hands out with care, and the groups that failed."""

    def __init__(self, state: Partition, staging: Staging) -> None:
        self._state = state
        self._staging = staging
        self._failed: list[tuple[Transaction, str]] = []
        """Transactions that the next COMMIT counts as failed, and the error of each."""
        self._resting: list[tuple[int, int, Transaction]] = []
        """Heap: when each group is handed out again, a unique number, and its transaction."""
        self._stepped_back: deque[tuple[int, Endpoint]] = deque()
        """When each group that stepped back is ready again. No transaction has it meanwhile."""
        self._rested = 0
        self._condemned: list[Endpoint] = []
        """Groups that failed too often by killing their owners. The next COMMIT suspends them."""
        self._orders = staging.locks.orders
        self._news: list[Alarm] = []
        """Alarms for the operator, to be raised when the COMMIT in flight counts."""
        self._parked = NOTHING_PARKED
        self._endings = 0
        """`Partition.endings` when the messages of suspended groups were counted."""
        self._chosen: list[Endpoint] | None = None
        """Groups of the TRY in flight; empty: the TRY that ends the careful phase; None: no TRY is in flight."""
        self._window: list[Endpoint] = []
        """Endpoints of the open TRY, until all of its groups came back."""
        self._first = TRY_FIRST_GROUPS_MAX
        """Number of the oldest groups that are still to be tried in small TRYs."""
        self._turns = staging.settings.turns
        self._now_ms = 0
        self._suspects_at_ms = 0
        """When suspects may be tried."""
        self._data_end = 0
        self._untried: dict[int, int] | None = None
        """Level -> number of groups still to be tried, among those that were ready when the data up to `_data_end` was
        ingested; None before that."""

    @property
    def careful(self) -> bool:
        """Whether groups are handed out only under a TRY."""
        return self._staging.tried is not None

    @property
    def resting(self) -> bool:
        """Whether some group has failed or stepped back, and is handed out again after a pause."""
        return bool(self._resting or self._failed or self._stepped_back)

    @property
    def due(self) -> bool:
        """Whether something waits for a record that the next COMMIT has to make."""
        return bool(self._failed or self._orders.due or self._condemned) or self._may_try()

    @property
    def parked(self) -> Parked:
        """Messages in suspended groups, as of the last COMMIT. They take no room from other groups."""
        if self._parked.messages and self._endings != self._state.endings:
            self._count_parked()
        return self._parked

    @property
    def unread(self) -> tuple[int, int]:
        """Messages and bytes that wait in groups that are not suspended."""
        (messages, size_bytes), state = self.parked, self._state
        return state.unread - messages, state.unread_bytes - size_bytes

    def lead(self, data_end: int, now_ms: int) -> None:
        """Start to lead. `data_end` is where the data log ended when the owner's recovery began."""
        state = self._state
        self._now_ms, self._suspects_at_ms = now_ms, now_ms + SUSPECTS_AFTER_MS
        waiting = [endpoint for endpoint in state.live() if endpoint.waits]
        for index, trouble in state.attempts.troubled.items():
            endpoint = state.table[index]
            if endpoint is not None and not trouble.suspended and trouble.attempts >= ATTEMPTS_MAX:
                self._condemned.append(endpoint)
                for member in endpoint.members:
                    member.held = True
        if state.attempts.careful:
            self._data_end = data_end
            self._staging.tried = deque()
            waiting.sort(key=_oldest)  # oldest first: each has its turn, whatever arrives meanwhile
        state.ready.clear()
        state.ready.extend(waiting)
        self._count_parked()

    # ------------------------------------------------------------------------------------------------------- reports

    def fail(self, transaction: Transaction, error: str = "") -> None:
        """The handler raised: its messages wait as before, and the next COMMIT counts an attempt.

        A transaction that steps back, because another one has a group that it needs, is retried and not counted.
        """
        steps_back = transaction.more is not None and transaction.more.steps_back
        for one in self._staging.locks.take_apart(transaction):
            self._staging.out -= 1
            if steps_back:
                if self._staging.locks.step_back(one):
                    self._stepped_back.append((self._now_ms + PAUSE_MS, one.dialog))
            else:
                self._failed.append((one, error))

    def order(self, endpoint: Endpoint, order: Order) -> None:
        """Take an operator's order about a conversation, even while a transaction has its group."""
        self._orders.add(endpoint, order)

    def tick(self, now_ms: int) -> bool:
        """Make the groups ready whose pause is over. Returns `due`."""
        self._now_ms = now_ms
        while self._resting and self._resting[0][0] <= now_ms:
            self._staging.discard(heappop(self._resting)[2])
        while self._stepped_back and self._stepped_back[0][0] <= now_ms:
            self._state.ready.extend(filter(self._ready, self._stepped_back.popleft()[1].members))
        return self.due

    # ------------------------------------------------------------------------------------------------- the next COMMIT

    def fill(self, operations: CommitOperations, now_ms: int, *, releasing: bool) -> None:
        """Add to the next COMMIT: suspensions, failed attempts, orders, a TRY, and ends because of a DROP."""
        rare = operations.rare
        for endpoint in self._condemned:
            if self._lives(endpoint):
                rare.append(self._suspend(endpoint, attempts_of(endpoint), KILLED))
            else:
                self._staging.locks.free(endpoint)
        self._condemned.clear()
        for transaction, error in self._failed:
            self._count(transaction, error, operations, now_ms)
        self._failed.clear()
        if self._orders:
            self._orders.fill(operations)
            if self.careful:  # a later TRY names the groups that an order has taken out
                self._staging.tried = deque(one for one in self._staging.tried or () if not one.held)
        self._now_ms = now_ms
        if not releasing and self._may_try():
            chosen = self._chosen = self._choose()
            self._turns.take(self, now_ms)
            self._window = [m for endpoint in chosen for m in endpoint.members if m.waits]
            rare.append(Try([member.index for member in self._window]))
        self._staging.dropping.fill(operations)  # last: it skips conversations that are named already

    def release(self, transactions: list[Transaction]) -> None:
        """The COMMIT was applied: unlock the groups of these transactions."""
        self._staging.release(transactions)
        self._orders.release()
        self._count_parked()

    def _count_parked(self) -> None:
        state = self._state
        if self._parked.messages or state.attempts.troubled:
            known = [state.table[index] for index, trouble in state.attempts.troubled.items() if trouble.suspended]
            queues = [endpoint.queue for endpoint in known if endpoint is not None]
            messages, size_bytes = sum(map(len, queues)), sum(map(bytes_of, queues))
            self._parked = Parked(min(messages, SUSPENDED_RECORDS_MAX), min(size_bytes, SUSPENDED_BYTES_MAX))
            self._endings = state.endings

    def counted(self) -> list[Alarm]:
        """The COMMIT counts: hand out the groups of its TRY. Returns alarms for the operator."""
        chosen, self._chosen = self._chosen, None
        if chosen and self._staging.tried is not None:
            self._staging.tried.extend(chosen)
        elif chosen is not None:
            self._staging.tried = None
        if not (self._staging.ready or self._staging.out or self._failed) or not self.careful:
            self.leave()
        news, self._news = self._news, []
        return news

    def leave(self) -> None:
        """End this partition's turn."""
        self._turns.give_back(self, self._now_ms)

    def _count(self, transaction: Transaction, error: str, operations: CommitOperations, now_ms: int) -> None:
        members = [member for member in transaction.members if self._lives(member)]
        attempts = 0
        if members:
            attempts = 1 + max(member.attempts for member in members)
            operations.rare.append(Attempt([member.index for member in members]))
        if attempts >= ATTEMPTS_MAX:
            transaction.clear()
            operations.rare.append(self._suspend(members[0], attempts, error))
        else:
            self._rested += 1
            pause_ms = PAUSE_MS * PAUSE_FACTOR ** max(0, attempts - 1)
            heappush(self._resting, (now_ms + pause_ms, self._rested, transaction))

    def _suspend(self, endpoint: Endpoint, attempts: int, reason: str) -> Suspend:
        identity = self._state.identity
        text = (
            f"conversation {endpoint.id} of {identity.data_topic}/{identity.partition} is suspended after {attempts} "
            f"failed attempts; its messages wait. Fix its handler and run `konverse resume {endpoint.id}`, or skip "
            "its first message (`konverse skip`), or end it (`konverse end`)"
        )
        self._news.append(Alarm(text))
        return Suspend(endpoint.index, reason_of(reason), ordered=False)

    # ---------------------------------------------------------------------------------------------------- the next TRY

    def _may_try(self) -> bool:
        return self.careful and self._may_choose() and self._turns.may(self, self._now_ms)

    def _may_choose(self) -> bool:
        """Whether a new TRY is possible: the groups of the last one are back, and others wait or none must be tried."""
        staging, state = self._staging, self._state
        if self._chosen is not None or staging.ready or staging.out:
            return False
        if self._stepped_back:
            return False
        left = any(map(self._ready, self._window))  # the member that stood for its group may have ended
        if self._suspects():
            return staging.settings.hands_out and (self._others_ready() or self._now_ms >= self._suspects_at_ms)
        if left or self._some_ready():
            return staging.settings.hands_out  # an owner that hands nothing out announces nothing
        return state.ingest_to >= self._data_end

    def _choose(self) -> list[Endpoint]:
        self._state.ready.extend(filter(self._ready, self._window))
        suspects = self._suspects()
        if suspects and self._now_ms >= self._suspects_at_ms:
            return suspects[:1]
        state = self._state
        if self._untried is None and state.ingest_to >= self._data_end:
            self._untried = counts_of(state.ready)
        chosen: list[Endpoint] = []
        most = max(1, min(self._staging.settings.handlers, TRY_GROUPS_MAX)) if self._first > 0 else TRY_GROUPS_MAX
        passed: list[Endpoint] = []
        while len(chosen) < most and self._some_ready() and (suspects or self._some_untried()):
            endpoint = self._pop()
            if self._suspected(endpoint):
                passed.append(endpoint)
            elif not any(endpoint in other.members for other in chosen):
                chosen.append(endpoint)
        self._state.ready.extend(passed)
        self._first -= len(chosen)
        if suspects and not chosen:
            return suspects[:1]
        return chosen

    def _suspects(self) -> list[Endpoint]:
        """One endpoint of each suspected group that is not in the open TRY and can be handed out."""
        suspects: list[Endpoint] = []
        attempts = self._state.attempts
        for index in attempts.suspects:
            endpoint = self._state.table[index] if index not in attempts.trying else None
            if (
                endpoint is not None
                and self._ready(endpoint)
                and not any(endpoint in other.members for other in suspects)
            ):
                suspects.append(endpoint)
        return suspects

    def _suspected(self, endpoint: Endpoint) -> bool:
        return any(member.index in self._state.attempts.suspects for member in endpoint.members)

    def _others_ready(self) -> bool:
        """Whether an unsuspected group can be handed out."""
        return any(self._ready(one) and not self._suspected(one) for one in (*self._state.ready, *self._window))

    def _some_ready(self) -> bool:
        """Whether a ready group can be handed out. Stale entries in front of it are dropped."""
        ready = self._state.ready
        while ready and not self._ready(ready[0]):
            self._pop()
        return bool(ready)

    def _some_untried(self) -> bool:
        """Whether groups must still be tried; True while data up to `_data_end` is not ingested."""
        return self._untried is None or any(count > 0 for count in self._untried.values())

    def _pop(self) -> Endpoint:
        endpoint = self._state.ready.popleft()
        if self._untried is not None:
            self._untried[endpoint.level] = self._untried.get(endpoint.level, 0) - 1
        return endpoint

    def _ready(self, endpoint: Endpoint) -> bool:
        return self._lives(endpoint) and not endpoint.held and endpoint.waits

    def _lives(self, endpoint: Endpoint) -> bool:
        return self._state.table[endpoint.index] is endpoint


def _oldest(endpoint: Endpoint) -> int:
    """Data offset of the first entry that waits in the endpoint."""
    return endpoint.queue[0][0] if endpoint.queue else endpoint.urgent[0][0] if endpoint.urgent else 0
