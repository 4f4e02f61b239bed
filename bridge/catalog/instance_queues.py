"""Queues that an instance has beside those of its databases: the transmission queue and the link queue.

They are in the catalog of a database with an empty name, which no user can create. The first process that needs one
creates it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, suppress
from typing import Final, NamedTuple

from konverse.bridge.kafka.clients import Kafka
from konverse.bridge.kafka.topics import Topics
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.errors import AlreadyExists, TopicMismatch
from konverse.schemas.identifiers import link_topic, transmission_topic

from .catalog import Catalog

WHOLE_INSTANCE: Final = ""
"""Database whose catalog has these queues. No user database can have an empty name."""
KEEP_MS: Final = 7 * 24 * 3_600_000
"""Records that were carried out are kept this long for the verifier."""


class InstanceQueue(NamedTuple):
    """A queue that an instance has at most once."""

    name: str
    topic: Callable[[str], str]
    """Its data topic, by the name of the instance."""
    partitions: int = 4


TRANSMISSION: Final = InstanceQueue("transmission", transmission_topic)
"""Clients write their transactions to it, and its owners carry them out (`bridge.client.transmission`)."""
LINK: Final = InstanceQueue("link", link_topic)
"""Conversations wait in it whose target has no place yet (protocol.md section 9l)."""


def find_queue(kafka: Kafka, instance: str, wanted: InstanceQueue) -> Queue | None:
    """The queue; None before it is needed for the first time."""
    with closing(Catalog(kafka, instance, WHOLE_INSTANCE)) as catalog:
        return catalog.find(Queue, wanted.name)


def ensure_queue(kafka: Kafka, instance: str, wanted: InstanceQueue) -> Queue:
    """The queue, created if there is none."""
    found = find_queue(kafka, instance, wanted)
    if found is not None:
        Topics(kafka).check_queue(found)
        return found
    try:
        queue = Topics(kafka).make_queue(wanted.name, wanted.topic(instance), wanted.partitions, KEEP_MS)
    except TopicMismatch:
        found = find_queue(kafka, instance, wanted)
        if found is None:
            raise
        return found  # another process created it meanwhile and has already written to it
    with closing(Catalog(kafka, instance, WHOLE_INSTANCE)) as catalog:

        def decide() -> Queue:
            if catalog.find(Queue, wanted.name) is not None:
                raise AlreadyExists
            return queue

        with suppress(AlreadyExists):
            catalog.change(wanted.name, decide, Queue)
        return catalog.get(Queue, wanted.name)


def drop_queue(kafka: Kafka, topics: Topics, instance: str, wanted: InstanceQueue) -> bool:
    """Drop the queue with the records that it holds; False when there is none.

    The next process that needs it creates it again. A drop that failed half-way is completed.
    """
    with closing(Catalog(kafka, instance, WHOLE_INSTANCE)) as catalog:
        found = catalog.find(Queue, wanted.name)
        if found is not None:
            catalog.change(wanted.name, lambda: None, Queue)
        else:
            found = catalog.dropped_queue(wanted.name)
            if found is None or not topics.remain(found):
                return False
        topics.delete(found)
    return True
