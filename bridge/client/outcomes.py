"""Finds out whether the messages of a sender that is gone were received (protocol.md section 5, `outcome`).

`Inquiry` asks each destination to close the former session, and reads from the destination's journal at which counter
it was closed: records below that counter were received, the others never will be.
"""

from __future__ import annotations

import logging
import time
from contextlib import ExitStack
from typing import Final
from uuid import UUID

from confluent_kafka import Message, Producer

from konverse.bridge.catalog.catalog import Catalog
from konverse.bridge.kafka.appends import TopicRecord, append
from konverse.bridge.kafka.clients import Kafka
from konverse.bridge.kafka.clock import WriterIds
from konverse.bridge.kafka.refusals import Need
from konverse.bridge.kafka.topics import Topics
from konverse.bridge.owner.follower import Follower
from konverse.bridge.runtime.settings import TIMEOUT_S_MAX
from konverse.dialog.session.lanes import Handed
from konverse.dialog.session.outcome import Outcome, OutcomeQuery
from konverse.dialog.session.rotation import Unheard
from konverse.dialog.session.session import Session
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.counting import listed
from konverse.schemas.errors import (
    AccessDenied,
    BadInput,
    KafkaUnavailable,
    MalformedRecord,
    OutcomeExpired,
    OutcomeUnknown,
    QueueNotFound,
)
from konverse.schemas.identifiers import Address, transmission_topic
from konverse.schemas.wire import token as tokens
from konverse.schemas.wire.envelope import HEADER
from konverse.schemas.wire.token import Sent, Token

from .session_ids import SessionRenewal
from .transmission import find_queue

log: Final = logging.getLogger("konverse.outcomes")

READ_EVERY_S: Final = 0.1
ASK_S_MIN: Final = 2.0
"""Kafka may take this long for each record, even beyond the deadline: a new client needs time to connect."""


def queue_at(kafka: Kafka, catalog: Catalog, address: Address) -> Queue:
    """The queue of an address, in any database of the instance, or the transmission queue.

    Raises QueueNotFound when it was dropped or created again.
    """
    if address.topic == transmission_topic(catalog.instance):
        queue = find_queue(kafka, catalog.instance)
    else:
        catalog.refresh()
        queue = catalog.queues().get(address.topic)
    if queue is not None and queue.address(address.partition) == address:
        return queue
    raise QueueNotFound(f"the queue on topic {address.topic} to which these messages were sent no longer exists")


def opened(token: bytes) -> Token:
    """Decode a token of OutcomeUnknown; BadInput for other bytes."""
    try:
        return tokens.decode(token)
    except MalformedRecord as error:
        raise BadInput(f"{error}: give `OutcomeUnknown.token` unchanged") from None


class Sessions:
    """Creates the sessions of a connection, and inquires about sessions of other connections."""

    def __init__(self, kafka: Kafka, topics: Topics, catalog: Catalog) -> None:
        self.ids = WriterIds(kafka, topics)
        self._kafka = kafka
        self._catalog = catalog

    def new(self) -> SessionRenewal:
        """A session with a new id."""
        return SessionRenewal(self.ids, lambda address: follow(self._kafka, self._catalog, address))

    def outcome(self, token: bytes, own: Session | None, timeout_s: float | None) -> Outcome:
        """See `broker.outcome`; `own` is the session of this connection."""
        if own is not None and own.over is None and any(one.writer in own.ids for one in opened(token).sent):
            raise BadInput("this broker sent these messages and resends them by itself: call flush again")
        timeout_s = self._kafka.settings.send_timeout_s if timeout_s is None else timeout_s
        return Inquiry(self._kafka, self.ids, self._catalog).run(token, min(timeout_s, TIMEOUT_S_MAX))


def follow(kafka: Kafka, catalog: Catalog, address: Address) -> Follower:
    """A follower of the partition at an address."""
    return Follower(kafka, queue_at(kafka, catalog, address), address.partition)


class Inquiry:
    """One inquiry about the outcome of a token, and the clients that it needs."""

    def __init__(self, kafka: Kafka, ids: WriterIds, catalog: Catalog) -> None:
        self._kafka = kafka
        self._ids = ids
        self._catalog = catalog
        self._exits = ExitStack()
        self._following: dict[Address, Follower] = {}
        self._producer: Producer | None = None

    def run(self, token: bytes, timeout_s: float) -> Outcome:
        """Close the session at each destination, wait until its owner has ingested the closing, and read the answer."""
        deadline = time.monotonic() + timeout_s
        there, gone = self._there(opened(token))
        if not there.sent:
            raise _of_dropped(gone, None)
        asking = OutcomeQuery(there)
        with self._exits:
            writer, _ = self._ids.new(max(ASK_S_MIN, timeout_s))
            while True:
                for address, record in asking.ask(writer):
                    self._write(address, record, deadline)
                for address in asking.addresses:
                    if asking.read(self._follow(address, deadline).state) is Unheard.ANOTHER:
                        writer, _ = self._ids.new(max(ASK_S_MIN, deadline - time.monotonic()))
                outcome = asking.outcome
                if outcome is not None:
                    break
                if time.monotonic() > deadline:
                    raise OutcomeUnknown(
                        f"the owner of {asking.addresses[0].topic} has not processed the query within {timeout_s} s. "
                        "Its workers may be down; ask again later",
                        token,
                    )
                time.sleep(READ_EVERY_S)
        if asking.expired:
            raise OutcomeExpired(
                "the outcome of these messages can no longer be determined: their session was silent for so long that "
                "it was forgotten. Ask the receiver before you send them again"
            )
        if gone:
            raise _of_dropped(gone, outcome)
        return outcome

    def _there(self, token: Token) -> tuple[Token, list[Sent]]:
        """The part of a token that concerns existing queues, and the messages to queues that were dropped.

        No message can come from a transmission queue that was dropped.
        """
        exists = {one: self._exists(one) for one in {sent.address for sent in token.sent}}
        there = token._replace(sent=tuple(sent for sent in token.sent if exists[sent.address]))
        if token.transmission is not None and not self._exists(token.transmission):
            there = there._replace(transmission=None)
        return there, [sent for sent in token.sent if not exists[sent.address]]

    def _exists(self, address: Address) -> bool:
        try:
            queue_at(self._kafka, self._catalog, address)
        except QueueNotFound:
            return False
        return True

    def _follow(self, address: Address, deadline: float) -> Follower:
        following = self._following.get(address)
        if following is None:
            following = self._following[address] = follow(self._kafka, self._catalog, address)
            self._exits.callback(following.close)
        try:
            following.catch_up(max(1.0, deadline - time.monotonic()))
        except AccessDenied:
            raise
        except KafkaUnavailable as error:  # the caller then sees the state as last read
            log.debug("the state of %s/%d cannot be read: %s", address.topic, address.partition, error)
        return following

    def _write(self, address: Address, record: Handed, deadline: float) -> None:
        """Append a CLOSE_WRITER record until it is acknowledged: a duplicate does no harm."""
        header, key, value = record
        queue_at(self._kafka, self._catalog, address)
        while True:
            left_s = min(max(ASK_S_MIN, deadline - time.monotonic()), self._kafka.settings.append_timeout_s)
            if self._producer is None:
                self._producer = self._kafka.plain_producer(left_s)
            written = TopicRecord(value, key, {HEADER: header}, address.partition)
            try:
                (answer,) = append(self._kafka, self._producer, address.topic, [written], left_s)
            except AccessDenied:
                raise
            except KafkaUnavailable as error:
                why = str(error)
            else:
                if isinstance(answer, Message):
                    return
                need = Need.topic("WRITE", address.topic)
                why = "no answer" if answer is None else self._kafka.words(answer, need)
            self._producer = None
            if time.monotonic() > deadline:
                raise KafkaUnavailable(
                    f"no record can be written to {address.topic}: {why}. Check that the broker runs"
                )
            log.warning("a query to %s was not acknowledged (%s), retrying", address.topic, why)
            time.sleep(READ_EVERY_S)


def _of_dropped(gone: list[Sent], others: Outcome | None) -> OutcomeExpired:
    """The error for messages to queues that were dropped; `others`: the outcome of the other messages."""
    topics = listed(sorted({one.address.topic for one in gone}))
    conversations = listed(sorted({str(UUID(bytes=one.conversation)) for one in gone}))
    rest = ""
    if others is not None and others.received:
        rest = ". All other messages were received"
    elif others is not None:
        first = listed(f"{conversation} from message {number} on" for conversation, number in others.missing.items())
        rest = f". Of the other messages these were not received, and never will be: {first}"
    return OutcomeExpired(
        f"the outcome of messages of conversations {conversations} can no longer be determined: the queue on topic "
        f"{topics} was dropped, and its log with it. Ask the receiver before you send them again{rest}"
    )
