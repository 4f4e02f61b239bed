"""Lets a halted partition continue without deleted data that its journal needs (protocol.md sections 7.7 and 9d).

The partition is recovered as far as its logs allow, and claimed. A COMMIT with LOST gives up the rest, and a snapshot
holds the state from there on. Outputs continue with the counter that their destination expects next, because a
destination ignores any other. The destinations' logs are read to find these counters.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Final
from uuid import UUID, uuid4

from konverse.bridge.catalog.judge import Rules
from konverse.bridge.client.connection import Connection
from konverse.bridge.client.outcomes import queue_at
from konverse.bridge.client.transmission import NAME, find_queue
from konverse.bridge.kafka.clients import LogTruncated
from konverse.bridge.kafka.columns import columns_of
from konverse.bridge.kafka.log_reader import LogReader
from konverse.bridge.kafka.topics import Topics
from konverse.bridge.owner.driver import OwnerDriver
from konverse.bridge.owner.follower import Follower, partitions_of
from konverse.dialog.owner.events import Phase
from konverse.dialog.owner.settings import OwnerSettings
from konverse.dialog.rules.accepted_loss import AcceptedLoss, expected_by
from konverse.dialog.rules.replies import other
from konverse.dialog.state.endpoint import Endpoint
from konverse.dialog.state.partition import Partition
from konverse.dialog.state.transitions import SENDING
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.errors import (
    AccessDenied,
    BadInput,
    InvalidState,
    KafkaUnavailable,
    KonverseError,
    MalformedRecord,
    QueueNotFound,
    Unavailable,
)
from konverse.schemas.identifiers import Address, Role, transmission_topic
from konverse.schemas.wire.envelope import decode
from konverse.schemas.wire.instruction import Action, Instruction
from konverse.schemas.wire.records import Envelope

from .instructions import Instructions

log: Final = logging.getLogger("konverse.loss")

SAVED_WITHIN_S: Final = 8.0
"""Time that a live reader gets to save its state: it writes a snapshot within seconds of noticing deleted data."""
LOOK_EVERY_S: Final = 1.0
CLAIM_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class LostConversation:
    """A conversation with a side that lives in the partition, or may have lived there."""

    conversation: UUID
    role: str
    """Role of the side in the partition: "initiator" or "target"."""
    service: str | None
    """Service of that side; None where only the conversation's id is known."""
    far_service: str | None
    known: bool
    """True: the side exists, and both sides get an Error. False: the side is lost with its BEGIN; messages for it are
    bounced, and the far side gets an Error."""
    waiting: int
    """Number of waiting messages that are dropped, because a handler may have received them already."""


@dataclass(frozen=True, slots=True)
class Loss:
    """The part of a partition that is given up."""

    queue: str
    partition: int
    first: int
    """Data offsets first … last are lost: deleted, or useless without the deleted data."""
    last: int
    log_begins: int
    """Offset at which the data log begins; everything before it was deleted."""
    commits: int
    """Number of COMMITs that cannot be folded any more."""
    conversations: tuple[LostConversation, ...]


class LossAcceptance:
    """Finds the loss that halts a partition, and gives it up."""

    def __init__(self, connection: Connection, instructions: Instructions) -> None:
        self._catalog = connection.catalog
        self._settings = connection.settings
        self._database = connection.database
        self._kafka = connection.kafka
        self._instructions = instructions

    def fail_peers(self, queue: Queue, loss: Loss) -> None:
        """Fail the far sides of conversations that have no side left in the partition: they would wait for ever.

        The owners of their partitions carry it out, now or when a reader starts within ten minutes. Call it before
        `give_up`: a caller that dies in between can then start again, because the partition still has its loss. If the
        loss is never accepted, the far sides have failed all the same. Raises KafkaUnavailable, OutcomeUnknown.
        """
        forgotten = {one.conversation.bytes for one in loss.conversations if not one.known}
        sides = self._open_sides(self._state(queue, loss.partition)) if forgotten else ()
        orders = [
            Instruction(self._instructions.database_of(where), where.name, one.conversation, 0, Action.FAIL)
            for where, one in sides
            if one.conversation in forgotten
        ]
        if orders:
            self._instructions.write(*orders, key=uuid4().bytes)

    def queue(self, name: str, partition: int) -> Queue:
        """A queue with that partition. Raises QueueNotFound, BadInput, TopicMismatch."""
        try:
            queue = self._catalog.get(Queue, name)
        except QueueNotFound:
            transmission = find_queue(self._kafka, self._settings.instance) if name == NAME else None
            if transmission is None:
                raise
            queue = transmission
        if not 0 <= partition < queue.partitions:
            raise BadInput(f"queue {name!r} has no partition {partition}; it has {queue.partitions}, counted from 0")
        Topics(self._kafka).same_queue(queue)
        return queue

    def loss_of(self, queue: Queue, number: int) -> Loss | None:
        """The loss that halts a partition; None when nothing has to be given up."""
        deadline = time.monotonic() + SAVED_WITHIN_S
        with Follower(self._kafka, queue, number, accepts_loss=True) as following:
            while True:
                state, acceptance = following.catch_up(), following.acceptance
                assert acceptance is not None
                if not acceptance.needed:
                    return None
                if following.head.clean or time.monotonic() > deadline:
                    return self._told(queue, number, state, acceptance)
                following.begin_anew()
                time.sleep(LOOK_EVERY_S)

    def _told(self, queue: Queue, number: int, state: Partition, acceptance: AcceptedLoss) -> Loss:
        with closing(LogReader(self._kafka)) as log_reader:
            begins, data_end = log_reader.ends(queue.topic, number)
            end = max(begins, acceptance.ingested_to)
            behind = _envelopes(log_reader, queue.topic, number, end, data_end)
            begun_later = {one.conversation for one in behind if one.suffix.begin is not None}
            spoken = {
                (other(one.role), one.conversation): one
                for one in _envelopes(log_reader, queue.topic, number, begins, end)
                if one.tag == state.address.tag and one.conversation.strip(b"\0")
            }
        handed_out = acceptance.handed_out(state)
        known = [
            LostConversation(
                endpoint.id,
                _name(endpoint.role),
                endpoint.terms.service,
                endpoint.terms.far_service,
                known=True,
                waiting=handed_out.get(endpoint.index, 0),
            )
            for endpoint in state.live()
        ]
        begun = [
            LostConversation(UUID(bytes=one), "initiator", begin.from_service, begin.to_service, known=False, waiting=0)
            for one, begin in acceptance.begun.items()
            if state.endpoint(Role.INITIATOR, one) is None
        ]
        named = {(one.role, one.conversation.bytes) for one in (*known, *begun)}
        heard = [
            LostConversation(UUID(bytes=one), _name(role), *_services(role, envelope), known=False, waiting=0)
            for (role, one), envelope in spoken.items()
            if (_name(role), one) not in named
        ]
        named |= {(one.role, one.conversation.bytes) for one in heard}
        far = [
            LostConversation(one.id, _name(other(one.role)), one.far_service, one.service, known=False, waiting=0)
            for _, one in self._open_sides(state)
            if one.stream.address == state.address and one.conversation not in begun_later and _has_spoken(one)
        ]
        spoken_to = [one for one in far if (one.role, one.conversation.bytes) not in named]
        first, conversations = acceptance.first_offset, (*known, *begun, *heard, *spoken_to)
        return Loss(queue.name, number, first, end - 1, begins, acceptance.commits, conversations)

    def _open_sides(self, halted: Partition) -> Iterator[tuple[Queue, Endpoint]]:
        """Open sides in the places of `_places` that can be read, except the partition that has halted."""
        for queue, number in self._places(halted):
            if queue.address(number) == halted.address:
                continue
            own = self._instructions.database_of(queue) == self._database
            try:
                with Follower(self._kafka, queue, number) as following:
                    there = self._instructions.foreseen(following, own=own)
            except AccessDenied as error:
                if own:
                    raise
                log.warning("sides in %s/%d, of another database, are not notified: %s", queue.topic, number, error)
                continue
            except Unavailable:
                raise
            except KonverseError as error:
                log.warning("cannot read the open conversations of %s/%d, skipping it: %s", queue.topic, number, error)
                continue
            yield from ((queue, one) for one in there.live() if one.committed in SENDING)

    def _places(self, state: Partition) -> list[tuple[Queue, int]]:
        """All partitions of the database, and those of other databases to which the partition is known to have sent."""
        own = [*partitions_of(self._catalog.all(Queue))]
        topics, known = {queue.topic for queue, _ in own}, self._catalog.queues()
        far = (address for address in state.streams if address.topic in known and address.topic not in topics)
        elsewhere = ((known[address.topic], address.partition) for address in far)
        transmission = transmission_topic(self._settings.instance)
        return [*own, *(place for place in elsewhere if place[0].topic != transmission)]

    def give_up(self, queue: Queue, number: int) -> None:
        """Claim the partition, commit the loss, and return when a snapshot holds the remaining state."""
        with Follower(self._kafka, queue, number, accepts_loss=True) as following:
            state, acceptance = following.catch_up(), following.acceptance
            assert acceptance is not None
            places = self._places(state)
            addresses = {*acceptance.destinations(state), *(queue.address(at) for queue, at in places)}
        driver = OwnerDriver(
            self._kafka,
            queue,
            Rules(self._catalog.check_send, catalog=self._catalog),
            OwnerSettings(1, 1, hands_out=False),
        )
        with closing(driver):
            expected = {at: self._expected(at, state) for at in addresses}
            driver.acceptance = AcceptedLoss(expected)
            if driver.take_over(number) is None:
                raise InvalidState(
                    f"partition {number} of queue {queue.name!r} was not taken over: {_why(driver)}. Try again"
                )
            owner, deadline = driver.owners[number], time.monotonic() + CLAIM_S
            while owner.phase is Phase.LEADING and (owner.committing or owner.snapshots.urgent):
                driver.pump(0.05)
                if time.monotonic() > deadline:
                    raise KafkaUnavailable(
                        f"the loss of {queue.topic}/{number} is recorded in its journal, but the snapshot of the "
                        "remaining state was not written in time; try again"
                    )
            if owner.phase is not Phase.LEADING:
                raise InvalidState(
                    f"partition {number} of queue {queue.name!r} was taken away before its loss was given up: "
                    f"{_why(driver)}. Stop its readers, and try again"
                )

    def _state(self, queue: Queue, number: int) -> Partition:
        """The state of a partition, as far as its logs allow: that partition may have halted as well."""
        with Follower(self._kafka, queue, number, accepts_loss=True) as following:
            return following.catch_up()

    def _expected(self, address: Address, own: Partition) -> int:
        """The output counter of partition `own` that a destination expects next; 0 if it cannot be known."""
        try:
            queue = queue_at(self._kafka, self._catalog, address)
            state = own if address == own.address else self._state(queue, address.partition)
            with closing(LogReader(self._kafka)) as log_reader:
                begins, end = log_reader.ends(address.topic, address.partition)
                start = max(begins, state.ingest_to)
                later = _envelopes(log_reader, address.topic, address.partition, start, end)
                return expected_by(state, own, later, begins)
        except Unavailable:
            raise
        except KonverseError as error:
            log.warning(
                "cannot determine which outputs %s/%d has received (%s): lost output numbers may be used again, "
                "and it drops outputs whose numbers it knows",
                address.topic,
                address.partition,
                error,
            )
            return 0


def _why(driver: OwnerDriver) -> str:
    """Why the owner has stopped."""
    return "; ".join(effect.reason for _, _, effect in driver.stopped())


def _envelopes(log_reader: LogReader, topic: str, number: int, start: int, end: int) -> Iterator[Envelope]:
    try:
        for chunk, _ in log_reader.read(topic, number, start, end):
            for header in columns_of(chunk)[0].headers:
                if header is not None:
                    with suppress(MalformedRecord):
                        yield decode(header)
    except LogTruncated as error:
        raise KafkaUnavailable(f"{topic}/{number} was truncated while it was being read; try again") from error


def _has_spoken(side: Endpoint) -> bool:
    """Whether the other side may know of this one. `sent` is -1 if home does not know how much the session has sent."""
    return side.role is Role.TARGET or side.sent != 0


def _name(role: Role) -> str:
    return "initiator" if role is Role.INITIATOR else "target"


def _services(role: Role, envelope: Envelope) -> tuple[str | None, str | None]:
    """Own and far service of the receiving side, if the record begins the conversation; else None."""
    begin = envelope.suffix.begin
    if begin is None:
        return None, None
    return (begin.from_service, begin.to_service) if role is Role.INITIATOR else (begin.to_service, begin.from_service)
