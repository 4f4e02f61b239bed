"""`broker.operations`: commands of operators, which work from any process."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from uuid import UUID, uuid4

from konverse.bridge.client.connection import Connection
from konverse.bridge.client.transmission import find_queue
from konverse.bridge.kafka.clock import kafka_time_ms
from konverse.bridge.owner.follower import UNREADABLE, Follower
from konverse.bridge.reader.drain_check import DrainCheck
from konverse.bridge.reader.operations import check_cleanup, suspended_sides
from konverse.bridge.reader.session_timeout import SessionTimeoutCheck
from konverse.bridge.runtime.arguments import Seconds, checked
from konverse.bridge.verifier.reading import Verification
from konverse.bridge.views.lag import PartitionLag, lag_of
from konverse.bridge.views.membership import ConsumerGroups
from konverse.bridge.views.partitions import StateReader, ViewReader
from konverse.bridge.views.reading_state import ReadingState, reading_states
from konverse.bridge.views.view_result import View
from konverse.dialog.owner.commands import reason_of
from konverse.dialog.state.endpoint import Endpoint
from konverse.dialog.state.transitions import SENDING
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.errors import InvalidSettings, InvalidState
from konverse.schemas.system_messages import check_error
from konverse.schemas.wire.instruction import Action

from .instructions import (
    COMMIT_WAIT_S,
    SWEEP_CONVERSATIONS,
    Command,
    Instructions,
    Suspended,
    SuspendedGroup,
    Sweep,
    report_unread,
    shown,
    wait_until_resumed,
)
from .leaks import SILENT_S, ConversationSide, Leaked, Leaks, Sides, key_of, leaks_of
from .loss import Loss, LossAcceptance


class Operations:
    """Operators' commands for the conversations and partitions of one database. `broker.operations` is an instance.

    Lists are read from the logs and claim nothing. Commands are written to the instruction topic; the owner of the
    partition, in whatever process, carries them out, and a command returns when the journal shows the result.
    """

    def __init__(self, connection: Connection) -> None:
        self._check_open = connection.check_open
        self._catalog = connection.catalog
        self._validator = connection.validator
        self._topics = connection.topics
        self._settings = connection.settings
        self._database = connection.database
        self._kafka = connection.kafka
        self._instructions = Instructions(connection)
        self._losses = LossAcceptance(connection, self._instructions)
        self.session_timeout_check = SessionTimeoutCheck(connection.topics, connection.settings.group_protocol)
        """Runs with the first reader of a consumer group."""

    def suspended(self, queue: str | None = None) -> Iterator[list[Suspended]]:
        """Suspended conversations of a queue, or of the whole database: yields a list for each partition.

        Read from the logs; claims nothing and needs no Redis. Raises QueueNotFound. A partition that cannot be read is
        logged; if the others have no suspended conversation, its PartitionHalted or TopicMismatch is raised at the end.
        """
        self._check_open()
        unread: list[Exception] = []
        found = False
        for each, partition in self._instructions.partitions(queue):
            with Follower(self._kafka, each, partition) as following:
                try:
                    sides = suspended_sides(following.catch_up())
                except UNREADABLE as error:
                    unread.append(error)
                    continue
                found = found or bool(sides)
                now_ms = kafka_time_ms(self._kafka) if sides else 0
                yield [shown(each, partition, one, now_ms) for one in sides]
        report_unread(unread, found=found)

    @checked
    def suspend(
        self, conversation: UUID, *, reason: str = "", queue: str | None = None, timeout: Seconds = COMMIT_WAIT_S
    ) -> None:
        """Deliver no more messages of a conversation and its group, until it is resumed or skipped.

        Possible at any time; if a transaction holds the group, the suspension follows it. Returns when the owner of the
        partition, in whatever process, has committed the suspension. `suspended` shows `reason`. `queue` limits the
        search to one queue; otherwise all queues of the database are searched, and both sides are suspended if both
        live there. Raises DialogNotFound, InvalidState when the conversation is already suspended or has ended, and
        OutcomeUnknown when no owner has committed the suspension within `timeout` seconds: the command stays valid for
        ten minutes.
        """
        self._instructions.instruct(conversation, queue, Command(Action.SUSPEND, 0, reason_of(reason)), timeout)

    @checked
    def resume(self, conversation: UUID, *, queue: str | None = None, timeout: Seconds = COMMIT_WAIT_S) -> None:
        """Deliver the messages of a suspended conversation again, with five new attempts.

        Arguments and errors as for `suspend`; InvalidState when it is not suspended.
        """
        self._instructions.instruct(conversation, queue, Command(Action.RESUME), timeout)

    @checked
    def resume_all(
        self,
        *,
        reason: str | None = None,
        older_than: Seconds | None = None,
        queue: str | None = None,
        timeout: Seconds = COMMIT_WAIT_S,
    ) -> list[Suspended]:
        """Resume the suspended conversations of a queue, or of the database; returns them.

        Selects conversations whose reason contains the text `reason`, ignoring case, and that have been suspended for
        at least `older_than` seconds by Kafka's time. `older_than=0` selects all. A conversation whose cause of failure
        was not fixed would fail again. Each is resumed as by `resume`; within a batch, an owner that does not answer
        does not delay the others. Raises InvalidSettings when neither argument is given, QueueNotFound, and
        OutcomeUnknown when some conversations of a batch are still suspended after `timeout` seconds: for these the
        command stays valid for ten minutes, and later batches are not resumed. Partitions that cannot be read are
        treated as by `suspended`.
        """
        self._check_open()
        if reason is None and older_than is None:
            raise InvalidSettings(
                "resume_all needs a selection of conversations: `reason`, a text that their last error contains "
                "(`konverse suspended` shows it), or `older_than`, in seconds; older_than=0 selects all"
            )

        def wanted(one: Suspended) -> bool:
            return (reason or "").casefold() in one.reason.casefold() and one.age_s >= (older_than or 0)

        with ExitStack() as exits:
            found: list[SuspendedGroup] = []
            unread: list[Exception] = []
            for each, partition in self._instructions.partitions(queue):
                with ExitStack() as unneeded:
                    following = unneeded.enter_context(Follower(self._kafka, each, partition))
                    try:
                        groups = [*self._instructions.parked(following, each, partition, wanted)]
                    except UNREADABLE as error:
                        unread.append(error)
                        continue
                    if groups:
                        found += groups
                        exits.push(unneeded.pop_all())
            deadline, key = time.monotonic() + timeout, uuid4().bytes
            for at in range(0, len(found), SWEEP_CONVERSATIONS):
                part = found[at : at + SWEEP_CONVERSATIONS]
                self._instructions.write(*(group.instruction(self._database) for group in part), key=key)
                wait_until_resumed(part, deadline)
        report_unread(unread, found=bool(found))
        return [one for group in found for one in group.shown]

    @checked
    def skip(self, conversation: UUID, *, queue: str | None = None, timeout: Seconds = COMMIT_WAIT_S) -> None:
        """Drop the first waiting message of a conversation, and resume the conversation.

        Arguments and errors as for `suspend`. Raises InvalidState when nothing waits, when messages wait on both sides
        and `queue` does not choose one, when the first waiting message is EndDialog or Error, and when a handler
        received the message in the meantime: nothing is dropped then. If several operators skip the same message at
        once, it is dropped once, and all but one of them get InvalidState.
        """
        self._instructions.instruct(conversation, queue, Command(Action.SKIP), timeout)

    @checked
    def end(  # noqa: PLR0913  # the clauses of END CONVERSATION, and where to look for it
        self,
        conversation: UUID,
        *,
        error: int | None = 0,
        description: str | None = "",
        cleanup: bool = False,
        queue: str | None = None,
        timeout: Seconds = COMMIT_WAIT_S,
    ) -> None:
        """End a conversation; `error` > 0 means WITH ERROR. Arguments and errors as for `suspend`.

        If both sides live in the database, the suspended one is ended, or both when neither is suspended; `queue`
        chooses one. `cleanup` means WITH CLEANUP: each side in the database is removed at once, with its waiting
        messages and its undelivered outputs, without notifying the peer (behaviours 120, 121). Use it only when one
        side is gone for good. A side in another database is ended by a broker of that database.
        Raises InvalidError for a code without a description, or the reverse (112). Within the process that began a
        dialog, use `Dialog.end`.
        """
        error, description = check_error(error, description)
        check_cleanup(error, cleanup=cleanup)
        if cleanup:
            if not self._instructions.sweep(Sweep(Action.CLEANUP, lambda one: one.id == conversation), queue, timeout):
                raise self._instructions.not_found(conversation)
            return
        self._instructions.instruct(conversation, queue, Command(Action.END, error, description), timeout)

    @checked
    def error_broker_conversations(self, *, queue: str | None = None, timeout: Seconds = COMMIT_WAIT_S) -> int:
        """Fail every open conversation of the database, or of one queue: Error -9719 on both sides.

        ALTER DATABASE … SET ERROR_BROKER_CONVERSATIONS (behaviour 136), for a database whose logs were restored from a
        backup. Each side must still be ended, as after any Error. A conversation that a handler holds fails after the
        handler's transaction. Returns the number of open conversations. Raises QueueNotFound, OutcomeUnknown as
        `resume` does, and, after all other partitions, PartitionHalted or TopicMismatch for one that cannot be read.
        """
        failing = Sweep(Action.FAIL, lambda one: one.state in SENDING, everywhere=True)
        return self._instructions.sweep(failing, queue, timeout)

    @checked
    def conversations(self, queue: str | None = None) -> View[ConversationSide]:
        """Each side of each conversation of a queue, or of the whole database.

        Folded from the logs, as in `views`; claims nothing and needs no Redis. Raises QueueNotFound.
        """
        self._check_open()
        only = self._named(queue)
        return self._sides(self._catalog.all(Queue) if only is None else [only]).all(only)

    @checked
    def leaked(self, *, older_than: Seconds = SILENT_S, queue: str | None = None) -> View[Leaked]:
        """The leaked sides of a queue, or of the whole database, each with its cause and remedy.

        Leaked means: an application has forgotten the side, and its conversation had no activity for `older_than`
        seconds, by Kafka's time. Reads all queues of the database, because a side is judged together with its peer, and
        partitions of other databases in which peers live.
        For suspects it also reads the records of the last `older_than` seconds. Raises QueueNotFound, KafkaUnavailable,
        and BadInput when `older_than` is longer than a queue keeps its records.
        """
        self._check_open()
        only = self._named(queue)
        return self._leaked(self._sides(self._catalog.all(Queue)), older_than, only)

    @checked
    def end_leaked(self, leaked: Leaks, *, timeout: Seconds = COMMIT_WAIT_S) -> list[UUID]:
        """End conversations returned by `leaked`, WITH CLEANUP: both sides are removed, with all waiting messages.

        They are judged again first; a conversation that had activity since then is left alone. The owners of the
        partitions do the work, as with `end`. Returns the conversations that were ended. Raises BadInput for anything
        but results of `leaked`, OutcomeUnknown when an owner has not committed the removal within `timeout` seconds.
        """
        self._check_open()
        wanted = leaks_of(leaked)
        if not wanted:
            return []
        sides = self._sides(self._catalog.all(Queue))
        still = {key_of(one) for one in self._leaked(sides, min(one.silent_s for one in wanted))}
        changed = {one.conversation for one in wanted if key_of(one) not in still}
        ending = {one.conversation.bytes for one in wanted if one.conversation not in changed}
        ended = dict[bytes, None]()

        def concerns(one: Endpoint) -> bool:
            if one.conversation in ending:
                ended[one.conversation] = None
            return one.conversation in ending

        self._instructions.sweep(Sweep(Action.CLEANUP, concerns), None, timeout, sides.elsewhere(ending))
        return [UUID(bytes=conversation) for conversation in ended]

    @checked
    def lost(self, queue: str, partition: int) -> Loss | None:
        """The loss that halts a partition: deleted data that its journal needs. None when nothing has to be given up.

        Reads only. Raises QueueNotFound, BadInput for a partition that the queue does not have, TopicMismatch,
        PartitionHalted when more than data is missing, KafkaUnavailable.
        """
        self._check_open()
        return self._losses.loss_of(self._losses.queue(queue, partition), partition)

    @checked
    def accept_loss(self, queue: str, partition: int) -> Loss:
        """Give up the loss that `lost` returns, so that the partition can continue. Returns the loss.

        A COMMIT with LOST is written, and every conversation of the partition gets Error -9719 on both sides. Where the
        partition has no side left, the owner of the far side's partition raises the Error there, now or when a reader
        runs within ten minutes. If a call dies half-way, repeat it.
        Raises the errors of `lost`, and InvalidState when nothing has to be given up or a reader claims the partition
        meanwhile.
        """
        self._check_open()
        found = self._losses.queue(queue, partition)
        loss = self._losses.loss_of(found, partition)
        if loss is None:
            raise InvalidState(
                f"partition {partition} of queue {queue!r} has lost nothing that it needs; start a reader"
            )
        self._losses.fail_peers(found, loss)
        self._losses.give_up(found, partition)
        return loss

    @checked
    def reading_states(self, queue: str) -> Iterator[ReadingState]:
        """For each partition of a queue: whether it has a reader, and how much data waits. Raises QueueNotFound."""
        self._check_open()
        return reading_states(self._kafka, self._catalog.get(Queue, queue))

    @checked
    def lag(self, queue: str | None = None) -> Iterator[PartitionLag]:
        """The backlog of each partition of a queue, or of all queues of the database and the transmission queue.

        Folded from the logs; claims nothing and needs no Redis. Raises QueueNotFound, KafkaUnavailable.
        """
        self._check_open()
        only, shared = self._named(queue), None if queue is not None else self.transmission_queue()
        queues = [*self._catalog.all(Queue), *filter(None, [shared])] if only is None else [only]
        groups = ConsumerGroups(self._kafka)
        for each in queues:
            yield from lag_of(self._kafka, each, groups)

    def view_reader(self) -> ViewReader:
        """A reader of the views in Redis that folds the logs where Redis is behind. The caller closes it."""
        self._check_open()
        return ViewReader(self._kafka)

    @checked
    def draining(self, queues: Sequence[str]) -> DrainCheck:
        """A check whether these queues are drained; queues that are OFF are left out. The caller closes it."""
        self._check_open()
        known = [self._catalog.get(Queue, name) for name in queues]
        return DrainCheck(self._kafka, [queue for queue in known if queue.status])

    @checked
    def verification(self, queues: Sequence[Queue], since_ms: int | None = None) -> Verification:
        """A verification of the logs of these queues up to their present ends; call its `run`."""
        self._check_open()
        return Verification(self._kafka, queues, since_ms)

    @checked
    def session_timeout_s(self) -> float | None:
        """Seconds after which Kafka reassigns the partitions of a dead reader; None when Kafka does not say."""
        self._check_open()
        return self._topics.session_timeout_s()

    def transmission_queue(self) -> Queue | None:
        """The transmission queue of the instance; None before the first client transaction."""
        self._check_open()
        return find_queue(self._kafka, self._settings.instance)

    def _named(self, queue: str | None) -> Queue | None:
        return None if queue is None else self._catalog.get(Queue, queue)

    def _sides(self, queues: list[Queue]) -> Sides:
        with closing(StateReader(self._kafka, self._catalog, self._validator, None)) as looking:
            return Sides(looking, queues, self._catalog.queues())

    def _leaked(self, sides: Sides, older_than_s: float, queue: Queue | None = None) -> View[Leaked]:
        return sides.leaked(self._kafka, kafka_time_ms(self._kafka), older_than_s, queue)
