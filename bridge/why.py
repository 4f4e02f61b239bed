"""Why nothing comes: where the sides of a conversation stand, folded from the logs without claiming anything."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID

from konverse.dialog.endpoint import Endpoint
from konverse.dialog.head import JournalHead
from konverse.dialog.why import standing
from konverse.schemas.catalog import Queue
from konverse.schemas.errors import DialogNotFound
from konverse.schemas.records import Role

from .following import Following, partitions_of
from .kafka import Kafka


@dataclass(frozen=True)
class Standing:
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


def explain(kafka: Kafka, queues: list[Queue], conversation: UUID) -> Iterator[list[Standing]]:
    """The sides that live in a partition, for each partition of these queues; raises DialogNotFound when none does."""
    found, unseen = False, 0
    for queue, partition in partitions_of(queues):
        with Following(kafka, queue, partition) as following:
            state, head = following.catch_up(), following.head
            behind = following.behind()
        common = [*_of_the_queue(queue), *_of_the_partition(head, behind, kafka.settings.silence_timeout_s)]
        endpoints = [endpoint for role in Role if (endpoint := state.endpoint(role, conversation.bytes)) is not None]
        yield [_standing(queue, partition, endpoint, [*standing(state, endpoint), *common]) for endpoint in endpoints]
        found, unseen = found or bool(endpoints), unseen + behind
    if not found:
        raise DialogNotFound(
            f"no queue of this database has conversation {conversation}: it is over on both sides, or it belongs to "
            "another database (--database)" + _maybe_unseen(unseen)
        )


def _maybe_unseen(offsets: int) -> str:
    if not offsets:
        return ""
    return f", or what begins it is in the {offsets:,} offset{'s' * (offsets > 1)} of logs that no owner has committed"


def _standing(queue: Queue, partition: int, endpoint: Endpoint, reasons: list[str]) -> Standing:
    role = endpoint.role.name.lower()
    names = endpoint.service, endpoint.far_service, endpoint.state.code
    return Standing(queue.name, partition, role, *names, reasons)


def _of_the_queue(queue: Queue) -> Iterator[str]:
    if not queue.status:
        yield f"Nobody receives from queue {queue.name!r}, whose STATUS is OFF: alter_queue with status=True."


def _of_the_partition(head: JournalHead, behind: int, silence_timeout_s: float) -> Iterator[str]:
    if behind:
        offsets = f"{behind:,} offset{'s' * (behind > 1)} of the log"
        yield f"Not in the journal of its partition yet, and maybe of this conversation: {offsets}."
    silent_s = silence_s(head)
    if head.clean:
        yield "Its partition has no owner: no reader of the queue runs."
    elif silent_s > silence_timeout_s:
        yield f"The owner of its partition has written nothing for {silent_s:,.0f} s, and is dead: start a reader."


def silence_s(head: JournalHead) -> float:
    """How long, in seconds, the owner of a partition has written nothing into its journal."""
    return max(0.0, time.time() - head.now_ms / 1000)
