"""What operators want with conversations: at any time, whatever the state of their groups (protocol.md section 7.1).

An order joins the next commit in which nobody has the group. One that a handler has is not handed out again behind that
handler before the order stands in the journal: else a busy conversation would never be reached.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from konverse.dialog.state.endpoint import Endpoint, Entry
from konverse.dialog.state.partition import Partition
from konverse.dialog.state.transitions import SENDING, State
from konverse.schemas.limits import (
    COMMIT_BYTES_TARGET,
    COMMIT_GROUPS_MAX,
    OUTBOX_RECORDS_MAX,
    SUSPENSION_REASON_CHARACTERS_MAX,
)
from konverse.schemas.wire.journal import END_BYTES, EndOperation, Operations
from konverse.schemas.wire.operations import (
    Attempt,
    Cleanup,
    Fail,
    GiveBack,
    Rare,
    Resume,
    Skip,
    Suspend,
    Try,
    Withdraw,
)

Order = Suspend | Resume | Skip | EndOperation | Cleanup | Fail
"""What is to be done with a conversation; a SUSPEND of an operator is `ordered`."""


_ABOUT_ONE: Final = Resume | Skip | Suspend | Cleanup | GiveBack
_ABOUT_SEVERAL: Final = Attempt | Try


class Orders:
    """Those of one owner that do not stand in its journal yet."""

    def __init__(self, state: Partition, free: Callable[[Endpoint], None]) -> None:
        self._state = state
        self._free = free
        """Lets a group go."""
        self._waiting: deque[tuple[Endpoint, Order, Entry | None]] = deque()
        """With what was to be received first when it was given."""
        self._wanted: set[int] = set()
        """Indices of their endpoints."""
        self._kept: dict[int, Endpoint] = {}
        """Endpoints whose groups nobody gets because an order waits."""

    @property
    def due(self) -> bool:
        """One of them can be said now."""
        return any(not self._is_busy(endpoint) for endpoint, _, _ in self._waiting)

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, endpoint: Endpoint, order: Order) -> None:
        """An operator wants this. What has become void by the time of the commit is not said."""
        self._waiting.append((endpoint, order, endpoint.first))
        self._wanted.add(endpoint.index)
        if not endpoint.held:
            self._keep(endpoint)

    def keeps(self, endpoint: Endpoint) -> bool:
        """Whether nobody gets its group when it is let go, as an order waits."""
        if not any(member.index in self._wanted for member in endpoint.members):
            return False
        self._keep(endpoint)
        return True

    def fill(self, operations: Operations) -> None:
        """Add those that can be said now, one for each group, as many as a commit should hold."""
        named = {end.endpoint for end in operations.ends}
        for operation in operations.rare:
            if isinstance(operation, _ABOUT_ONE):
                named.add(operation.endpoint)
            elif isinstance(operation, _ABOUT_SEVERAL):
                named.update(operation.endpoints)
        room_bytes, full = COMMIT_BYTES_TARGET, self._state.waiting >= OUTBOX_RECORDS_MAX
        waiting, self._waiting = self._waiting, deque()
        for count, (endpoint, order, first) in enumerate(waiting):
            if not self._lives(endpoint) or not _counts(endpoint, order, first):
                continue
            later = count >= COMMIT_GROUPS_MAX or room_bytes <= 0 or self._is_busy(endpoint)
            if later or (full and _speaks(order)) or any(member.index in named for member in endpoint.members):
                self._waiting.append((endpoint, order, first))
                continue
            named.update(member.index for member in endpoint.members)
            room_bytes -= _size_bytes(order)
            _say(endpoint, order, operations)
        self._wanted = {endpoint.index for endpoint, _, _ in self._waiting}

    def release(self) -> None:
        """The commit was applied: groups of which it has said what was ordered go on.

        One that it has resumed waits again when something else is ordered.
        """
        for endpoint, _, _ in self._waiting:
            if not endpoint.held and self._lives(endpoint):
                self._keep(endpoint)
        for index, endpoint in list(self._kept.items()):
            members = endpoint.members
            if any(member.index in self._wanted for member in members):
                continue
            del self._kept[index]
            if not any(member.suspended for member in members):
                self._free(endpoint)

    def _keep(self, endpoint: Endpoint) -> None:
        for member in endpoint.members:
            member.held = True
            self._kept[member.index] = member

    def _is_busy(self, endpoint: Endpoint) -> bool:
        """Somebody has its group. One that is suspended is with nobody."""
        kept = any(self._kept.get(member.index) is member for member in endpoint.members)
        return endpoint.held and not endpoint.suspended and not kept and self._lives(endpoint)

    def _lives(self, endpoint: Endpoint) -> bool:
        return self._state.table[endpoint.index] is endpoint


def _counts(endpoint: Endpoint, order: Order, first: Entry | None) -> bool:
    """It is not so already, and can be done; what was received meanwhile is not skipped."""
    match order:
        case Resume():
            return endpoint.suspended
        case Suspend():
            return not endpoint.suspended and endpoint.committed is not State.DISCONNECTED_OUTBOUND
        case Skip():
            return endpoint.suspended or (endpoint.waits and not endpoint.ends_next and endpoint.first == first)
        case Fail():
            return endpoint.committed in SENDING
        case Cleanup():
            return True
        case _:
            return endpoint.committed is not State.DISCONNECTED_OUTBOUND


def _say(endpoint: Endpoint, order: Order, operations: Operations) -> None:
    rare: list[Rare] = operations.rare
    if isinstance(order, EndOperation):
        operations.ends.append(order)
        if order.code:
            rare.append(Withdraw(order.endpoint))
        return
    if isinstance(order, Skip) and not endpoint.suspended:  # only what nobody gets is skipped
        rare.append(Suspend(endpoint.index, "its first message is skipped", ordered=True))
    rare.append(order)


def _speaks(order: Order) -> bool:
    """The far side is told."""
    return isinstance(order, EndOperation | Fail)


def _size_bytes(order: Order) -> int:
    return END_BYTES + (len(order.description.encode()) if isinstance(order, EndOperation | Fail) else 0)


def reason_of(text: str) -> str:
    """A text as the journal has it: so long at most, and without what cannot be written."""
    return text[:SUSPENSION_REASON_CHARACTERS_MAX].encode("utf-8", "replace").decode("utf-8")
