"""Commands of operators, from any process: list suspended conversations, suspend, resume, skip and end them.

Only the owner of a partition can change its conversations. A command is written to the instruction topic of the
instance, which every process with a reader reads (`bridge.admin.listener`). The owner commits the command, and the
caller waits until it reads that commit in the journal. `resume_all` resumes many suspended conversations of a queue or
database, once the cause of their suspension is fixed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID, uuid4

from confluent_kafka import KafkaError, Message

from konverse.bridge.catalog.judge import CatalogJudge
from konverse.bridge.client.connection import Connection
from konverse.bridge.kafka.appends import TopicRecord, append
from konverse.bridge.kafka.clock import kafka_time_ms
from konverse.bridge.kafka.open_transactions import check_readable
from konverse.bridge.kafka.refusals import Need
from konverse.bridge.kafka.topics import Topics
from konverse.bridge.owner.follower import UNREADABLE, Follower, partitions_of
from konverse.bridge.reader.operations import affected_sides, awaits_operator, first_of, suspended_sides
from konverse.dialog.state.endpoint import Endpoint
from konverse.dialog.state.partition import Partition
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.counting import listed
from konverse.schemas.errors import (
    AccessDenied,
    DialogNotFound,
    InvalidState,
    KonverseError,
    OutcomeUnknown,
    TopicMismatch,
)
from konverse.schemas.identifiers import Role, instruction_topic
from konverse.schemas.limits import INSTRUCTION_ENTRIES_MAX
from konverse.schemas.wire.instruction import Action, Instruction, encode

from .completion import Awaited, check_foremost, late_sweep, until_none, wait_for

log: Final = logging.getLogger("konverse.operator")

SWEEP_CONVERSATIONS: Final = INSTRUCTION_ENTRIES_MAX // 2
"""Number of instructions that a command for many conversations writes at a time; a listener keeps twice as many."""
COMMIT_WAIT_S: Final = 15.0
"""Default time that an operator waits for the owner's commit."""
REFUSALS: Final = frozenset({
    KafkaError.INVALID_RECORD,
    KafkaError.INVALID_TIMESTAMP,
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.POLICY_VIOLATION,
    KafkaError.RECORD_LIST_TOO_LARGE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001  # public, in spite of its name
    KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001
})  # fmt: skip
"""Errors of a record that Kafka has not written, and will not write if it is sent again."""
INSTRUCTION_CONFIG: Final = {
    "cleanup.policy": "delete",
    "retention.ms": "3600000",  # longer than an instruction is valid
    "message.timestamp.type": "LogAppendTime",
}


@dataclass(frozen=True, slots=True)
class Suspended:
    """A side of a conversation that was suspended after failed attempts or by an operator: its messages wait."""

    queue: str
    partition: int
    conversation: UUID
    role: str
    """Role of the suspended side: "initiator" or "target"."""
    service: str
    far_service: str
    attempts: int
    unread: int
    """Number of messages that wait."""
    next_type: str
    """Type of the first waiting message; empty if none waits, as when another conversation of the group failed."""
    reason: str
    """The last error of the handler, or the operator's reason."""
    age_s: float
    """Seconds since the suspension, by Kafka's time."""


class Command(NamedTuple):
    """An action and its arguments."""

    action: Action
    error: int = 0
    description: str = ""


class Sweep(NamedTuple):
    """An action on many conversations."""

    action: Action
    concerns: Callable[[Endpoint], bool]
    """Whether the action concerns this side. False once the action was carried out."""
    everywhere: bool = False
    """It also concerns sides in partitions that cannot be read, so the error of such a partition is always raised."""


class Instructions:
    """Writes instructions for the owners of a database's partitions, and waits until their journals show the result."""

    def __init__(self, connection: Connection) -> None:
        self._check_open = connection.check_open
        self._catalog = connection.catalog
        self._validator = connection.validator
        self._topics = connection.topics
        self._settings = connection.settings
        self._database = connection.database
        self._kafka = connection.kafka

    def partitions(self, queue: str | None) -> Iterator[tuple[Queue, int]]:
        """The partitions of one queue, or of all queues of the database. Raises QueueNotFound."""
        return partitions_of(self._catalog.all(Queue) if queue is None else [self._catalog.get(Queue, queue)])

    def instruct(self, conversation: UUID, queue: str | None, command: Command, timeout_s: float) -> None:
        """Check a command, write it for each side of the conversation that it affects, and wait for the commits."""
        self._check_open()
        with ExitStack() as exits:
            found, ahead = self._places(conversation, queue, exits), False
            try:  # an impossible command is refused before an instruction is written
                chosen = self._affected(command.action, conversation, found)
            except (DialogNotFound, InvalidState):
                if command.action is Action.RESUME:
                    raise
                found, ahead = self._places(conversation, queue, exits, self.foreseen), True
                chosen = self._affected(command.action, conversation, found)
            places = [(each, following, one) for each, following, one in found if one in chosen]
            awaited = [Awaited(command.action, following, one, ahead=ahead) for _, following, one in places]
            said = [
                Instruction(self._database, each.name, conversation.bytes, one.first, *command, side.role)
                for (each, _, side), one in zip(places, awaited, strict=True)
            ]
            key = uuid4().bytes
            offsets = self.write(*said, key=key)
            wait_for(awaited, conversation, timeout_s)
            if command.action is Action.SKIP:
                check_foremost(self._kafka, said[0], offsets[0], key)
            self._done(said, offsets)

    def _places(
        self,
        conversation: UUID,
        queue: str | None,
        exits: ExitStack,
        state_of: Callable[[Follower], Partition] = Follower.catch_up,
    ) -> list[tuple[Queue, Follower, Endpoint]]:
        """The partitions and endpoints of a conversation's sides, in the states that `state_of` returns."""
        found: list[tuple[Queue, Follower, Endpoint]] = []
        unread: list[Exception] = []
        for each, partition in self.partitions(queue):
            with ExitStack() as unneeded:
                following = unneeded.enter_context(Follower(self._kafka, each, partition))
                try:
                    sides = [side.get(conversation.bytes) for side in state_of(following).sides]
                except UNREADABLE as error:
                    unread.append(error)
                    continue
                found += [(each, following, one) for one in sides if one is not None]
                if any(sides):
                    exits.push(unneeded.pop_all())
        if unread and not found:
            raise unread[0]
        return found

    def database_of(self, queue: Queue) -> str:
        """The database of a queue; for the transmission queue, which serves all databases, this object's database."""
        return self._catalog.database_of(queue.topic) or self._database

    def foreseen(self, following: Follower, *, own: bool = True) -> Partition:
        """The state including data that is not ingested yet. Such data waits while all handlers are busy.

        `own=False`: the queue is of another database, whose catalog judges its messages. Here none counts as rejected.
        """
        judge = CatalogJudge(self._catalog, self._validator, predicts=True) if own else None
        return following.fold_uncommitted(judge, kafka_time_ms(self._kafka)).state

    def _affected(
        self, action: Action, conversation: UUID, found: list[tuple[Queue, Follower, Endpoint]]
    ) -> list[Endpoint]:
        if not found:
            raise self.not_found(conversation)
        return affected_sides(action, [one for _, _, one in found])

    def sweep(
        self, wanted: Sweep, queue: str | None, timeout_s: float, elsewhere: Iterable[tuple[Queue, int]] = ()
    ) -> int:
        """Apply an action to all conversations that it concerns, partition by partition; returns their number.

        `elsewhere`: further partitions, of other databases. Writes half as many instructions at a time as a listener
        keeps. Raises OutcomeUnknown when an owner has not carried them out in time; the other partitions get their
        instructions first. Raises PartitionHalted or TopicMismatch for a partition that cannot be read, after the
        others, if nothing was found in those, or if the action concerns conversations `everywhere`.
        """
        self._check_open()
        deadline, found, key = time.monotonic() + timeout_s, set[bytes](), uuid4().bytes
        unread: list[Exception] = []
        late: list[OutcomeUnknown] = []
        for each, partition in (*self.partitions(queue), *elsewhere):
            database = self.database_of(each)
            with Follower(self._kafka, each, partition) as following:
                try:  # ahead: a handler may hold sides that are not in the journal yet
                    ahead = self.foreseen(following, own=database == self._database)
                except UNREADABLE as error:
                    unread.append(error)
                    continue
                present = {(one.role, one.conversation): one for one in (*ahead.live(), *following.catch_up().live())}
                sides = [one for one in present.values() if wanted.concerns(one)]
                found.update(one.conversation for one in sides)
                for at in range(0, len(sides), SWEEP_CONVERSATIONS):
                    part = sides[at : at + SWEEP_CONVERSATIONS]
                    ending = {(one.role, one.conversation) for one in part}
                    conversations = dict.fromkeys(one.conversation for one in part)
                    said = [Instruction(database, each.name, one, 0, wanted.action) for one in conversations]
                    offsets = self.write(*said, key=key)
                    try:
                        _wait_for_ends(following, ending, wanted.concerns, ahead.ingest_to, deadline)
                    except OutcomeUnknown as error:
                        late.append(error)
                        break
                    self._done(said, offsets)
        if late:
            raise late[0]
        report_unread(unread, found=bool(found) and not wanted.everywhere)
        return len(found)

    def not_found(self, conversation: UUID) -> DialogNotFound:
        """The error for a conversation that no queue has."""
        return DialogNotFound(
            f"no queue of database {self._database!r} has conversation {conversation}: it is over, or belongs to "
            "another database"
        )

    def _done(self, instructions: list[Instruction], offsets: list[int]) -> None:
        """Write DONE for each of these instructions that names no message.

        Otherwise a reader that starts before they expire would carry them out again, on a conversation that was resumed
        since.
        """
        places = zip(instructions, offsets, strict=True)
        said = [
            Instruction(*one[:3], place, Action.DONE, 0, one.action.value, one.role)
            for one, place in places
            if not one.first
        ]
        if not said:
            return
        try:
            self.write(*said)
        except KonverseError as error:  # the result is in the journal all the same
            log.warning(
                "cannot mark these instructions as done: %s. Readers that start within ten minutes may carry them out "
                "again: %s",
                listed(f"{one.description} of conversation {UUID(bytes=one.conversation)}" for one in said),
                error,
            )

    def write(self, *instructions: Instruction, key: bytes | None = None) -> list[int]:
        """Write instructions to their topic. Returns their offsets.

        Raises OutcomeUnknown when Kafka does not answer, TopicMismatch when the topic is unfit or refuses the records,
        KafkaUnavailable while an open transaction holds up the topic.

        `key` is the key of the records, the same for all instructions of a command. It distinguishes copies of an
        instruction, which retries of the producer may write, from the same instruction of another operator. Listeners
        log a command once.
        """
        topic = instruction_topic(self._settings.instance)
        ensure_topic(self._topics, topic)
        check_readable(self._kafka, topic)  # else no listener would see it
        producer = self._kafka.plain_producer(self._settings.append_timeout_s)
        records = [TopicRecord(encode(instruction), key) for instruction in instructions]
        answers = append(self._kafka, producer, topic, records, self._settings.append_timeout_s)
        written = [answer for answer in answers if isinstance(answer, Message)]
        if len(written) < len(answers):
            raise self._not_written(topic, answers)
        return [message.offset() or 0 for message in written]

    def _not_written(self, topic: str, answers: list[Message | KafkaError | None]) -> KonverseError:
        """The error for instructions of which Kafka has not acknowledged all."""
        missing = [answer for answer in answers if not isinstance(answer, Message)]
        errors = [answer for answer in missing if answer is not None]
        need = Need.topic("WRITE", topic)
        said = f"Kafka answered: {self._kafka.words(errors[0], need)}" if errors else "Kafka gave no answer"
        if len(missing) == len(answers) and all(one is not None and one.code() in REFUSALS for one in missing):
            return TopicMismatch(f"the instruction was not written to {topic}. {said}")
        return OutcomeUnknown(
            f"whether the instruction was written to {topic} is unknown: {said}. Give it again; it takes effect only "
            "once"
        )

    def parked(
        self, following: Follower, queue: Queue, partition: int, wanted: Callable[[Suspended], bool]
    ) -> Iterator[SuspendedGroup]:
        """The suspended groups of a partition, each with those of its conversations that are wanted."""
        groups: dict[bytes, SuspendedGroup] = {}
        sides = suspended_sides(following.catch_up())
        now_ms = kafka_time_ms(self._kafka) if sides else 0
        for one in sides:
            told = shown(queue, partition, one, now_ms)
            if wanted(told):
                group = groups.setdefault(one.group_id, SuspendedGroup(following, queue.name, [], {}))
                group.shown.append(told)
                group.firsts[one.role, one.conversation] = first_of(one)
        yield from groups.values()


def ensure_topic(topics: Topics, name: str) -> None:
    """Create the instruction topic, or check the settings of an existing one. Raises TopicMismatch."""
    if topics.partitions(name) is None:
        topics.ensure(name, 1, INSTRUCTION_CONFIG, may_grow=True)
        return
    with suppress(AccessDenied):  # operators and readers need no right to read the settings
        topics.check(name, 1, INSTRUCTION_CONFIG, may_grow=True)


def report_unread(unread: Iterable[Exception], *, found: bool) -> None:
    """Log the partitions that were not searched. Raises the first error if nothing was `found` in the others."""
    for problem in unread:
        if not found:
            raise problem
        log.warning("a partition was not searched: %s", problem)


def _wait_for_ends(
    following: Follower,
    wanted: set[tuple[Role, bytes]],
    concerns: Callable[[Endpoint], bool],
    seen_to: int,
    deadline: float,
) -> None:
    """Return when the journal shows that `concerns` no longer holds for any of these sides. Raises OutcomeUnknown.

    Until the journal has ingested data up to `seen_to`, a missing side may be one that it does not contain yet.
    """
    unseen = {side for side in wanted if following.state.endpoint(*side) is None}

    def poll() -> list[tuple[Role, bytes]]:
        state = following.catch_up()
        if state.ingest_to >= seen_to:
            unseen.clear()
        unseen.difference_update([side for side in unseen if state.endpoint(*side) is not None])
        sides = ((side, state.endpoint(*side)) for side in wanted)
        return [side for side, one in sides if (side in unseen if one is None else concerns(one))]

    until_none(poll, deadline, lambda left: late_sweep(len(left), unowned=following.head.clean))


def shown(queue: Queue, partition: int, endpoint: Endpoint, now_ms: int) -> Suspended:
    """Describe a suspended side; `now_ms` is Kafka's time."""
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


class SuspendedGroup(NamedTuple):
    """A suspended conversation group: its conversations are resumed together."""

    following: Follower
    queue: str
    shown: list[Suspended]
    firsts: dict[tuple[Role, bytes], int]
    """Suspended side -> identifier of its first waiting message."""

    def instruction(self, database: str) -> Instruction:
        """An instruction for one conversation of the group, which resumes all of it.

        Instructions for the others would be kept by listeners, and might be carried out after a later failure.
        """
        (_, conversation), first = next(iter(self.firsts.items()))
        return Instruction(database, self.queue, conversation, first, Action.RESUME)

    def left(self) -> int:
        """Number of sides that are still suspended on the same message, in the journal as far as it has been read."""
        state = self.following.state
        sides = ((state.endpoint(*side), first) for side, first in self.firsts.items())
        return sum(one is not None and awaits_operator(one) and first_of(one) == first for one, first in sides)


def wait_until_resumed(groups: Iterable[SuspendedGroup], deadline: float) -> None:
    """Return when none of these groups is suspended on the same message any more. Raises OutcomeUnknown."""
    left = list(groups)

    def poll() -> list[SuspendedGroup]:
        for following in dict.fromkeys(group.following for group in left):
            following.catch_up()
        left[:] = [group for group in left if group.left()]
        return left

    def late(_: object) -> OutcomeUnknown:
        nobody = all(group.following.head.clean for group in left)
        return late_sweep(sum(group.left() for group in left), unowned=nobody)

    until_none(poll, deadline, late)
