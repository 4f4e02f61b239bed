"""DROP QUEUE: whether a queue can be dropped, and the deletion of its topics."""

from __future__ import annotations

from konverse.bridge.client.connection import Connection
from konverse.bridge.client.transmission import NAME, drop_queue, find_queue
from konverse.bridge.kafka.open_transactions import stalled
from konverse.bridge.owner.follower import Follower, partitions_of
from konverse.bridge.redis.view import forget_view
from konverse.dialog.state.partition import Partition
from konverse.schemas.catalog.objects import Queue, Service
from konverse.schemas.counting import counted
from konverse.schemas.errors import PartitionHalted, StillUsed, TopicMismatch


class QueueRemoval:
    """Removes queues of one database."""

    def __init__(self, connection: Connection) -> None:
        self._catalog = connection.catalog
        self._topics = connection.topics
        self._settings = connection.settings
        self._kafka = connection.kafka

    def drop_transmission(self, *, force: bool) -> bool:
        """Drop the transmission queue of the instance with `force`; False when there is none. Raises StillUsed."""
        if not force and find_queue(self._kafka, self._settings.instance) is not None:
            raise StillUsed(
                f"queue {NAME!r} is the transmission queue of all databases of instance {self._settings.instance!r}; "
                f"drop_queue({NAME!r}, force=True) gives up the transactions in it"
            )
        return force and drop_queue(self._kafka, self._topics, self._settings.instance)

    def check(self, queue: Queue) -> None:
        """Raise StillUsed while a conversation needs the queue; TopicMismatch, PartitionHalted if that is unknown."""
        try:
            self._topics.same_queue(queue)
            for number in range(queue.partitions):
                with Follower(self._kafka, queue, number) as following:
                    state, behind = following.catch_up(), following.behind()
                held_up = stalled(self._kafka, queue.topic, number) if behind else None
                _check_over(queue, state, behind, "" if held_up is None else held_up.describe(queue.topic, number))
        except (TopicMismatch, PartitionHalted) as error:
            raise type(error)(
                f"{error}. The conversations on queue {queue.name!r} cannot be determined; to drop the queue all the "
                f"same: drop_queue({queue.name!r}, force=True)"
            ) from None
        self._check_awaited(queue)

    def delete(self, queue: Queue) -> None:
        """Delete the topics of a dropped queue, and its view."""
        self._topics.delete(queue)
        if self._settings.redis:
            forget_view(self._settings.redis, queue)

    def _check_awaited(self, queue: Queue) -> None:
        """Raise StillUsed while other queues of services that were on this one have conversations or records for it."""
        services = [service for service in self._catalog.all(Service) if queue.name in service.queues_before]
        names = {name for service in services for name in (service.queue, *service.queues_before)} - {queue.name}
        for other, number in partitions_of(known for known in self._catalog.all(Queue) if known.name in names):
            with Follower(self._kafka, other, number) as following:
                state = following.catch_up()
                stubs = sum(
                    stub.to.topic == queue.topic for chain in state.moves.stubs.values() for stub in chain.values()
                )
                waiting = sum(stream.waiting for to, stream in state.streams.items() if to.topic == queue.topic)
            if stubs or waiting:
                raise StillUsed(
                    f"partition {number} of queue {other.name!r} has {counted(stubs, 'open conversation')} that moved "
                    f"to queue {queue.name!r}, and {counted(waiting, 'record')} in transit to it: let the "
                    "conversations end first"
                )


def _check_over(queue: Queue, state: Partition, behind: int, held_up: str) -> None:
    """Raise StillUsed for a partition with conversations, moved conversations, pending outputs or uningested data.

    `held_up` describes an open transaction that keeps owners from reading data. A conversation that has ended only on
    this side counts too: its far side would answer to a queue that is gone.
    """
    living, waiting, moved = len(state.live()), state.waiting, state.moves.count
    if living or waiting or behind or moved:
        began = f"{counted(moved, 'open conversation')} that moved to other queues, " if moved else ""
        raise StillUsed(
            f"partition {state.identity.partition} of queue {queue.name!r} still has "
            f"{counted(living, 'open conversation')}, {began}{counted(waiting, 'record')} in transit, and "
            f"{counted(behind, 'record')} that no owner has ingested: keep a reader of the queue running, and end the "
            "conversations on both sides" + (f"; {held_up}" if held_up else "")
        )
