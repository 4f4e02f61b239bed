"""Orders of operators about conversations: suspend, resume, skip, end (protocol.md section 7.1).

An operator may give an order at any time, whatever the state of the conversation's group. An order joins the first
COMMIT at which no handler has the group. Once a handler is done, the group stays locked until the order is in the
journal: otherwise an order about a busy conversation would wait forever.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from konverse.dialog.state.endpoint import Endpoint, Entry, Group
from konverse.dialog.state.partition import Partition
from konverse.dialog.state.transitions import SENDING, State
from konverse.schemas.limits import (
    COMMIT_BYTES_TARGET,
    COMMIT_GROUPS_MAX,
    OUTBOX_RECORDS_MAX,
    SUSPENSION_REASON_CHARACTERS_MAX,
)
from konverse.schemas.wire.journal import END_BYTES, CommitOperations, EndOperation
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
"""An operator's order about a conversation. An operator's SUSPEND has `ordered` set."""


_ABOUT_ONE: Final = Resume | Skip | Suspend | Cleanup | GiveBack
_ABOUT_SEVERAL: Final = Attempt | Try


class Orders:
    """The orders of one owner that its journal does not have yet."""

    def __init__(self, state: Partition, free: Callable[[Endpoint], None]) -> None:
        self._state = state
        self._free = free
        """Unlocks a group."""
        self._waiting: deque[tuple[Endpoint, Order, Entry | None]] = deque()
        """Endpoint, order, and the entry that was to be received next when the order arrived."""
        self._wanted: set[int] = set()
        """Indices of the endpoints of waiting orders."""
        self._kept: dict[Group | Endpoint, Endpoint] = {}
        """Groups that are locked because an order waits, each with one endpoint that is or was a member. An endpoint
        without a shared group stands for its own."""

    @property
    def due(self) -> bool:
        """Whether an order can join a COMMIT now."""
        return any(not self._is_busy(endpoint) for endpoint, _, _ in self._waiting)

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, endpoint: Endpoint, order: Order) -> None:
        """Take an operator's order. It is dropped if it has become pointless by the time of the COMMIT."""
        self._waiting.append((endpoint, order, endpoint.first))
        self._wanted.add(endpoint.index)
        if not endpoint.held:
            self._keep(endpoint)

    def keeps(self, endpoint: Endpoint) -> bool:
        """Called before a group is unlocked: keep it locked if an order waits for it. Returns whether it is kept."""
        if not any(member.index in self._wanted for member in endpoint.members):
            return False
        self._keep(endpoint)
        return True

    def fill(self, operations: CommitOperations) -> None:
        """Add the orders that can be carried out now: one per group, within the size of a COMMIT."""
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
            if later or (full and _sends_something(order)) or any(member.index in named for member in endpoint.members):
                self._waiting.append((endpoint, order, first))
                continue
            named.update(member.index for member in endpoint.members)
            room_bytes -= _size_bytes(order)
            _stage(endpoint, order, operations)
        self._wanted = {endpoint.index for endpoint, _, _ in self._waiting}

    def release(self) -> None:
        """After the COMMIT was applied, unlock the groups that no order waits for.

        A group that an order has resumed is locked again when another order waits for it.
        """
        for endpoint, _, _ in self._waiting:
            if not endpoint.held and self._lives(endpoint):
                self._keep(endpoint)
        kept, self._kept = self._kept, {}
        for endpoint in kept.values():
            members = endpoint.members
            if any(member.index in self._wanted for member in members):
                self._keep(members[0])  # the endpoint may be over, and others have joined its group
            elif not any(member.suspended for member in members):
                self._free(endpoint)

    def _keep(self, endpoint: Endpoint) -> None:
        for member in endpoint.members:
            member.held = True
        self._kept[endpoint.group or endpoint] = endpoint

    def _is_busy(self, endpoint: Endpoint) -> bool:
        """Whether a transaction has the group. A suspended group is held, but by no transaction."""
        kept = self._kept
        is_kept = endpoint.group in kept or any(member in kept for member in endpoint.members)  # it was alone when kept
        return endpoint.held and not endpoint.suspended and not is_kept and self._lives(endpoint)

    def _lives(self, endpoint: Endpoint) -> bool:
        return self._state.table[endpoint.index] is endpoint


def _counts(endpoint: Endpoint, order: Order, first: Entry | None) -> bool:
    """Whether the order is still possible and has an effect. SKIP drops only the message that the operator saw."""
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


def _stage(endpoint: Endpoint, order: Order, operations: CommitOperations) -> None:
    rare: list[Rare] = operations.rare
    if isinstance(order, EndOperation):
        operations.ends.append(order)
        if order.code:
            rare.append(Withdraw(order.endpoint))
        return
    if isinstance(order, Skip) and not endpoint.suspended:  # SKIP needs a suspended group
        rare.append(Suspend(endpoint.index, "its first message is skipped", ordered=True))
    rare.append(order)


def _sends_something(order: Order) -> bool:
    """Whether the order sends something to the far side."""
    return isinstance(order, EndOperation | Fail | Cleanup)  # CLEANUP answers a peer that has ended


def _size_bytes(order: Order) -> int:
    match order:
        case EndOperation() | Fail():
            return END_BYTES + len(order.description.encode())
        case Suspend():
            return END_BYTES + len(order.reason.encode())
        case _:
            return END_BYTES


def reason_of(text: str) -> str:
    """A reason as the journal holds it: cut to the maximum length, and valid UTF-8."""
    return text[:SUSPENSION_REASON_CHARACTERS_MAX].encode("utf-8", "replace").decode("utf-8")
