"""An operator in any process: which conversations are suspended, and what their owners are to do with them.

Only the owner of a partition can decide there. It is told through a topic of the instance, to which every process with
a reader listens (`bridge.obeying`), and its journal says when it was done.

An operator resumes at once all that is suspended, in a queue or in a database: what was wrong is mended.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

from confluent_kafka import KafkaException

from konverse.bridge.catalog.catalog import Catalog
from konverse.bridge.catalog.judge import CatalogJudge
from konverse.bridge.kafka.clients import Kafka
from konverse.bridge.kafka.clock import kafka_time_ms
from konverse.bridge.kafka.topics import Topics
from konverse.bridge.owner.follower import Following, partitions_of
from konverse.bridge.reader.operations import check_cleanup, first_of, meant, waits
from konverse.bridge.runtime.arguments import Seconds, checked
from konverse.bridge.runtime.settings import Settings
from konverse.bridge.validation.validator import Validator
from konverse.dialog.owner.commands import reason_of
from konverse.dialog.state.endpoint import Endpoint
from konverse.dialog.state.partition import Partition
from konverse.dialog.state.transitions import SENDING
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.errors import DialogNotFound, InvalidSettings, InvalidState, OutcomeUnknown
from konverse.schemas.identifiers import Role, instruction_topic
from konverse.schemas.limits import INSTRUCTION_ENTRIES_MAX
from konverse.schemas.system_messages import check_error
from konverse.schemas.wire.instruction import Action, Instruction, encode

from .completion import Awaited, late_sweep, until_none, wait_for

SWEEP_CONVERSATIONS: Final = INSTRUCTION_ENTRIES_MAX // 2
"""So many conversations are ended at a time."""
OBEYED_S: Final = 15.0
"""An operator waits so long for the owner."""
INSTRUCTION_CONFIG: Final = {
    "cleanup.policy": "delete",
    "retention.ms": "3600000",  # longer than they count
    "message.timestamp.type": "LogAppendTime",
}


@dataclass(frozen=True, slots=True)
class Suspended:
    """A conversation whose handler failed too often, or that an operator has suspended: what comes for it waits."""

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
    reason: str
    """What its handler failed with at last, or what the operator said."""
    age_s: float
    """For so long it has been suspended, by Kafka's time."""


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
    _validator: Validator
    _check_open: Callable[[], None]

    def suspended(self, queue: str | None = None) -> Iterator[list[Suspended]]:
        """Conversations that wait for an operator, in a queue or in all of the database: a list for each partition.

        Read from the logs, without disturbing anybody; Redis is not needed. Raises QueueNotFound.
        """
        self._check_open()
        for each, partition in self._partitions(queue):
            with Following(self._kafka, each, partition) as following:
                sides = suspended_sides(following.catch_up())
                now_ms = kafka_time_ms(self._kafka) if sides else 0
                yield [shown(each, partition, one, now_ms) for one in sides]

    @checked
    def suspend(
        self, conversation: UUID, *, reason: str = "", queue: str | None = None, timeout: Seconds = OBEYED_S
    ) -> None:
        """Have nothing of a conversation and its group handed out any more, until it is resumed, skipped or ended.

        At any time: behind the transaction that has the group, if one has it. Returns when its owner, whichever process
        reads the queue, has committed that. `reason` is what `suspended` shows. `queue` says where to look, else
        everywhere, and both sides are suspended if they live here. Raises DialogNotFound, InvalidState when it is
        suspended or has ended, and OutcomeUnknown when no owner has done it within `timeout` seconds: it still counts
        for ten minutes.
        """
        self._instruct(conversation, queue, _Wish(Action.SUSPEND, 0, reason_of(reason)), timeout)

    @checked
    def resume(self, conversation: UUID, *, queue: str | None = None, timeout: Seconds = OBEYED_S) -> None:
        """Have the messages of a suspended conversation handed out again, with five attempts more.

        As `suspend`; InvalidState when it is not suspended.
        """
        self._instruct(conversation, queue, _Wish(Action.RESUME), timeout)

    @checked
    def skip(self, conversation: UUID, *, queue: str | None = None, timeout: Seconds = OBEYED_S) -> None:
        """Have the first message that waits on a conversation dropped, and the conversation resumed.

        As `suspend`; InvalidState when nothing waits, when what waits first tells that the conversation is over, and
        when a handler had that message and has received it: then nothing is dropped.
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
        """Have a conversation ended, with `error` > 0 as WITH ERROR; as `suspend`.

        Of two sides that live here the suspended one is ended, or both when none is; `queue` chooses. With `cleanup`
        WITH CLEANUP: each side that lives here goes at once, with what waits for it and what it has said in vain so
        far, and its peer is told nothing (behaviours 120, 121). That is for conversations of which one side is gone for
        good, not for others.
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
            found, ahead = self._places(conversation, queue, exits), False
            try:  # refused before anything is told
                chosen = self._meant(wish.action, conversation, found)
            except (DialogNotFound, InvalidState):
                if wish.action is Action.RESUME:
                    raise
                found, ahead = self._places(conversation, queue, exits, self._foreseen), True
                chosen = self._meant(wish.action, conversation, found)
            places = [(each, following, one) for each, following, one in found if one in chosen]
            awaited = [Awaited(wish.action, following, one, ahead=ahead) for _, following, one in places]
            told = dict.fromkeys((each.name, one.first) for (each, _, _), one in zip(places, awaited, strict=True))
            self._tell(*(Instruction(self.database, name, conversation.bytes, first, *wish) for name, first in told))
            wait_for(awaited, conversation, timeout_s)

    def _places(
        self,
        conversation: UUID,
        queue: str | None,
        exits: ExitStack,
        look: Callable[[Following], Partition] = Following.catch_up,
    ) -> list[tuple[Queue, Following, Endpoint]]:
        """Where the sides of a conversation live, as the journals have it, or as somebody `look`s at them."""
        found: list[tuple[Queue, Following, Endpoint]] = []
        for each, partition in self._partitions(queue):
            with ExitStack() as unneeded:
                following = unneeded.enter_context(Following(self._kafka, each, partition))
                sides = [side.get(conversation.bytes) for side in look(following).sides]
                found += [(each, following, one) for one in sides if one is not None]
                if any(sides):
                    exits.push(unneeded.pop_all())
        return found

    def _foreseen(self, following: Following) -> Partition:
        """With what has arrived and stands in no journal yet: all handlers of the queue may be at something else."""
        judge = CatalogJudge(self.catalog, self._validator, logging.DEBUG)  # it is only foreseen
        return following.look_ahead(judge, kafka_time_ms(self._kafka)).state

    def _meant(
        self, action: Action, conversation: UUID, found: list[tuple[Queue, Following, Endpoint]]
    ) -> list[Endpoint]:
        if not found:
            raise self._not_found(conversation)
        return meant(action, [one for _, _, one in found])

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
            raise self._kafka.not_taken(topic, error) from None
        self._kafka.check_taken(topic, failures)
        if len(failures) < len(instructions) or any(failure is not None for failure in failures):
            raise OutcomeUnknown(
                f"whether the instruction was written to {topic} is unknown: Kafka gave no answer. Give it again; it "
                "is not followed twice"
            )


def ensure_topic(topics: Topics, name: str) -> None:
    """Create the topic of instructions, if it does not exist."""
    if topics.partitions(name) is None:
        topics.ensure(name, 1, INSTRUCTION_CONFIG)


def suspended_sides(state: Partition) -> list[Endpoint]:
    """The sides of a partition that wait for an operator."""
    troubled = (state.table[index] for index in state.attempts.troubled)
    return [one for one in troubled if one is not None and waits(one)]


def _wait_for_ends(
    following: Following, wanted: set[tuple[Role, bytes]], meant: Callable[[Endpoint], bool], deadline: float
) -> None:
    """Return when the journal says that none of these sides is as it was."""

    def look() -> list[Endpoint]:
        state = following.catch_up()
        sides = (state.endpoint(role, conversation) for role, conversation in wanted)
        return [one for one in sides if one is not None and meant(one)]

    until_none(look, deadline, lambda left: late_sweep(len(left), unowned=following.head.clean))


def shown(queue: Queue, partition: int, endpoint: Endpoint, now_ms: int) -> Suspended:
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
        endpoint.trouble.reason if endpoint.trouble is not None else "",
        0.0 if endpoint.trouble is None else max(0, now_ms - endpoint.trouble.since_ms) / 1000,
    )


class Parked(NamedTuple):
    """A conversation group that is suspended: its conversations are resumed as one."""

    following: Following
    queue: str
    shown: list[Suspended]
    firsts: dict[tuple[Role, bytes], int]
    """Of each suspended side the number of what waits first on it."""

    def instruction(self, database: str) -> Instruction:
        """For one of them: what is told of another one would be kept, and might be followed when it fails again."""
        (_, conversation), first = next(iter(self.firsts.items()))
        return Instruction(database, self.queue, conversation, first, Action.RESUME)

    def left(self) -> int:
        """So many sides are suspended as they were, by what was read of the journal so far."""
        state = self.following.state
        sides = ((state.endpoint(*side), first) for side, first in self.firsts.items())
        return sum(one is not None and waits(one) and first_of(one) == first for one, first in sides)


class Resuming(Instructing):
    """The part of a broker that resumes everything."""

    @checked
    def resume_all(
        self,
        *,
        reason: str | None = None,
        older_than: Seconds | None = None,
        queue: str | None = None,
        timeout: Seconds = OBEYED_S,
    ) -> list[Suspended]:
        """Have conversations resumed that are suspended now, of a queue or of the database; returns them.

        Those of which the `reason` has this text in it, whatever the case of its letters, and that have been suspended
        for `older_than` seconds by Kafka's time: what has failed for another reason fails again. `older_than=0` takes
        all. As `resume` does with one. What its owner does not hear of holds up nobody else. Raises InvalidSettings
        when neither is given, QueueNotFound, and OutcomeUnknown when some are suspended as before after `timeout`
        seconds: for those it still counts for ten minutes.
        """
        self._check_open()
        if reason is None and older_than is None:
            raise InvalidSettings(
                "resume_all needs to know which ones are meant: `reason`, a text that their last error has in it "
                "(`konverse suspended` shows it), or `older_than`, in seconds; older_than=0 takes all"
            )

        def wanted(one: Suspended) -> bool:
            return (reason or "").casefold() in one.reason.casefold() and one.age_s >= (older_than or 0)

        with ExitStack() as exits:
            found: list[Parked] = []
            for each, partition in self._partitions(queue):
                with ExitStack() as unneeded:
                    following = unneeded.enter_context(Following(self._kafka, each, partition))
                    groups = [*self._parked(following, each, partition, wanted)]
                    if groups:
                        found += groups
                        exits.push(unneeded.pop_all())
            deadline = time.monotonic() + timeout
            for at in range(0, len(found), SWEEP_CONVERSATIONS):
                part = found[at : at + SWEEP_CONVERSATIONS]
                self._tell(*(group.instruction(self.database) for group in part))
                _wait(part, deadline)
        return [one for group in found for one in group.shown]

    def _parked(
        self, following: Following, queue: Queue, partition: int, wanted: Callable[[Suspended], bool]
    ) -> Iterator[Parked]:
        groups: dict[bytes, Parked] = {}
        sides = suspended_sides(following.catch_up())
        now_ms = kafka_time_ms(self._kafka) if sides else 0
        for one in sides:
            told = shown(queue, partition, one, now_ms)
            if wanted(told):
                group = groups.setdefault(one.group_id, Parked(following, queue.name, [], {}))
                group.shown.append(told)
                group.firsts[one.role, one.conversation] = first_of(one)
        yield from groups.values()


def _wait(groups: Iterable[Parked], deadline: float) -> None:
    """Return when the journals say that none of them is suspended any more as it was."""
    left = list(groups)

    def look() -> list[Parked]:
        for following in dict.fromkeys(group.following for group in left):
            following.catch_up()
        left[:] = [group for group in left if group.left()]
        return left

    def late(_: object) -> OutcomeUnknown:
        nobody = all(group.following.head.clean for group in left)
        return late_sweep(sum(group.left() for group in left), unowned=nobody)

    until_none(look, deadline, late)
