"""Conversations whose service is on another queue by now: they follow it (behaviour 19; protocol.md section 7.3).

No fold knows why. The owner sees what the catalog says, and its COMMIT moves whole groups. From then on nothing of the
service is handed out here, save what cannot move: that goes on where it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from konverse.schemas.identifiers import Address

from .endpoint import Endpoint
from .moves import Arrival
from .moving import Moving
from .partition import Partition

Place = Callable[[bytes], Address]
"""Where a group of a service belongs: one partition for all that is ever in it."""


class Altering:
    """What has to leave a partition because ALTER SERVICE has named another queue."""

    def __init__(self, state: Partition, moving: Moving) -> None:
        self._state = state
        self._moving = moving
        self.services: Mapping[str, Place] = {}
        """Services that are on another queue by now."""
        self._seen: Mapping[int, Arrival] = {}
        """Who had come from elsewhere when the catalog was read."""

    def look(self, services: Mapping[str, Place], arrivals: Mapping[int, Arrival]) -> None:
        """Ask for the conversations of these services to be moved, as far as nobody has them.

        `arrivals` are those who had come from elsewhere before the catalog was read.
        """
        self.services, state = services, self._state
        self._seen = arrivals if services else {}
        self._moving.forget_ended()
        if any(terms.service in services for terms in state.terms.values()):
            for endpoint in state.live():
                if endpoint.service in services and endpoint is endpoint.members[0]:  # once for all of its group
                    self.takes(endpoint)

    def is_new(self, endpoint: Endpoint) -> bool:
        """It has come from elsewhere since the catalog was read: who sent it here may know better."""
        index = endpoint.index
        return self._state.moves.arrivals.get(index) is not self._seen.get(index)

    def takes(self, endpoint: Endpoint) -> bool:
        """Lock its group and move it with the next commit; False when that is not to be, or cannot be.

        A group in which others than this service are stays, as its owner cannot tell where it belongs. One that has
        just come stays until the catalog is read again: of two processes one may be behind, and each sends it back.
        """
        place = self.services.get(endpoint.service)
        if place is None or any(one.service != endpoint.service or self.is_new(one) for one in endpoint.members):
            return False
        return self._moving.take_along(endpoint, place(endpoint.group_id))
