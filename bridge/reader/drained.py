"""Whether queues are drained: nothing of them waits for a handler, in no partition, whoever owns that."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from konverse.bridge.kafka.clients import Kafka
from konverse.bridge.owner.follower import Following, partitions_of
from konverse.dialog.state.partition import Partition
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.errors import KafkaUnavailable

Mark = tuple[int, ...]
"""How far each partition was read. Handlers of one queue send to the other, and partitions are looked at in turn: all
of them were drained at one time if two looks in a row found nothing and ended at the same mark."""


class Draining:
    """Some queues, as their journals say they are. What it has read is kept for the next look."""

    def __init__(self, kafka: Kafka, queues: Sequence[Queue]) -> None:
        self._kafka = kafka
        self._queues = queues
        self._followings: dict[tuple[str, int], Following] = {}

    def look(self, queue: Queue, ours: Collection[int]) -> Mark | None:
        """Look at all partitions but ours of `queue`; None when something waits there, or Kafka does not say.

        What is suspended waits for an operator, and does not count.
        """
        mark = []
        try:
            for each, number in partitions_of(self._queues):
                if each.name == queue.name and number in ours:
                    continue
                following = self._following(each, number)
                if _works(following.catch_up()) or following.behind():
                    return None
                mark.append(following.state.ingest_to)
        except KafkaUnavailable:
            return None
        return tuple(mark)

    def _following(self, queue: Queue, number: int) -> Following:
        place = queue.name, number
        if place not in self._followings:
            self._followings[place] = Following(self._kafka, queue, number)
        return self._followings[place]

    def close(self) -> None:
        """Close the clients."""
        for following in self._followings.values():
            following.close()
        self._followings.clear()


def _works(state: Partition) -> bool:
    """Something waits to be received, or to be delivered."""
    waits = any(one.waits and not one.suspended for side in state.sides for one in side.values())
    return waits or any(stream.acked < stream.next for stream in state.streams.values())
