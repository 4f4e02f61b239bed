"""Ends conversations whose service or contract was dropped (behaviours 15 and 20).

The fold knows no catalog. The owner compares the conversations with the catalog, and its COMMIT ends them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from konverse.dialog.state.endpoint import Endpoint
from konverse.dialog.state.partition import Partition
from konverse.dialog.state.transitions import SENDING, State
from konverse.schemas.limits import COMMIT_BYTES_TARGET, COMMIT_GROUPS_MAX, OUTBOX_RECORDS_MAX
from konverse.schemas.wire.journal import END_BYTES, CommitOperations, EndOperation
from konverse.schemas.wire.operations import Attempt, Cleanup, Fail, GiveBack, Resume, Skip, Suspend, Try

SERVICE_DROPPED: Final = -8470
CONTRACT_DROPPED: Final = -8487
_NO_SERVICE: Final = "The remote service has been dropped."
_NO_CONTRACT: Final = "The contract of this conversation has been dropped."

EndingTransaction = EndOperation | Fail
"""The operation that ends a conversation."""


class DroppedConversations:
    """The conversations of one partition that must end because of a DROP."""

    def __init__(self, state: Partition) -> None:
        self._state = state
        self._left: deque[tuple[Endpoint, EndingTransaction]] = deque()

    def __bool__(self) -> bool:
        state = self._state
        if state.attempts.careful or all(_is_busy(endpoint) for endpoint, _ in self._left):
            return False
        return state.waiting < OUTBOX_RECORDS_MAX

    def find(self, exists: Callable[[str], bool], has_contract: Callable[[str], bool]) -> bool:
        """Find the conversations whose service or contract does not exist. Returns whether any name is gone."""
        state = self._state
        gone = {service for service in {terms.service for terms in state.terms.values()} if not exists(service)}
        broken = {
            contract for contract in {terms.contract for terms in state.terms.values()} if not has_contract(contract)
        }
        found: list[tuple[Endpoint, EndingTransaction]] = []
        for one in state.live() if gone or broken else ():
            if one.service in gone:
                found.append((one, EndOperation(one.index, SERVICE_DROPPED, _NO_SERVICE)))
            elif one.contract in broken and one.state in SENDING:
                found.append((one, Fail(one.index, CONTRACT_DROPPED, _NO_CONTRACT)))
        self._left = deque(found)
        return bool(gone or broken)

    def fill(self, operations: CommitOperations) -> None:
        """Add ends to the COMMIT, up to its size.

        Conversations that a handler has, or that the COMMIT already names, wait for a later COMMIT. All wait while the
        outbox is full, and after a crash until all groups that the dead owner may have handed out have been tried.
        """
        if not self:
            return
        named = {end.endpoint for end in operations.ends}
        for operation in operations.rare:
            if isinstance(operation, Resume | Skip | Suspend | Cleanup | GiveBack):
                named.add(operation.endpoint)
            elif isinstance(operation, Attempt | Try):
                named.update(operation.endpoints)
        for ending in self._next(self._left, named, COMMIT_BYTES_TARGET):
            if isinstance(ending, EndOperation):
                operations.ends.append(ending)
            else:
                operations.rare.append(ending)

    def _next(
        self, waiting: deque[tuple[Endpoint, EndingTransaction]], named: set[int], room_bytes: int
    ) -> list[EndingTransaction]:
        found: list[EndingTransaction] = []
        for _ in range(min(len(waiting), COMMIT_GROUPS_MAX)):
            if room_bytes <= 0:
                break
            endpoint, ending = waiting.popleft()
            if self._state.table[endpoint.index] is not endpoint or not _may(endpoint, ending):
                continue
            if _is_busy(endpoint) or endpoint.index in named:
                waiting.append((endpoint, ending))
            else:
                named.add(endpoint.index)
                found.append(ending)
                room_bytes -= _size_bytes(ending)
        return found


def _size_bytes(ending: EndingTransaction) -> int:
    return END_BYTES + len(ending.description.encode())


def _may(endpoint: Endpoint, ending: EndingTransaction) -> bool:
    """Whether the conversation can still end this way."""
    state = endpoint.committed
    return state in SENDING if isinstance(ending, Fail) else state is not State.DISCONNECTED_OUTBOUND


def _is_busy(endpoint: Endpoint) -> bool:
    """Whether a handler has the group. A suspended group is held, but by no handler."""
    return endpoint.held and not endpoint.suspended
