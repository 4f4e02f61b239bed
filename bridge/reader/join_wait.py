"""When a reader that has just started, or was given partitions, may report that nothing waits for it."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Final

from confluent_kafka import Consumer

from konverse.bridge.kafka.clients import has_joined
from konverse.dialog.owner.owner import Owner

FIRST_FETCH_S: Final = 0.5
"""The first records of a partition may take this long after a take-over."""

JOIN_S: Final = 10.0
"""A reader does not count as idle for this long while its group has not answered: joining takes a second or more."""

ASSIGNMENT_WAIT_S: Final = 0.5
"""A group assigns a new member its partitions within this time, unless other readers have them all."""


class JoinWait:
    """Decides when a new reader may count as idle."""

    def __init__(self, *, group: bool) -> None:
        """`group`: a consumer group suggests the partitions; else the caller has named them."""
        self.until = time.monotonic() + (JOIN_S if group else FIRST_FETCH_S)
        """Before this time (monotonic) a reader is idle only if it has partitions and has read their existing data."""
        self.of_group = group
        self._asked = group
        """The group is not known to have answered yet."""

    def refused(self, consumer: Consumer) -> bool:
        """Whether an authorization error about groups concerns this reader: its own group has not admitted it."""
        return self.of_group and not has_joined(consumer)

    def given(self) -> None:
        """Called when partitions were taken over, before anything is fetched from them."""
        self._asked, self.until = False, time.monotonic() + FIRST_FETCH_S

    def over(self, consumer: Consumer, owners: Collection[Owner]) -> bool:
        """Whether the reader may count as idle.

        `until` has passed, or the reader has partitions and has read their data to the ends found at the take-over.
        """
        if self._asked and not owners and has_joined(consumer):
            self._asked, self.until = False, time.monotonic() + ASSIGNMENT_WAIT_S
        if time.monotonic() >= self.until:
            return True
        return bool(owners) and all(owner.fold.data_to >= owner.recovery.data_end for owner in owners)
