"""Groups that MOVE CONVERSATION has put elsewhere: what is in them here follows (protocol.md section 7.2).

The transaction of the user says where; from then on it is in the group, and nothing of it is handed out here. The owner
moves it with a later commit, whoever the owner is by then, save what cannot be moved: that goes on where it is.
"""

from __future__ import annotations

from typing import Final

from .endpoint import Endpoint
from .moving import Moving
from .partition import Partition

LOOK_EVERY_MS: Final = 5_000
"""To look at a group that cannot move costs as much as its messages are long."""


class Leaving:
    """What is to go to the groups in which it is."""

    def __init__(self, state: Partition, moving: Moving) -> None:
        self._state = state
        self._moving = moving
        self._look_at_ms = 0

    def tick(self, now_ms: int) -> None:
        """Look again after a while: what could not move may be able to by now."""
        if self._state.moves.leaving and now_ms >= self._look_at_ms:
            self._look_at_ms = now_ms + LOOK_EVERY_MS
            self.look()

    def look(self) -> None:
        """Have all of them moved that nobody has."""
        self._moving.forget_ended()
        for group in self._state.moves.leaving:
            self.takes(self._state.members(group)[0])

    def takes(self, endpoint: Endpoint) -> bool:
        """Lock its group and move it with the next commit; False when it stays, for now or at all."""
        group, state = endpoint.group, self._state
        to = None if group is None else state.moves.leaving.get(group.id)
        return to is not None and state.table[endpoint.index] is endpoint and self._moving.take_along(endpoint, to)

    def keeps(self, endpoint: Endpoint) -> bool:
        """Whether nobody gets its group when it is let go: it leaves, or that was decided before."""
        group, members = endpoint.group, endpoint.members
        if group is None or group.id not in self._state.moves.leaving:
            return False
        if not self._moving.has(endpoint):
            for member in members:
                member.held = member.suspended
            return self.takes(endpoint)
        return True
