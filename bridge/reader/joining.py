"""Since when a reader that is new, or has been given partitions, can say that nothing waits for it."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Final

from confluent_kafka import Consumer

from konverse.bridge.kafka.clients import has_joined
from konverse.dialog.owner.owner import Owner

FIRST_FETCH_S: Final = 0.5
"""The first records of a partition that is taken over may need so long."""

JOIN_S: Final = 10.0
"""A reader whose group has not answered yet is not idle for so long: joining takes a second or more."""

GIVEN_NOTHING_S: Final = 0.5
"""A group that has taken a reader in gives it its partitions within so long, unless other readers have them all."""


class Joining:
    """What a reader waits for before it may be idle."""

    def __init__(self, *, group: bool) -> None:
        """`group`: its partitions are suggested by one, and not named by the caller."""
        self.until = time.monotonic() + (JOIN_S if group else FIRST_FETCH_S)
        """It is not idle before this: the group has not given it anything yet, or Kafka no record."""
        self.of_group = group
        self._asked = group
        """The group has not answered yet, as far as is known."""

    def refused(self, consumer: Consumer) -> bool:
        """Whether a refusal of a group concerns the group of this reader: it has not been taken in."""
        return self.of_group and not has_joined(consumer)

    def given(self) -> None:
        """Partitions are ours, and were not fetched from yet."""
        self._asked, self.until = False, time.monotonic() + FIRST_FETCH_S

    def over(self, consumer: Consumer, owners: Collection[Owner]) -> bool:
        """The group has given us our partitions, or none, and what stood in their logs then was fetched."""
        if self._asked and not owners and has_joined(consumer):
            self._asked, self.until = False, time.monotonic() + GIVEN_NOTHING_S
        if time.monotonic() >= self.until:
            return True
        return bool(owners) and all(owner.fold.data_to >= owner.recovery.data_end for owner in owners)
