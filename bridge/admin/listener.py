"""Carries out the instructions of operators in the process that owns the partition (`bridge.admin.instructions`)."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from konverse.bridge.kafka.clients import Kafka, LogTruncated
from konverse.bridge.kafka.clock import kafka_time_ms
from konverse.bridge.kafka.log_reader import LogReader
from konverse.bridge.kafka.open_transactions import OpenTransactions
from konverse.bridge.kafka.topic_watch import WATCH_EVERY_S
from konverse.bridge.kafka.topics import Topics
from konverse.bridge.reader.operations import awaits_operator, first_of
from konverse.bridge.reader.readers import Readers
from konverse.bridge.runtime.log_throttle import LogThrottle
from konverse.bridge.runtime.threads import AGAIN_S, EXPECTED_ERRORS, in_background
from konverse.dialog.owner.owner import Owner
from konverse.dialog.state.endpoint import Endpoint
from konverse.dialog.state.transitions import SENDING, State
from konverse.schemas.counting import counted
from konverse.schemas.errors import DialogNotFound, InvalidState, KonverseError, MalformedRecord, TopicMismatch
from konverse.schemas.identifiers import Role, instruction_topic
from konverse.schemas.limits import INSTRUCTION_ENTRIES_MAX, INSTRUCTION_MS_MAX
from konverse.schemas.wire.instruction import Action, Instruction, decode

from .instructions import ensure_topic

if TYPE_CHECKING:
    from konverse.bridge.reader.reader import Reader

log: Final = logging.getLogger("konverse.operator")

LEAVE_S: Final = 5.0
LOOK_EVERY_S: Final = 0.5


class InstructionListener:
    """Reads the instruction topic in a thread of its own, for the readers of one broker.

    An instruction is valid for ten minutes, by Kafka's clock, never by this machine's. If its conversation is not owned
    here, the instruction is kept for that time, because the partition may come here. An instruction that was carried
    out is kept until its result is in the journal, because the partition may be lost before that and come back. When
    the operator has seen the result, a DONE record in the topic ends the instruction for all listeners, including those
    that start later.
    RESUME and SKIP name the first waiting message, so they are not carried out again after another process has done so.
    One exception: a conversation that was resumed and suspended again on the same message may be resumed twice.
    """

    def __init__(self, kafka: Kafka, database: str, readers: Readers) -> None:
        self._kafka = kafka
        self._database = database
        self._readers = readers
        self._topic = instruction_topic(kafka.settings.instance)
        self._topics = Topics(kafka)
        self._topic_id = b""
        """Kafka's id of the topic at the last look; empty until then."""
        self._look_at = 0.0
        """When to check next, by `time.monotonic`, whether the topic is still the same one."""
        self._prepared = False
        """The topic exists, as far as is known: no call has failed since it was ensured."""
        self._closed = threading.Event()
        self._kept: dict[int, tuple[float, Instruction]] = {}
        """Offset in the topic -> time until which the instruction is valid, by Kafka's clock, and the instruction."""
        self._commands: dict[CommandId, None] = {}
        """The latest commands. A command has an instruction for each side of the conversation that it affects."""
        self._unreported: dict[int, CommandId] = {}
        """Offset of a command's first instruction -> command. The process that carries it out logs the command."""
        self._followed: dict[int, Followed] = {}
        """Offset -> instruction that was carried out and whose result is not known to be in the journal yet."""
        self._position: int | None = None
        self._cut = False
        """At the last look the log ended before the position. A new leader may report that for a moment."""
        self._now_ms = 0
        """Kafka's time at the last read of the topic."""
        self._away = LogThrottle()
        self._unfit = LogThrottle()
        self._crowded = LogThrottle()
        self._transactions = OpenTransactions(self._kafka, self._topic)
        self._thread = in_background("konverse-operator", self._run)

    def close(self) -> None:
        """Stop the thread and wait up to LEAVE_S for its end: a request to an unreachable Kafka can take a minute."""
        self._closed.set()
        self._thread.join(LEAVE_S)

    def _run(self) -> None:
        reader: LogReader | None = None
        try:
            while not self._closed.is_set():
                try:
                    if self._is_replaced() and reader is not None:
                        reader.close()
                        reader = None
                    if reader is None:
                        reader = LogReader(self._kafka)
                    self._read(reader)
                    self._transactions.poll([0])
                    self._away.over()
                except (*EXPECTED_ERRORS, LogTruncated) as error:
                    self._prepared, self._look_at = False, 0.0
                    if isinstance(error, LogTruncated):
                        self._position = None
                    if self._away.due():
                        log.warning(
                            "operator instructions cannot be read from topic %s, retrying: %s", self._topic, error
                        )
                    self._closed.wait(AGAIN_S)
                self._obey()
                self._closed.wait(LOOK_EVERY_S)
        finally:
            if reader is not None:
                reader.close()

    def _is_replaced(self) -> bool:
        """Every WATCH_EVERY_S: whether the topic was deleted and created again. Creates it if it is missing."""
        if time.monotonic() < self._look_at:
            return False
        self._look_at = time.monotonic() + WATCH_EVERY_S
        if not self._prepared:
            self._prepare()
        try:
            identifier = self._topics.topic_id(self._topic)
        except TopicMismatch:  # it was deleted
            self._prepare()
            identifier = self._topics.topic_id(self._topic)
        known, self._topic_id = self._topic_id, identifier
        if known in (b"", identifier):
            return False
        log.warning("topic %s was deleted and created again: its instructions are read from the beginning", self._topic)
        self._begin_anew()
        return True

    def _prepare(self) -> None:
        """Create the topic if it does not exist. Log a setting that does not fit, and read the topic nevertheless."""
        try:
            ensure_topic(self._topics, self._topic)
        except TopicMismatch as error:
            if self._unfit.due(str(error)):
                log.warning("%s", error)
        self._prepared = True

    def _begin_anew(self) -> None:
        """Forget all offsets: other records have them now."""
        self._position = None
        self._commands.clear()
        for place in list(self._kept):
            self._forget(place)

    def _read(self, reader: LogReader) -> None:
        self._now_ms = kafka_time_ms(self._kafka)
        if self._position is None:
            self._position = reader.offset_at(self._topic, 0, self._now_ms - INSTRUCTION_MS_MAX)
        _, end = reader.ends(self._topic, 0)
        known, self._cut = self._cut, end < self._position
        if self._cut and known:
            log.warning(
                "topic %s ends at %d although it was read to %d: the instructions of the last ten minutes are read "
                "again",
                self._topic,
                end,
                self._position,
            )
            self._begin_anew()
            return
        for messages, position in reader.read(self._topic, 0, self._position, end):
            done: list[Instruction] = []
            for message in messages:
                with suppress(MalformedRecord):  # written by a foreign client
                    instruction = decode(message.value() or b"")
                    if instruction.action is Action.DONE:
                        done.append(instruction)
                    elif instruction.database == self._database:
                        self._keep(message.offset() or 0, message.timestamp()[1], instruction, message.key() or b"")
            self._done(*done)
            self._position = position
            if len(self._kept) > INSTRUCTION_ENTRIES_MAX:
                self._obey()
                self._make_room()

    def _make_room(self) -> None:
        """Forget the oldest instructions: first those carried out, then those for partitions owned elsewhere."""
        late = 0
        while len(self._kept) > INSTRUCTION_ENTRIES_MAX:
            place = next(iter(self._followed), None)
            late += place is None
            self._forget(next(iter(self._kept)) if place is None else place)
        if late and self._crowded.due():
            log.warning(
                "%s of operators were dropped: more than %d waited for partitions that no reader here owns. Repeat the "
                "command",
                counted(late, "instruction"),
                INSTRUCTION_ENTRIES_MAX,
            )

    def _keep(self, place: int, at_ms: int, instruction: Instruction, key: bytes) -> None:
        """Keep an instruction. Those of one command share a `key`; one without a key is a command of its own."""
        self._kept[place] = (at_ms + INSTRUCTION_MS_MAX, instruction)
        command = (key or b"%d" % place, instruction.conversation, instruction.action)
        if command not in self._commands:
            self._commands[command] = None
            self._unreported[place] = command
        if len(self._commands) > INSTRUCTION_ENTRIES_MAX:
            del self._commands[next(iter(self._commands))]

    def _done(self, *done: Instruction) -> None:
        """Forget instructions that were carried out, and their copies, which retries of the producer have written."""
        if not done:
            return
        places: dict[tuple[str, str, bytes, Role | None, str], int] = {}
        for one in done:
            about = (*one[:3], one.role, one.description)
            places[about] = max(one.first, places.get(about, -1))
        for place, (_, one) in list(self._kept.items()):
            if place <= places.get((*one[:3], one.role, one.action.value), -1):
                self._forget(place)

    def _obey(self) -> None:
        for place, (until_ms, instruction) in list(self._kept.items()):
            followed = self._followed.get(place)
            counts = None if followed is None else followed.counts(instruction)
            if counts is None:
                following = (follow(reader, instruction) for reader in self._readers.open())
                followed = next(filter(None, following), None)
                self._followed.pop(place, None)
                if followed is not None:
                    self._followed[place] = followed
                    if followed.sides:
                        self._report(place)
            if counts or self._now_ms > until_ms:
                self._forget(place)
        for reader in self._readers.open() if self._kept else ():
            with suppress(*EXPECTED_ERRORS):  # the application's own call raises the same error
                reader.keep_up()  # commits for a reader whose only thread is in a handler

    def _report(self, place: int) -> None:
        command = self._unreported.pop(place, None)
        if command is not None:
            log.info("conversation %s: %s, requested by an operator", UUID(bytes=command[1]), command[2])

    def _forget(self, place: int) -> None:
        self._kept.pop(place, None)
        self._unreported.pop(place, None)
        self._followed.pop(place, None)


CommandId = tuple[bytes, bytes, Action]
"""Key of the command's records, conversation, action."""


class Followed(NamedTuple):
    """An instruction that was carried out: the reader and the sides of the conversation."""

    reader: Reader
    sides: list[tuple[Owner, Endpoint]]

    def counts(self, instruction: Instruction) -> bool | None:
        """Whether the result is in the journal; None when the partition was lost before that was known."""
        if self.reader.closed:
            return None
        return self.reader.operations.counts(self.sides, partial(_has_effect, instruction))


def _has_effect(instruction: Instruction, one: Endpoint) -> bool:
    """Whether the side is still in the state that the operator saw, so that the instruction has an effect."""
    match instruction.action:
        case Action.CLEANUP:
            return True
        case Action.FAIL:
            return one.committed in SENDING
        case Action.END:
            return one.committed is not State.DISCONNECTED_OUTBOUND
        case Action.SUSPEND:
            return not one.suspended and one.committed is not State.DISCONNECTED_OUTBOUND
        case Action.RESUME:
            return awaits_operator(one) and first_of(one) == instruction.first
        case _:
            return (one.waits or awaits_operator(one)) and first_of(one) == instruction.first


def follow(reader: Reader, instruction: Instruction) -> Followed | None:
    """Carry out an instruction if its side lives in a partition of this reader; else return None.

    A Followed without sides means that the instruction no longer applies, because the conversation has changed.
    """
    if reader.closed or reader.queue.name != instruction.queue:
        return None
    conversation = UUID(bytes=instruction.conversation)
    try:
        sides = reader.operations.sides(conversation, instruction.role)
        if not _do(reader, conversation, instruction):
            return None
    except DialogNotFound:  # kept, because its partition may come here
        return None
    except InvalidState as error:  # the conversation has changed since the operator saw it
        log.warning("an operator's %s of conversation %s was rejected: %s", instruction.action, conversation, error)
        return Followed(reader, [])
    except KonverseError as error:  # the reader was closed
        log.debug("an operator's %s of conversation %s waits: %s", instruction.action, conversation, error)
        return None
    return Followed(reader, sides)


def _do(reader: Reader, conversation: UUID, instruction: Instruction) -> bool:
    role = instruction.role
    if instruction.action in (Action.RESUME, Action.SKIP):  # only for the message that the operator saw
        sides = (side for _, side in reader.operations.sides(conversation, role))
        if not any(_has_effect(instruction, side) for side in sides):
            return False
    match instruction.action:
        case Action.CLEANUP:
            reader.operations.end(conversation, cleanup=True)
        case Action.FAIL:
            reader.operations.fail(conversation)
        case Action.SUSPEND:
            reader.operations.suspend(conversation, reason=instruction.description, role=role)
        case Action.RESUME:
            reader.operations.resume(conversation, role=role)
        case Action.SKIP:
            reader.operations.skip(conversation, role=role)
        case _:
            error, description = instruction.error, instruction.description
            reader.operations.end(conversation, error=error, description=description, role=role)
    return True
