"""Whether queues are drained: no message waits for a handler, in any partition, whichever process owns it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from konverse.bridge.kafka.clients import Kafka
from konverse.bridge.owner.follower import Follower, partitions_of
from konverse.bridge.owner.logs import QueueLogs
from konverse.dialog.state.partition import Partition
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.errors import KafkaUnavailable

Mark = tuple[int, ...]
"""Offset up to which each partition was read. Partitions are read one after the other, while handlers may send from one
queue to another. If two checks in a row find nothing and end at the same mark, all were drained at the same time."""


class DrainCheck:
    """Follows the journals of some queues. Each check continues where the last one ended."""

    def __init__(self, kafka: Kafka, queues: Sequence[Queue]) -> None:
        self._kafka = kafka
        self._queues = queues
        self._followings: dict[tuple[str, int], Follower] = {}
        self._logs: dict[str, QueueLogs] = {}
        """Queue -> the client that all of its followers share: a process cannot have one for each partition."""

    def examine(self, queue: Queue, ours: Collection[int]) -> Mark | None:
        """Check all partitions except `ours` of `queue`; None when something waits there, or Kafka does not answer.

        Suspended conversations do not count: they wait for an operator.
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

    def _following(self, queue: Queue, number: int) -> Follower:
        place = queue.name, number
        if place not in self._followings:
            if queue.name not in self._logs:
                self._logs[queue.name] = QueueLogs(self._kafka, queue)
            self._followings[place] = Follower(self._kafka, queue, number, self._logs[queue.name])
        return self._followings[place]

    def close(self) -> None:
        """Close the clients."""
        for logs in self._logs.values():
            logs.close()
        self._logs.clear()
        self._followings.clear()


def _works(state: Partition) -> bool:
    """Whether messages wait to be received, or outputs to be delivered."""
    waits = any(one.waits and not one.suspended for side in state.sides for one in side.values())
    return waits or any(stream.acked < stream.next for stream in state.streams.values())
