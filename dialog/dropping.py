"""Conversations of services that were dropped: each ends, and the far side gets an Error (behaviour 20).

No fold knows of it. The owner sees what the catalog says, and its COMMIT ends them as handlers and operators do.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from konverse.schemas.journal import EndOperation, Operations
from konverse.schemas.limits import COMMIT_GROUPS_MAX, OUTBOX_RECORDS_MAX
from konverse.schemas.operations import Attempt, Resume, Skip, Suspend, Try

from .endpoint import Endpoint
from .partition import Partition
from .states import State

SERVICE_DROPPED: Final = -8470
_DESCRIPTION: Final = "The remote service has been dropped."


class Dropping:
    """What has to end in a partition because its service is gone."""

    def __init__(self, state: Partition) -> None:
        self._state = state
        self._left: deque[Endpoint] = deque()

    def __bool__(self) -> bool:
        state = self._state
        if not self._left or state.attempts.careful or all(map(_is_busy, self._left)):
            return False
        return sum(stream.waiting for stream in state.streams.values()) < OUTBOX_RECORDS_MAX

    def look(self, exists: Callable[[str], bool]) -> bool:
        """Find the conversations of services that do not exist; whether there are such services."""
        state = self._state
        gone = {service for service in {terms.service for terms in state.terms.values()} if not exists(service)}
        self._left = deque(endpoint for endpoint in state.live() if endpoint.service in gone) if gone else deque()
        return bool(gone)

    def fill(self, operations: Operations) -> None:
        """Add those that this commit ends to all that it says already.

        One that a handler has is waited for, one of which the commit says something else comes with the next one, and
        so do all while the outbox is full. After a crash what the dead owner may have handed out is tried first.
        """
        if not self:
            return
        named = {end.endpoint for end in operations.ends}
        for operation in operations.rare:
            if isinstance(operation, Resume | Skip | Suspend):
                named.add(operation.endpoint)
            elif isinstance(operation, Attempt | Try):
                named.update(operation.endpoints)
        operations.ends += self._next(named)

    def _next(self, named: set[int]) -> list[EndOperation]:
        found: list[EndOperation] = []
        for _ in range(min(len(self._left), COMMIT_GROUPS_MAX)):
            endpoint = self._left.popleft()
            if self._state.table[endpoint.index] is not endpoint or endpoint.state is State.DISCONNECTED_OUTBOUND:
                continue  # it has ended by itself
            if _is_busy(endpoint) or endpoint.index in named:
                self._left.append(endpoint)
            else:
                found.append(EndOperation(endpoint.index, SERVICE_DROPPED, _DESCRIPTION))
        return found


def _is_busy(endpoint: Endpoint) -> bool:
    """A handler has its group. One that is suspended is with nobody, and nobody gets it."""
    return endpoint.held and not endpoint.suspended
