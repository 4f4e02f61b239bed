"""`konverse why`: where each side of a conversation stands and what keeps it, folded from the logs without a claim."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from uuid import UUID

from konverse.bridge.kafka.clients import Kafka
from konverse.bridge.kafka.clock import kafka_time_ms
from konverse.bridge.kafka.open_transactions import stalled
from konverse.bridge.owner.follower import Follower, partitions_of
from konverse.dialog.fold.journal import JournalHead
from konverse.dialog.queries.standing import standing
from konverse.dialog.rules.loss import said_of_loss
from konverse.dialog.state.endpoint import Endpoint
from konverse.dialog.state.partition import Partition
from konverse.dialog.state.transitions import State
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.errors import DialogNotFound
from konverse.schemas.identifiers import Address, Role

from .reading_state import reading_state, said_of_forged


@dataclass(frozen=True)
class SideState:
    """One side of a conversation."""

    queue: str
    partition: int
    role: str
    """"initiator" or "target"."""
    service: str
    far_service: str
    state: str
    """Two letters, as in `sys.conversation_endpoints`."""
    reasons: list[str]
    """Sentences that say what the side waits for and what holds it up."""


def explain(kafka: Kafka, queues: list[Queue], conversation: UUID) -> Iterator[list[SideState]]:
    """Look for a conversation in every partition of these queues.

    Yields a list per partition, to show progress: empty ones, and all sides with the last. Raises DialogNotFound when
    no partition has the conversation.
    """
    sides: list[tuple[Queue, int, Endpoint, list[str]]] = []
    around: dict[Address, list[str]] = {}
    unseen, places = 0, [*partitions_of(queues)]
    for looked_at, (queue, partition) in enumerate(places, 1):
        with Follower(kafka, queue, partition) as following:
            state, head = following.catch_up(), following.head
            behind = following.behind()
        unseen += behind
        around[queue.address(partition)] = [
            *_of_the_queue(queue),
            *_of_the_partition(head, behind, kafka_time_ms(kafka), kafka.settings.silence_timeout_s),
            *_of_strangers(state),
            *filter(None, [said_of_loss(state)]),
            *_of_the_log(kafka, queue.topic, partition),
        ]
        for role in Role:
            endpoint = state.endpoint(role, conversation.bytes)
            if endpoint is not None:
                sides.append((queue, partition, endpoint, [*standing(state, endpoint)]))
        if looked_at < len(places):
            yield []
    if not sides:
        raise DialogNotFound(
            f"no queue of this database has conversation {conversation}: it is over on both sides, or it belongs to "
            "another database (--database)" + _maybe_unseen(unseen)
        )
    yield [
        _standing(
            queue, partition, endpoint, [*said, *around[queue.address(partition)], *_of_the_far(endpoint, around)]
        )
        for queue, partition, endpoint, said in sides
    ]


def _of_the_far(endpoint: Endpoint, around: Mapping[Address, list[str]]) -> Iterator[str]:
    """What keeps the other side's partition from receiving this side's messages, if it has sent any."""
    far = endpoint.stream.address
    if endpoint.sent and endpoint.state is not State.DISCONNECTED_INBOUND:
        for sentence in around.get(far, ()):
            yield f"Where the other side lives, in {far.topic}/{far.partition}: {sentence}"


def _maybe_unseen(offsets: int) -> str:
    if not offsets:
        return ""
    return f", or its BEGIN is in the {offsets:,} offset{'s' * (offsets > 1)} of logs that no owner has committed"


def _standing(queue: Queue, partition: int, endpoint: Endpoint, reasons: list[str]) -> SideState:
    role = endpoint.role.name.lower()
    names = endpoint.service, endpoint.far_service, endpoint.state.code
    return SideState(queue.name, partition, role, *names, reasons)


def _of_the_queue(queue: Queue) -> Iterator[str]:
    if not queue.status:
        yield f"Queue {queue.name!r} delivers no messages because its STATUS is OFF: alter_queue with status=True."


def _of_the_partition(head: JournalHead, behind: int, now_ms: int, silence_timeout_s: float) -> Iterator[str]:
    if behind:
        offsets = f"{behind:,} offset{'s' * (behind > 1)} of the log"
        yield f"Not in the journal of its partition yet, possibly of this conversation: {offsets}."
    reading = reading_state(head, behind, now_ms, silence_timeout_s)
    if reading.released:
        yield "Its partition has no owner: no reader of the queue runs."
    elif reading.silent:
        yield (
            f"The owner of its partition has written nothing for {reading.silent_s:,.0f} s, and is dead: "
            "start a reader."
        )


def _of_strangers(state: Partition) -> Iterator[str]:
    if state.statistics.forged:
        yield f"{said_of_forged(state.statistics.forged, state.recent.contested_last)}."


def _of_the_log(kafka: Kafka, topic: str, partition: int) -> Iterator[str]:
    held_up = stalled(kafka, topic, partition)
    if held_up is not None:
        said = held_up.said(topic, partition)
        yield f"{said[0].upper()}{said[1:]}."
