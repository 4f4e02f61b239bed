"""`konverse why`: the state of each side of a conversation and what holds it up, from the logs, without a claim."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

from konverse.bridge.catalog.catalog import Catalog
from konverse.bridge.kafka.clients import Kafka
from konverse.bridge.kafka.open_transactions import stalled
from konverse.bridge.owner.follower import UNREADABLE, Follower, partitions_of
from konverse.dialog.queries.standing import standing
from konverse.dialog.rules.loss import describe_loss
from konverse.dialog.state.endpoint import Endpoint
from konverse.dialog.state.partition import Partition
from konverse.dialog.state.transitions import State
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.counting import counted
from konverse.schemas.errors import AccessDenied, DialogNotFound
from konverse.schemas.identifiers import Address, Role

from .membership import ConsumerGroups
from .reading_state import (
    ReadingState,
    describe_dead,
    describe_forged,
    describe_stuck,
    describe_unknown,
    describe_unseen,
    reading_of,
)

log: Final = logging.getLogger("konverse.operator")


@dataclass(frozen=True)
class SideState:
    """One side of a conversation."""

    database: str
    queue: str
    partition: int
    role: str
    """"initiator" or "target"."""
    service: str
    far_service: str
    state: str
    """Two letters, as in `sys.conversation_endpoints`."""
    reasons: list[str]
    """Sentences: what the side waits for, and what holds it up."""


def explain(kafka: Kafka, catalog: Catalog, conversation: UUID) -> Iterator[list[SideState]]:
    """Look for a conversation in every partition of the database, and for its other side in other databases.

    Yields a list per partition of the database, to show progress: empty ones, and all sides with the last. Raises
    DialogNotFound when no partition of the database has the conversation; PartitionHalted or TopicMismatch if it is
    found nowhere and a partition cannot be read. A partition of another database that cannot be read is logged.
    """
    search = _Search(kafka, catalog, conversation)
    places = [*partitions_of(catalog.all(Queue))]
    for looked_at, (queue, partition) in enumerate(places, 1):
        try:
            search.look(catalog.database, queue, partition)
        except UNREADABLE as error:
            search.unreadable.append(error)
        if looked_at < len(places):
            yield []
    for problem in search.unreadable:
        if not search.found:
            raise problem
        log.warning("a partition was not searched: %s", problem)
    if not search.found:
        raise DialogNotFound(
            f"no queue of database {catalog.database!r} has conversation {conversation}: it is over on both sides, or "
            "it belongs to other databases (--database)" + describe_unseen(search.unseen, search.unread)
        )
    search.look_elsewhere()
    yield search.sides()


class _Side(NamedTuple):
    """A side of the conversation, where it lives, and what it waits for."""

    database: str
    queue: Queue
    partition: int
    endpoint: Endpoint
    reasons: list[str]


class _Search:
    """The sides of one conversation that were found, and what holds up the partitions that were read."""

    def __init__(self, kafka: Kafka, catalog: Catalog, conversation: UUID) -> None:
        self._kafka = kafka
        self._catalog = catalog
        self._conversation = conversation.bytes
        self._groups = ConsumerGroups(kafka)
        self._around: dict[Address, list[str]] = {}
        self.found: list[_Side] = []
        self.unseen = 0
        """Number of offsets that no owner has ingested."""
        self.unreadable: list[Exception] = []
        """Errors of partitions whose logs cannot be read."""
        self.unread: dict[str, None] = {}
        """Queues with offsets that no owner has ingested, and without a reader."""

    def look(self, database: str, queue: Queue, partition: int) -> None:
        """Read a partition."""
        with Follower(self._kafka, queue, partition) as following:
            state = following.catch_up()
            reading = reading_of(self._kafka, queue, partition, following, self._groups)
        self.unseen += reading.waiting
        if reading.waiting and reading.reader is False:
            self.unread[queue.name] = None
        self._around[queue.address(partition)] = [
            *_of_the_queue(queue),
            *_of_the_partition(reading),
            *_of_strangers(state),
            *filter(None, [describe_loss(state)]),
            *_of_the_log(self._kafka, queue.topic, partition),
        ]
        for role in Role:
            endpoint = state.endpoint(role, self._conversation)
            if endpoint is not None:
                self.found.append(_Side(database, queue, partition, endpoint, [*standing(state, endpoint)]))

    def look_elsewhere(self) -> None:
        """Read the partitions of other databases to which the sides that were found send."""
        known = self._catalog.queues()
        for side in [*self.found]:
            far = side.endpoint.stream.address
            queue, database = known.get(far.topic), self._catalog.database_of(far.topic)
            if queue is None or database is None or far in self._around:
                continue
            if queue.address(far.partition) == far:
                try:
                    self.look(database, queue, far.partition)
                except (*UNREADABLE, AccessDenied) as error:
                    log.warning("%s/%d, where the other side lives, was not read: %s", far.topic, far.partition, error)

    def sides(self) -> list[SideState]:
        """The sides, each with the reasons of its partition and of its peer's."""
        return [self._told(side) for side in self.found]

    def _told(self, side: _Side) -> SideState:
        database, queue, partition, endpoint, reasons = side
        around = self._around[queue.address(partition)]
        return SideState(
            database,
            queue.name,
            partition,
            endpoint.role.name.lower(),
            endpoint.service,
            endpoint.far_service,
            endpoint.state.code,
            [*reasons, *around, *_of_the_far(endpoint, self._around)],
        )


def _of_the_far(endpoint: Endpoint, around: Mapping[Address, list[str]]) -> Iterator[str]:
    """What keeps the other side's partition from receiving this side's messages, if it has sent any."""
    far = endpoint.stream.address
    if endpoint.sent and endpoint.state is not State.DISCONNECTED_INBOUND:
        for sentence in around.get(far, ()):
            yield f"Where the other side lives, in {far.topic}/{far.partition}: {sentence}"


def _of_the_queue(queue: Queue) -> Iterator[str]:
    if not queue.status:
        yield f"Queue {queue.name!r} delivers no messages because its STATUS is OFF: alter_queue with status=True."


def _of_the_partition(reading: ReadingState) -> Iterator[str]:
    if reading.waiting:
        offsets = counted(reading.waiting, "offset")
        yield f"No owner has ingested {offsets} of its partition; they may hold records of this conversation."
    if reading.released:
        yield "Its partition has no owner: no reader of the queue runs."
    dead = describe_dead(reading)
    for said in (describe_stuck(reading) if reading.stuck else "", dead and f"{dead}: start a reader"):
        if said:
            yield _sentence(said)
    if reading.membership.unknown:
        yield _sentence(describe_unknown(reading))


def _of_strangers(state: Partition) -> Iterator[str]:
    if state.statistics.forged:
        yield f"{describe_forged(state.statistics.forged, state.recent.contested_last)}."


def _of_the_log(kafka: Kafka, topic: str, partition: int) -> Iterator[str]:
    held_up = stalled(kafka, topic, partition)
    if held_up is not None:
        yield _sentence(held_up.describe(topic, partition))


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:].removesuffix('.')}."
