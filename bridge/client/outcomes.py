"""Finds out what became of messages whose sender is gone (protocol.md section 5, `outcome`)."""

from __future__ import annotations

import logging
import time
from contextlib import ExitStack, suppress
from typing import Any, Final

from confluent_kafka import KafkaException

from konverse.bridge.catalog.catalog import Catalog
from konverse.bridge.kafka.clients import Kafka
from konverse.bridge.kafka.refusals import Need
from konverse.bridge.kafka.topics import Topics
from konverse.bridge.kafka.writer_ids import WriterIds
from konverse.bridge.owner.follower import Following
from konverse.dialog.session.lanes import Handed
from konverse.dialog.session.outcome import Asking, Outcome
from konverse.dialog.session.rotation import Unheard
from konverse.dialog.session.session import Session
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.errors import (
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
from konverse.schemas.wire.token import Token

from .session_ids import Renewing
from .transmission import find_queue

log: Final = logging.getLogger("konverse.outcomes")

READ_EVERY_S: Final = 0.1
ASK_S_MIN: Final = 2.0
"""Kafka has so long for each record, however little time there is: a new client needs some to connect."""


def queue_at(kafka: Kafka, catalog: Catalog, address: Address) -> Queue:
    """The queue of an address, it may be that of transmission; QueueNotFound when it was dropped, or created again."""
    transmits = address.topic == transmission_topic(catalog.instance)
    for queue in [find_queue(kafka, catalog.instance)] if transmits else catalog.all(Queue):
        if queue is not None and queue.topic == address.topic and queue.address(address.partition) == address:
            return queue
    raise QueueNotFound(f"there is no queue on topic {address.topic} any more that these messages were sent to")


def opened(token: bytes) -> Token:
    """What a token is about; BadInput when it is none."""
    try:
        return tokens.decode(token)
    except MalformedRecord as error:
        raise BadInput(f"{error}: give `OutcomeUnknown.token` as it was") from None


class Sessions:
    """The sessions of a connection, and questions about those of others."""

    def __init__(self, kafka: Kafka, topics: Topics, catalog: Catalog) -> None:
        self.ids = WriterIds(kafka, topics)
        self._kafka = kafka
        self._catalog = catalog

    def new(self) -> Renewing:
        """A session under a new id."""
        return Renewing(self.ids, lambda address: follow(self._kafka, self._catalog, address))

    def outcome(self, token: bytes, own: Session | None, timeout_s: float | None) -> Outcome:
        """See `broker.outcome`; `own` is the session of this connection."""
        if own is not None and any(one.writer in own.ids for one in opened(token).sent):
            raise BadInput("these messages are this broker's own, which sends them again by itself: flush once more")
        timeout_s = self._kafka.settings.send_timeout_s if timeout_s is None else timeout_s
        return Inquiry(self._kafka, self.ids, self._catalog).run(token, timeout_s)


def follow(kafka: Kafka, catalog: Catalog, address: Address) -> Following:
    """Read the partition at an address."""
    return Following(kafka, queue_at(kafka, catalog, address), address.partition)


class Inquiry:
    """One question for an outcome, and the clients that it needs."""

    def __init__(self, kafka: Kafka, ids: WriterIds, catalog: Catalog) -> None:
        self._kafka = kafka
        self._ids = ids
        self._catalog = catalog
        self._exits = ExitStack()
        self._following: dict[Address, Following] = {}
        self._producer: Any = None

    def run(self, token: bytes, timeout_s: float) -> Outcome:
        """Ask, wait until it was heard, and read the answer."""
        deadline = time.monotonic() + timeout_s
        asking = Asking(self._there(opened(token)))
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
                        f"the owner of {asking.addresses[0].topic} has not taken the question within {timeout_s} s. "
                        "Its workers may be away; ask again later",
                        token,
                    )
                time.sleep(READ_EVERY_S)
        if asking.expired:
            raise OutcomeExpired(
                "what became of these messages cannot be known any more: their session was silent for so long that "
                "it was forgotten. Ask the receiver before you send them again"
            )
        return outcome

    def _there(self, token: Token) -> Token:
        """A token without a transmission queue that is gone: nothing comes from there any more."""
        if token.transmission is not None:
            try:
                queue_at(self._kafka, self._catalog, token.transmission)
            except QueueNotFound:
                return token._replace(transmission=None)
        return token

    def _follow(self, address: Address, deadline: float) -> Following:
        following = self._following.get(address)
        if following is None:
            following = self._following[address] = follow(self._kafka, self._catalog, address)
            self._exits.callback(following.close)
        with suppress(KafkaUnavailable):  # then what was read before is looked at once more
            following.catch_up(max(1.0, deadline - time.monotonic()))
        return following

    def _write(self, address: Address, record: Handed, deadline: float) -> None:
        """Append a question; what is not acknowledged is tried again, which does no harm."""
        header, key, value = record
        queue_at(self._kafka, self._catalog, address)
        while True:
            left_s = min(max(ASK_S_MIN, deadline - time.monotonic()), self._kafka.settings.append_timeout_s)
            if self._producer is None:
                self._producer = self._kafka.plain_producer(left_s)
            failures: list[Any] = []
            with suppress(KafkaException):
                self._producer.produce(
                    address.topic,
                    value,
                    key,
                    address.partition,
                    headers={HEADER: header},
                    on_delivery=lambda error, _message, failures=failures: failures.append(error),
                )
                self._producer.flush(left_s + 1)
            if failures and failures[0] is None:  # to compare an error with None breaks
                return
            self._producer = None
            self._kafka.check_taken(address.topic, failures)
            need = Need.topic("WRITE", address.topic)
            why = self._kafka.words(failures[0], need) if failures else "no answer"
            if time.monotonic() > deadline:
                raise KafkaUnavailable(f"{address.topic} takes no record: {why}. Check that the broker runs")
            log.warning("a question to %s was not taken (%s); it is asked again", address.topic, why)
            time.sleep(READ_EVERY_S)
