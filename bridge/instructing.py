"""An operator in any process: which conversations are suspended, and what their owners are to do with them.

Only the owner of a partition can decide there. It is told through a topic of the instance, to which every process
with a reader listens (`bridge.obeying`), and its journal says when it was done.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sized
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar
from uuid import UUID

from confluent_kafka import KafkaException

from konverse.dialog.endpoint import Endpoint, timestamp_ms
from konverse.dialog.partition import Partition
from konverse.dialog.states import SENDING
from konverse.schemas.catalog import Queue
from konverse.schemas.errors import DialogNotFound, OutcomeUnknown
from konverse.schemas.identifiers import instruction_topic
from konverse.schemas.instruction import Action, Instruction, encode
from konverse.schemas.limits import INSTRUCTION_ENTRIES_MAX, INSTRUCTION_MS_MAX
from konverse.schemas.records import Role
from konverse.schemas.system_messages import check_error

from .arguments import Seconds, checked
from .catalog import Catalog
from .following import Following, partitions_of
from .kafka import Kafka, unavailable
from .operating import check_cleanup, check_skip, not_suspended, waits
from .settings import Settings
from .topics import Topics

LOOK_EVERY_S: Final = 0.1
Left = TypeVar("Left", bound=Sized)
SWEEP_CONVERSATIONS: Final = INSTRUCTION_ENTRIES_MAX // 2
"""So many conversations are ended at a time."""
OBEYED_S: Final = 15.0
"""An operator waits so long for the owner."""

STILL_COUNTS: Final = (
    f"It still counts for {INSTRUCTION_MS_MAX // 60_000} minutes: the first reader that has the partition by then "
    "does it"
)

INSTRUCTION_CONFIG: Final = {
    "cleanup.policy": "delete",
    "retention.ms": "3600000",  # longer than they count
    "message.timestamp.type": "LogAppendTime",
}


@dataclass(frozen=True, slots=True)
class Suspended:
    """A conversation whose handler failed too often: what comes for it waits for an operator."""

    queue: str
    partition: int
    conversation: UUID
    role: str
    """Of the side that is suspended: "initiator" or "target"."""
    service: str
    far_service: str
    attempts: int
    unread: int
    """Messages that wait."""
    next_type: str
    """Message type of the first of them; empty when none waits, as may be where another one of its group failed."""


class _Wish(NamedTuple):
    """What is to be done with it."""

    action: Action
    error: int = 0
    description: str = ""


class Instructing:
    """The part of a broker that is for operators."""

    settings: Settings
    database: str
    catalog: Catalog
    _kafka: Kafka
    _topics: Topics
    _check_open: Callable[[], None]

    def suspended(self, queue: str | None = None) -> Iterator[list[Suspended]]:
        """Conversations that wait for an operator, in a queue or in all of the database: a list for each partition.

        Read from the logs, without disturbing anybody; Redis is not needed. Raises QueueNotFound.
        """
        self._check_open()
        for each, partition in self._partitions(queue):
            with Following(self._kafka, each, partition) as following:
                yield [shown(each, partition, one) for one in suspended_sides(following.catch_up())]

    @checked
    def resume(self, conversation: UUID, *, queue: str | None = None, timeout: Seconds = OBEYED_S) -> None:
        """Have the messages of a suspended conversation handed out again, with five attempts more.

        Returns when its owner, whichever process reads the queue, has committed that. `queue` says where to look, else
        everywhere. Raises DialogNotFound, InvalidState when it is not suspended, and OutcomeUnknown when no owner has
        done it within `timeout` seconds: it still counts for ten minutes.
        """
        self._instruct(conversation, queue, _Wish(Action.RESUME), timeout)

    @checked
    def skip(self, conversation: UUID, *, queue: str | None = None, timeout: Seconds = OBEYED_S) -> None:
        """Have the first message that waits on a suspended conversation dropped, and resume it.

        As `resume`; InvalidState, too, when what waits first tells that the conversation is over.
        """
        self._instruct(conversation, queue, _Wish(Action.SKIP), timeout)

    @checked
    def end(  # noqa: PLR0913  # the clauses of END CONVERSATION, and where it is
        self,
        conversation: UUID,
        *,
        error: int | None = 0,
        description: str | None = "",
        cleanup: bool = False,
        queue: str | None = None,
        timeout: Seconds = OBEYED_S,
    ) -> None:
        """Have a suspended conversation ended, with `error` > 0 as WITH ERROR; as `resume`.

        With `cleanup` any conversation, WITH CLEANUP: each side that lives here goes at once, with what waits for it
        and what it has said in vain so far, and its peer is told nothing (behaviours 120, 121). For conversations of
        which one side is gone for good, not for others.
        InvalidError for a code without a description, or the reverse (112). A dialog of this process is ended with
        `Dialog.end`.
        """
        error, description = check_error(error, description)
        check_cleanup(error, cleanup=cleanup)
        if cleanup:
            if not self._sweep(Action.CLEANUP, queue, lambda one: one.id == conversation, timeout):
                raise self._not_found(conversation)
            return
        self._instruct(conversation, queue, _Wish(Action.END, error, description), timeout)

    @checked
    def error_broker_conversations(self, *, queue: str | None = None, timeout: Seconds = OBEYED_S) -> int:
        """Have every open conversation of the database fail, or of one queue: Error -9719 on both sides.

        ALTER DATABASE … SET ERROR_BROKER_CONVERSATIONS (behaviour 136), for a database whose logs were brought back
        from a copy. Each side is to be ended then as after any Error. Returns how many conversations were open; one
        that a handler has fails behind it. Raises QueueNotFound, and OutcomeUnknown as `resume`.
        """
        return self._sweep(Action.FAIL, queue, lambda one: one.state in SENDING, timeout)

    def _partitions(self, queue: str | None) -> Iterator[tuple[Queue, int]]:
        return partitions_of(self.catalog.all(Queue) if queue is None else [self.catalog.get(Queue, queue)])

    def _instruct(self, conversation: UUID, queue: str | None, wish: _Wish, timeout_s: float) -> None:
        self._check_open()
        with ExitStack() as exits:
            waiting: dict[Following, int] = {}
            orders: list[Instruction] = []
            known = False
            for each, partition in self._partitions(queue):
                with ExitStack() as unneeded:
                    following = unneeded.enter_context(Following(self._kafka, each, partition))
                    sides = _sides(following, conversation)
                    known = known or bool(sides)
                    for one in filter(waits, sides):
                        if wish.action is Action.SKIP:
                            check_skip(one)  # refused before anything is told
                        waiting[following] = first = first_of(one)
                        orders.append(Instruction(self.database, each.name, one.conversation, first, *wish))
                        exits.push(unneeded.pop_all())
            if known and not waiting:
                raise not_suspended(conversation)
            if not known:
                raise self._not_found(conversation)
            self._tell(*orders)
            _wait(waiting, conversation, timeout_s)

    def _sweep(self, action: Action, queue: str | None, meant: Callable[[Endpoint], bool], timeout_s: float) -> int:
        """Have conversations end, partition by partition, as many at a time as a process keeps in mind."""
        self._check_open()
        deadline, found = time.monotonic() + timeout_s, set[bytes]()
        for each, partition in self._partitions(queue):
            with Following(self._kafka, each, partition) as following:
                sides = [one for one in following.catch_up().live() if meant(one)]
                found.update(one.conversation for one in sides)
                for at in range(0, len(sides), SWEEP_CONVERSATIONS):
                    part = sides[at : at + SWEEP_CONVERSATIONS]
                    wanted = {(one.role, one.conversation) for one in part}
                    conversations = dict.fromkeys(one.conversation for one in part)
                    self._tell(*(Instruction(self.database, each.name, one, 0, action) for one in conversations))
                    _wait_for_ends(following, wanted, meant, deadline)
        return len(found)

    def _not_found(self, conversation: UUID) -> DialogNotFound:
        return DialogNotFound(
            f"no queue of database {self.database!r} has conversation {conversation}: it is over, or belongs to "
            "another database"
        )

    def _tell(self, *instructions: Instruction) -> None:
        topic = instruction_topic(self.settings.instance)
        ensure_topic(self._topics, topic)
        producer = self._kafka.plain_producer(self.settings.append_timeout_s)
        failures: list[object] = []
        try:
            for instruction in instructions:
                producer.produce(
                    topic, encode(instruction), None, 0, on_delivery=lambda error, _message: failures.append(error)
                )
            with suppress(KafkaException):  # then there is no answer
                producer.flush(self.settings.append_timeout_s + 1)
        except KafkaException as error:
            raise unavailable(f"{topic} takes no record", error) from None
        if failures != [None] * len(instructions):
            raise OutcomeUnknown(
                f"whether the instruction was written to {topic} is unknown: Kafka gave no answer. Give it again; it "
                "is not followed twice"
            )


def ensure_topic(topics: Topics, name: str) -> None:
    """Create the topic of instructions, if it does not exist."""
    if topics.partitions(name) is None:
        topics.ensure(name, 1, INSTRUCTION_CONFIG)


def first_of(endpoint: Endpoint) -> int:
    """A number of what is received first, which nothing else of its conversation has; 0 when nothing waits."""
    entry = endpoint.first
    if entry is None:
        return 0
    # a DialogTimer stands in no log: it is known by when it was due
    return 2 * timestamp_ms(entry[3]) + 1 if endpoint.rings else 2 * (entry[0] + 1)


def suspended_sides(state: Partition) -> list[Endpoint]:
    """The sides of a partition that wait for an operator."""
    troubled = (state.table[index] for index in state.attempts.troubled)
    return [one for one in troubled if one is not None and waits(one)]


def _sides(following: Following, conversation: UUID) -> list[Endpoint]:
    sides = following.catch_up().sides
    return [endpoint for side in sides if (endpoint := side.get(conversation.bytes)) is not None]


def _wait(waiting: dict[Following, int], conversation: UUID, timeout_s: float) -> None:
    """Return when the journals say that nothing is suspended any more as it was."""
    left = dict(waiting)

    def look() -> dict[Following, int]:
        for following, first in list(left.items()):
            if not any(waits(one) and first_of(one) == first for one in _sides(following, conversation)):
                del left[following]
        return left

    def late(_: object) -> OutcomeUnknown:
        return _late(conversation, timeout_s, nobody=all(following.head.clean for following in left))

    until_none(look, time.monotonic() + timeout_s, late)


def _wait_for_ends(
    following: Following, wanted: set[tuple[Role, bytes]], meant: Callable[[Endpoint], bool], deadline: float
) -> None:
    """Return when the journal says that none of these sides is as it was."""

    def look() -> list[Endpoint]:
        state = following.catch_up()
        sides = (state.endpoint(role, conversation) for role, conversation in wanted)
        return [one for one in sides if one is not None and meant(one)]

    until_none(look, deadline, lambda left: late_sweep(len(left), nobody=following.head.clean))


def until_none(look: Callable[[], Left], deadline: float, late: Callable[[Left], OutcomeUnknown]) -> None:
    """Look into journals again and again until nothing is left that is as it was; `late` makes the error of it."""
    while left := look():
        if time.monotonic() > deadline:
            raise late(left)
        time.sleep(LOOK_EVERY_S)


def late_sweep(count: int, *, nobody: bool) -> OutcomeUnknown:
    """The error for sides with which nothing was done in time; `nobody`: no owner has their partitions."""
    why = "no reader of their queue runs" if nobody else "handlers have them, or their owner is dead"
    return OutcomeUnknown(
        f"what becomes of {count} sides of conversations is unknown: they are as before, and {why}. {STILL_COUNTS}. "
        "Give the command again for what was not asked for yet"
    )


def _late(conversation: UUID, timeout_s: float, *, nobody: bool) -> OutcomeUnknown:
    why = "no reader of its queue runs" if nobody else "its owner is busy, or dead"
    return OutcomeUnknown(
        f"what becomes of the order is unknown: conversation {conversation} is suspended as before after "
        f"{timeout_s:.0f} s, and {why}. {STILL_COUNTS}"
    )


def shown(queue: Queue, partition: int, endpoint: Endpoint) -> Suspended:
    """What is told of a suspended side."""
    entry = endpoint.first
    return Suspended(
        queue.name,
        partition,
        endpoint.id,
        endpoint.role.name.lower(),
        endpoint.service,
        endpoint.far_service,
        endpoint.attempts,
        len(endpoint.queue) + len(endpoint.urgent),
        entry[1] if entry else "",
    )
