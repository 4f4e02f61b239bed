"""Commands of operators, from any process: list suspended conversations, suspend, resume, skip and end them.

Only the owner of a partition can decide there. A command is written to the instruction topic of the instance, which
every process with a reader reads (`bridge.admin.listener`). The owner commits the command, and the caller waits until
it reads that commit in the journal. `resume_all` resumes all suspended conversations of a queue or database, once the
reason for the suspensions is mended.
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
"""Instructions written at a time by a command for many conversations. A listener keeps twice as many."""
OBEYED_S: Final = 15.0
"""Default time that an operator waits for the owner's commit."""
INSTRUCTION_CONFIG: Final = {
    "cleanup.policy": "delete",
    "retention.ms": "3600000",  # longer than an instruction counts
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
    """Type of the first waiting message; empty when none waits, as when another conversation of the group failed."""
    reason: str
    """The last error of the handler, or the operator's reason."""
    age_s: float
    """Seconds since the suspension, by Kafka's time."""


class _Wish(NamedTuple):
    """An action and its arguments."""

    action: Action
    error: int = 0
    description: str = ""


class Instructing:
    """The part of a broker for commands of operators."""

    settings: Settings
    database: str
    catalog: Catalog
    _kafka: Kafka
    _topics: Topics
    _validator: Validator
    _check_open: Callable[[], None]

    def suspended(self, queue: str | None = None) -> Iterator[list[Suspended]]:
        """Suspended conversations of a queue, or of the whole database: yields a list for each partition.

        Read from the logs; claims nothing and needs no Redis. Raises QueueNotFound.
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
        """Deliver no more messages of a conversation and its group, until it is resumed, skipped or ended.

        Possible at any time; if a transaction has the group, the suspension follows it. Returns when the owner of the
        partition, in whatever process, has committed the suspension. `reason` is shown by `suspended`. `queue` limits
        the search to one queue; otherwise all queues of the database are searched, and both sides are suspended if
        both live there. Raises DialogNotFound, InvalidState when it is suspended already or has ended, and
        OutcomeUnknown when no owner has committed it within `timeout` seconds: the command still counts for ten
        minutes.
        """
        self._instruct(conversation, queue, _Wish(Action.SUSPEND, 0, reason_of(reason)), timeout)

    @checked
    def resume(self, conversation: UUID, *, queue: str | None = None, timeout: Seconds = OBEYED_S) -> None:
        """Deliver the messages of a suspended conversation again, with five new attempts.

        Arguments and errors as for `suspend`; InvalidState when it is not suspended.
        """
        self._instruct(conversation, queue, _Wish(Action.RESUME), timeout)

    @checked
    def skip(self, conversation: UUID, *, queue: str | None = None, timeout: Seconds = OBEYED_S) -> None:
        """Drop the first waiting message of a conversation, and resume the conversation.

        Arguments and errors as for `suspend`. Raises InvalidState when nothing waits, when the first waiting message is
        EndDialog or Error, and when a handler received the message in the meantime: nothing is dropped then.
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
        """End a conversation; `error` > 0 means WITH ERROR. Arguments and errors as for `suspend`.

        If both sides live in the database, the suspended one is ended, or both when neither is suspended; `queue`
        chooses one. `cleanup` means WITH CLEANUP: each side in the database is removed at once, with its waiting
        messages and its undelivered outputs, and the peer is not told (behaviours 120, 121). Use it only when one side
        is gone for good.
        Raises InvalidError for a code without a description, or the reverse (112). Within the process that began a
        dialog, use `Dialog.end`.
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
        """Fail every open conversation of the database, or of one queue: Error -9719 on both sides.

        ALTER DATABASE … SET ERROR_BROKER_CONVERSATIONS (behaviour 136), for a database whose logs were restored from a
        backup. Each side must still be ended, as after any Error. A conversation that a handler has fails after that
        transaction. Returns the number of open conversations. Raises QueueNotFound, and OutcomeUnknown as `resume`.
        """
        return self._sweep(Action.FAIL, queue, lambda one: one.state in SENDING, timeout)

    def _partitions(self, queue: str | None) -> Iterator[tuple[Queue, int]]:
        return partitions_of(self.catalog.all(Queue) if queue is None else [self.catalog.get(Queue, queue)])

    def _instruct(self, conversation: UUID, queue: str | None, wish: _Wish, timeout_s: float) -> None:
        self._check_open()
        with ExitStack() as exits:
            found, ahead = self._places(conversation, queue, exits), False
            try:  # an impossible command is refused before an instruction is written
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
        """The partitions and endpoints of a conversation's sides, in the states that `look` returns."""
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
        """The state including data that is not ingested yet: all handlers of the queue may be busy."""
        judge = CatalogJudge(self.catalog, self._validator, logging.DEBUG)  # only predicts what the owner will reject
        return following.look_ahead(judge, kafka_time_ms(self._kafka)).state

    def _meant(
        self, action: Action, conversation: UUID, found: list[tuple[Queue, Following, Endpoint]]
    ) -> list[Endpoint]:
        if not found:
            raise self._not_found(conversation)
        return meant(action, [one for _, _, one in found])

    def _sweep(self, action: Action, queue: str | None, meant: Callable[[Endpoint], bool], timeout_s: float) -> int:
        """Apply an action to all conversations for which `meant` holds, partition by partition; returns their number.

        Writes at most as many instructions at a time as a listener keeps.
        """
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
            with suppress(KafkaException):  # answers are missing then, which is handled below
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
    """Create the instruction topic if it does not exist."""
    if topics.partitions(name) is None:
        topics.ensure(name, 1, INSTRUCTION_CONFIG)


def suspended_sides(state: Partition) -> list[Endpoint]:
    """The suspended sides of a partition."""
    troubled = (state.table[index] for index in state.attempts.troubled)
    return [one for one in troubled if one is not None and waits(one)]


def _wait_for_ends(
    following: Following, wanted: set[tuple[Role, bytes]], meant: Callable[[Endpoint], bool], deadline: float
) -> None:
    """Return when `meant` no longer holds for any of these sides, by the journal. Raises OutcomeUnknown."""

    def look() -> list[Endpoint]:
        state = following.catch_up()
        sides = (state.endpoint(role, conversation) for role, conversation in wanted)
        return [one for one in sides if one is not None and meant(one)]

    until_none(look, deadline, lambda left: late_sweep(len(left), unowned=following.head.clean))


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


class Parked(NamedTuple):
    """A suspended conversation group: its conversations are resumed together."""

    following: Following
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
        """Number of sides that are still suspended on the same message, by the part of the journal read so far."""
        state = self.following.state
        sides = ((state.endpoint(*side), first) for side, first in self.firsts.items())
        return sum(one is not None and waits(one) and first_of(one) == first for one, first in sides)


class Resuming(Instructing):
    """The part of a broker that resumes many conversations at once."""

    @checked
    def resume_all(
        self,
        *,
        reason: str | None = None,
        older_than: Seconds | None = None,
        queue: str | None = None,
        timeout: Seconds = OBEYED_S,
    ) -> list[Suspended]:
        """Resume the suspended conversations of a queue, or of the database; returns them.

        Selects conversations whose reason contains the text `reason`, ignoring case, and that have been suspended for
        at least `older_than` seconds by Kafka's time. `older_than=0` takes all. Conversations that failed for another
        reason than the mended one would fail again. Each is resumed as by `resume`; within a batch, an owner that does
        not answer does not delay the others. Raises InvalidSettings when neither argument is given, QueueNotFound, and
        OutcomeUnknown when some conversations are still suspended after `timeout` seconds: for these the command still
        counts for ten minutes.
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
    """Return when none of these groups is suspended on the same message any more. Raises OutcomeUnknown."""
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
