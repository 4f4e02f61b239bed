"""An owner's care for handlers that fail: what it counts, suspends, and hands out alone (protocol.md section 7.1).

After a crash an owner hands out what it has said in a TRY and nothing else: of the oldest groups as many at a time as
there are handlers, then 64; and suspects alone, before all others once the others have had a moment. A TRY has to count
before its groups are handed out, and all of them have to come back before the next one; partitions of one process take
turns (`dialog.owner.settings`). When all that the dead owner may have handed out was tried, an empty TRY ends this, and
from then on it costs nothing.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from typing import Final, NamedTuple

from konverse.dialog.rules.attempts import attempts_of
from konverse.dialog.state.endpoint import Endpoint, bytes_of
from konverse.dialog.state.partition import Partition
from konverse.dialog.state.ready import counts_of
from konverse.dialog.transaction.transaction import Transaction, unlock
from konverse.schemas.limits import (
    ATTEMPTS_MAX,
    SUSPENDED_BYTES_MAX,
    SUSPENDED_RECORDS_MAX,
    TRY_FIRST_GROUPS_MAX,
    TRY_GROUPS_MAX,
)
from konverse.schemas.wire.journal import Operations
from konverse.schemas.wire.operations import Attempt, Suspend, Try

from .commands import Order, reason_of
from .staging import Staging

PAUSE_MS: Final = 50
"""A group that failed is handed out again after this long, after four times as long when it failed again, and so on.

What fails because something else is away for a moment is not suspended, and nobody else waits for it.
"""
PAUSE_FACTOR: Final = 4

SUSPECTS_AFTER_MS: Final = 500
"""So long an owner hands out what is not suspected, after which it may die: all of its process then wait again."""

KILLED: Final = "the process of its handler died"
"""Why a group is suspended that killed its owners."""


class Parked(NamedTuple):
    """Messages of suspended groups."""

    messages: int
    size_bytes: int


NOTHING_PARKED: Final = Parked(0, 0)


class Trial:
    """What one owner hands out with care, and what failed."""

    def __init__(self, state: Partition, staging: Staging) -> None:
        self._state = state
        self._staging = staging
        self._failed: list[tuple[Transaction, str]] = []
        """And with what."""
        self._resting: list[tuple[int, int, Transaction]] = []
        """A heap: when each group is handed out again, and a number that no two have."""
        self._stepped_back: deque[tuple[int, Endpoint]] = deque()
        """Groups that come again, and when; nobody has them meanwhile."""
        self._rested = 0
        self._condemned: list[Endpoint] = []
        """Groups that failed too often by killing their owners."""
        self._orders = staging.orders
        self._news: list[str] = []
        """What an operator should know when the commit on its way counts."""
        self._parked = NOTHING_PARKED
        self._endings = 0
        """Endings in the partition when they were counted."""
        self._chosen: list[Endpoint] | None = None
        """Groups of the TRY on its way; none of them: the last one."""
        self._window: list[Endpoint] = []
        """The endpoints that it names, until all of its groups came back."""
        self._first = TRY_FIRST_GROUPS_MAX
        """So many of the oldest groups are still to be tried."""
        self._turns = staging.settings.turns
        self._now_ms = 0
        self._suspects_at_ms = 0
        """Suspects are not tried before."""
        self._data_end = 0
        self._untried: dict[int, int] | None = None
        """So many of those that are ready were so when all data of the owner before had been ingested; by level."""

    @property
    def careful(self) -> bool:
        """Groups are handed out under a TRY."""
        return self._staging.tried is not None

    @property
    def resting(self) -> bool:
        """Some group failed and is handed out again after a pause."""
        return bool(self._resting or self._failed or self._stepped_back)

    @property
    def due(self) -> bool:
        """There is something to say that others wait for."""
        return bool(self._failed or self._orders.due or self._condemned) or self._may_try()

    @property
    def parked(self) -> Parked:
        """What waits in suspended groups, as of the last commit: it takes no room from the others."""
        if self._parked.messages and self._endings != self._state.endings:
            self._count_parked()
        return self._parked

    @property
    def unread(self) -> tuple[int, int]:
        """Messages and bytes that wait in all other groups."""
        (messages, size_bytes), state = self.parked, self._state
        return state.unread - messages, state.unread_bytes - size_bytes

    def lead(self, data_end: int, now_ms: int) -> None:
        """The partition is ours; `data_end` is where the data log ended when that began."""
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
            waiting.sort(key=_oldest)  # so that everything has its turn, whatever comes in meanwhile
        state.ready.clear()
        state.ready.extend(waiting)
        self._count_parked()

    # -------------------------------------------------------------------------------------------------- what is told

    def fail(self, transaction: Transaction, error: str = "") -> None:
        """The handler raised: its messages wait as before, and the next commit counts it.

        One that has stepped back, because another transaction has a group that it needs, comes again uncounted.
        """
        steps_back = transaction.more is not None and transaction.more.steps_back
        for one in self._staging.take_apart(transaction):
            self._staging.out -= 1
            if steps_back:
                unlock(one)
                if not self._orders.keeps(one.dialog):
                    self._stepped_back.append((self._now_ms + PAUSE_MS, one.dialog))
            else:
                self._failed.append((one, error))

    def order(self, endpoint: Endpoint, order: Order) -> None:
        """An operator wants this with a conversation, whoever has it now."""
        self._orders.add(endpoint, order)

    def tick(self, now_ms: int) -> bool:
        """Hand out again what has rested; whether there is something to say."""
        self._now_ms = now_ms
        while self._resting and self._resting[0][0] <= now_ms:
            self._staging.let_go(heappop(self._resting)[2])
        while self._stepped_back and self._stepped_back[0][0] <= now_ms:
            self._state.ready.extend(filter(self._ready, self._stepped_back.popleft()[1].members))
        return self.due

    # ------------------------------------------------------------------------------------------------- what is decided

    def fill(self, operations: Operations, now_ms: int, *, releasing: bool) -> None:
        """Add what there is to say to the next commit."""
        rare = operations.rare
        for endpoint in self._condemned:
            if self._lives(endpoint):
                rare.append(self._suspend(endpoint, attempts_of(endpoint), KILLED))
            else:
                self._staging.free(endpoint)
        self._condemned.clear()
        for transaction, error in self._failed:
            self._count(transaction, error, operations, now_ms)
        self._failed.clear()
        if self._orders:
            self._orders.fill(operations)
            if self.careful:  # what an order has taken out of the TRY comes with another one
                self._staging.tried = deque(one for one in self._staging.tried or () if not one.held)
        self._now_ms = now_ms
        if not releasing and self._may_try():
            chosen = self._chosen = self._choose()
            self._turns.take(self, now_ms)
            self._window = [m for endpoint in chosen for m in endpoint.members if m.waits]
            rare.append(Try([member.index for member in self._window]))
        self._staging.dropping.fill(operations)  # of whom nothing else is said

    def release(self, transactions: list[Transaction]) -> None:
        """The commit was applied: the groups of these transactions may be taken again."""
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

    def counted(self) -> list[str]:
        """The commit counts: hand out what it names; what an operator should know."""
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
        """It is another partition's turn."""
        self._turns.give_back(self, self._now_ms)

    def _count(self, transaction: Transaction, error: str, operations: Operations, now_ms: int) -> None:
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
        self._news.append(
            f"conversation {endpoint.id} of {identity.data_topic}/{identity.partition} is suspended after {attempts} "
            f"attempts that failed; what comes for it waits. Mend its handler and `konverse resume {endpoint.id}`, or "
            "skip its first message (`konverse skip`), or end it (`konverse end`)"
        )
        return Suspend(endpoint.index, reason_of(reason), ordered=False)

    # -------------------------------------------------------------------------------------------------- what is chosen

    def _may_try(self) -> bool:
        return self.careful and self._may_choose() and self._turns.may(self, self._now_ms)

    def _may_choose(self) -> bool:
        """All groups of the last TRY came back, and there are others, or there is no reason for care any more."""
        staging, state = self._staging, self._state
        if self._chosen is not None or staging.ready or staging.out:
            return False
        if self._stepped_back:
            return False
        left = any(map(self._ready, self._window))  # the one that stood for its group may have ended
        if self._suspects():
            return staging.settings.hands_out and (self._others_ready() or self._now_ms >= self._suspects_at_ms)
        if left or self._some_ready():
            return staging.settings.hands_out  # else nobody has what a TRY would name, whoever dies
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
        """One endpoint for each group that is suspected, was not tried, and can be handed out."""
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
        """Something can be handed out that is not suspected."""
        return any(self._ready(one) and not self._suspected(one) for one in (*self._state.ready, *self._window))

    def _some_ready(self) -> bool:
        """Whether the first one of those that are ready can be handed out; what cannot is dropped."""
        ready = self._state.ready
        while ready and not self._ready(ready[0]):
            self._pop()
        return bool(ready)

    def _some_untried(self) -> bool:
        """Whether one of them was ready when all data of the owner before had been ingested, or that is not so yet."""
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
    """Where what it waits with stands in the data log."""
    return endpoint.queue[0][0] if endpoint.queue else endpoint.urgent[0][0] if endpoint.urgent else 0
