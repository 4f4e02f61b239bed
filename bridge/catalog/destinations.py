"""Whether the topics that a session sends to are still those of the queues that it means.

A topic that was deleted and created again takes records like the first one, and nobody ever reads them. So a `flush`
asks Kafka for the ids of its topics behind the last acknowledgement (a third of a millisecond) before it returns.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import TopicDescription

from konverse.bridge.kafka.clients import Kafka
from konverse.bridge.kafka.topic_watch import has_answered
from konverse.bridge.kafka.topics import id_of
from konverse.dialog.session.dialogs import SessionDialog
from konverse.dialog.session.lanes import Lane
from konverse.dialog.session.session import Session
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.errors import KonverseError, TopicMismatch
from konverse.schemas.identifiers import Address, journal_topic

from .catalog import Catalog

ANSWER_S: Final = 2.0
"""Kafka has so long to describe topics; without an answer nothing is known against them."""
ANSWER_S_MIN: Final = 0.1
"""So long it has in any case."""


AGAIN: Final = "was deleted and created again since the queue was created"


class Destination(NamedTuple):
    """A queue as records name it."""

    topic: str
    tag: bytes
    """Of the queue's incarnation."""


class Question(NamedTuple):
    """What Kafka was asked about topics."""

    asked: set[Destination]
    answers: Mapping[str, Future[TopicDescription]]

    @property
    def done(self) -> bool:
        """Kafka has answered, or is not expected to any more."""
        return all(answer.done() for answer in self.answers.values())


def destination_of(address: Address) -> Destination:
    """The queue of a partition."""
    return Destination(address.topic, address.tag)


def addresses_of(dialog: SessionDialog) -> list[Address]:
    """Where records of a dialog go."""
    return [dialog.home.address, dialog.target.address]


class Reached(NamedTuple):
    """How far the records of a session to a partition are."""

    writer: bytes
    counter: int
    """Below it Kafka has everything that is sent directly."""
    transactions: int
    """How many have arrived there."""


def reached_of(session: Session, addresses: Iterable[Address]) -> dict[Address, Reached]:
    """How far the records to these partitions are acknowledged, and by which writer."""
    found = [session.lanes[address] for address in addresses if address in session.lanes]
    return {lane.address: _reached(session, lane, lane.window.acked) for lane in found}


def _reached(session: Session, lane: Lane, counter: int) -> Reached:
    return Reached(lane.writer, counter, session.transactions.delivered.get(lane.address, 0))


class Destinations:
    """The topics of one sender, for any of its threads."""

    def __init__(self, kafka: Kafka, catalog: Catalog | None = None) -> None:
        """Without a catalog each topic is meant as it is found first."""
        self._kafka = kafka
        self._catalog = catalog
        self._lock = threading.Lock()
        """Held while an answer of Kafka is compared, not while it is awaited."""
        self._ids: dict[Destination, bytes] = {}
        """Topics that are in no catalog here, such as that of transmission, as they were found first."""
        self.gone: dict[Destination, str] = {}
        """Destinations that receive nothing any more, and why."""
        self.verified: dict[Address, Reached] = {}
        """What Kafka had when the topic was found to be its queue's."""
        self._told: set[Destination] = set()
        """Those of which a caller was told."""

    def _has_topic(self, topic: str) -> bool:
        return self._catalog is None or topic in self._catalog.queues()

    def has_queue(self, address: Address) -> bool:
        """Whether a queue of this instance has that partition, as far as is known; without a catalog always."""
        if self._catalog is None:
            return True
        queue = self._catalog.queues().get(address.topic)
        return queue is not None and address.partition < queue.partitions

    def read_queues(self) -> bool:
        """Hear of the queues that others have created and dropped; False when the catalog cannot be read now."""
        if self._catalog is not None:
            try:
                self._catalog.refresh()
            except (KonverseError, KafkaException):
                return False
        return True

    def takes(self, address: Address, own: Address | None) -> bool:
        """Whether something may arrive there, as far as is known; `own` is that of transmission. Asks nobody."""
        is_own = own is not None and own.topic == address.topic
        return destination_of(address) not in self.gone and (is_own or self._has_topic(address.topic))

    def check(self, *addresses: Address) -> None:
        """Raise TopicMismatch for a destination that was found gone; asks nobody."""
        for address in addresses if self.gone else ():
            self._raise(destination_of(address))

    def check_untold(self, addresses: Iterable[Address]) -> None:
        """The same, unless a caller was told of that destination."""
        for destination in {*map(destination_of, addresses)} - self._told:
            self._raise(destination)

    def unverified(self, session: Session) -> list[Address]:
        """Where records went, directly or by transactions, of which nobody was told that they count."""
        transactions, verified = session.transactions, self.verified
        awaited = {at for one in (*transactions.flying, *transactions.waiting) for at in one.destinations}
        used = [
            lane
            for address, lane in session.lanes.items()
            if lane.next or address in awaited or address in transactions.delivered
        ]
        return [
            lane.address
            for lane in used
            if lane.address in awaited or verified.get(lane.address) != _reached(session, lane, lane.next)
        ]

    def look(self, addresses: Iterable[Address], timeout_s: float = ANSWER_S) -> bool:
        """Ask Kafka whether the topics are those of the queues; False when it has not answered all in time."""
        return self.learn(self.ask(addresses, timeout_s))

    def ask(self, addresses: Iterable[Address], timeout_s: float = ANSWER_S) -> Question:
        """The same without waiting; `learn` takes the answer."""
        asked = {destination_of(address) for address in addresses}
        queues = self._queues()
        topics = {destination.topic for destination in asked}
        journals = {journal_topic(name, queues[name].subscription) for name in topics if name in queues}
        # journals: who may not see one goes without
        return Question(asked, self._describe(topics | journals, min(timeout_s, ANSWER_S)))

    def learn(self, question: Question) -> bool:
        """What Kafka has answered, waiting for it if need be; False when it has not answered all."""
        asked, found = question.asked, _found(question.answers)
        with self._lock:
            problems = self._problems(asked, found)
        if problems and not self.read_queues():  # maybe nobody here has heard of a DROP and a CREATE
            return False
        with self._lock:
            problems = self._problems(asked, found) if problems else {}
            for destination in asked:
                if destination.topic in found and destination not in problems:
                    self.gone.pop(destination, None)
            self.gone.update(problems)
        return all(map(has_answered, question.answers.values()))

    def means(self, address: Address) -> bool:
        """Whether the queue that has this topic now is the one that the address names, as far as is known."""
        queue = self._queues().get(address.topic)
        return queue is not None and queue.address(0).tag == address.tag

    def changed(self, meant: Mapping[str, bytes], timeout_s: float = ANSWER_S) -> dict[str, str]:
        """Ask Kafka which of these topics have another id than is meant, or are gone, and why that matters."""
        return changes(meant, _found(self._describe({*meant}, timeout_s)))

    def _raise(self, destination: Destination) -> None:
        why = self.gone.get(destination)
        if why is not None:
            self._told.add(destination)
            raise TopicMismatch(why)

    def _describe(self, topics: set[str], timeout_s: float) -> dict[str, Future[TopicDescription]]:
        if not topics:
            return {}
        return self._kafka.admin.describe_topics(
            TopicCollection(sorted(topics)), request_timeout=max(timeout_s, ANSWER_S_MIN)
        )

    def _problems(self, asked: set[Destination], found: dict[str, bytes | None]) -> dict[Destination, str]:
        queues = self._queues()
        problems: dict[Destination, str] = {}
        for destination in asked:
            topic, tag = destination
            queue = queues.get(topic)
            if queue is None:
                if destination not in self._ids:  # nobody knows; or it was dropped, which the sender sees for itself
                    if found.get(topic):
                        self._ids[destination] = found[topic] or b""
                    continue
                meant = {topic: self._ids[destination]}
            elif queue.address(0).tag != tag:
                problems[destination] = (
                    f"the queue of topic {topic} was dropped and created again: what is sent on dialogs with the first "
                    "one is never received. End them, and begin new ones"
                )
                continue
            else:
                meant = {topic: queue.data_topic_id, journal_topic(topic, queue.subscription): queue.journal_topic_id}
            for why in changes(meant, found).values():
                problems[destination] = why
        return problems

    def _queues(self) -> dict[str, Queue]:
        return self._catalog.queues() if self._catalog is not None else {}


def _found(answers: Mapping[str, Future[TopicDescription]]) -> dict[str, bytes | None]:
    """The id of each topic, None for one that does not exist; without those of which Kafka says nothing."""
    found: dict[str, bytes | None] = {}
    for topic, answer in answers.items():
        try:
            found[topic] = id_of(answer.result())
        except KafkaException as error:
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                found[topic] = None
    return found


def changes(meant: Mapping[str, bytes], found: Mapping[str, bytes | None]) -> dict[str, str]:
    """Which topics are not those that are meant, and why that matters; None was found for one that is gone."""
    return {
        name: _gone(name, "was deleted" if found[name] is None else AGAIN)
        for name in meant.keys() & found.keys()
        if found[name] != meant[name]
    }


def _gone(topic: str, what: str) -> str:
    return (
        f"topic {topic} {what}: what is sent to its queue is never received. Restore it from a backup, or drop its "
        "queue (`drop_queue` with force=True) and create it again"
    )
