"""Where a conversation group lives: the state of our partitions says so, and the journals of the others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from konverse.dialog.leaving import found_in
from konverse.dialog.received import Found
from konverse.schemas.catalog import Queue

from .following import Following
from .kafka import Kafka

if TYPE_CHECKING:
    from konverse.dialog.owner import Owner


class Groups:
    """The groups of a queue, as a reader of some of its partitions finds them."""

    def __init__(self, kafka: Kafka, queue: Queue, owners: Mapping[int, Owner]) -> None:
        self._kafka = kafka
        self._queue = queue
        self._owners = owners

    def find_here(self, group: bytes) -> Found | None:
        """A group in the partitions that are ours."""
        here = (found_in(owner.fold.state, group) for owner in self._owners.values())
        return next(filter(None, here), None)

    def find_away(self, group: bytes) -> Found | None:
        """A group in the partitions that are not ours; None when it is in none.

        One journal after the other is read, from its newest snapshot on, and the data that nobody has committed yet, as
        a group that was moved may wait there to be taken up. That may take seconds. Whether a partition has an owner
        now makes no difference. Raises what `Following.catch_up` raises.
        """
        for number in range(self._queue.partitions):
            if number not in self._owners:
                with Following(self._kafka, self._queue, number) as following:
                    found = found_in(following.catch_up(), group)
                    if found is None and following.behind():
                        found = found_in(following.look_ahead(None).state, group)
                if found is not None:
                    return found
        return None
