"""Whether destination topics still belong to the queues that records were sent to.

A topic that was deleted and created again accepts records like the first one, but they are never received. So a `flush`
asks Kafka for the ids of its topics after the last acknowledgement, before it returns. This takes a third of a
millisecond. Owners check the destinations of their outputs the same way.
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
from konverse.bridge.kafka.topics import AGAIN, id_of, topic_ids
from konverse.dialog.session.dialogs import SessionDialog
from konverse.dialog.session.lanes import Lane
from konverse.dialog.session.session import Session
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.errors import KonverseError, TopicMismatch
from konverse.schemas.identifiers import Address, journal_topic

from .catalog import Catalog

ANSWER_S: Final = 2.0
"""Longest wait for Kafka to describe topics. A topic without an answer does not count as gone."""
ANSWER_S_MIN: Final = 0.1
"""Shortest such wait, also when the caller has less time left."""
_ANEW: Final = "Connect again before the next `broker.flush`; `dialog.flush` of other dialogs works meanwhile"


class Destination(NamedTuple):
    """A queue, as an address names it."""

    topic: str
    tag: bytes
    """Tag of the queue's incarnation."""


class Question(NamedTuple):
    """A pending request to Kafka to describe topics."""

    asked: set[Destination]
    answers: Mapping[str, Future[TopicDescription]]

    @property
    def done(self) -> bool:
        """Whether every answer has arrived or timed out."""
        return all(answer.done() for answer in self.answers.values())


def destination_of(address: Address) -> Destination:
    """The queue of an address, without its partition."""
    return Destination(address.topic, address.tag)


def addresses_of(dialog: SessionDialog) -> list[Address]:
    """The partitions that get records of a dialog: its home and its target."""
    return [dialog.home.address, dialog.target.address]


class Reached(NamedTuple):
    """Progress of a session's records to one partition."""

    writer: bytes
    counter: int
    """Kafka has all direct records with counters below this."""
    transactions: int
    """Number of the session's transactions delivered there."""


def reached_of(session: Session, addresses: Iterable[Address]) -> dict[Address, Reached]:
    """Acknowledged progress to each of these partitions, with the writer it belongs to."""
    found = [session.lanes[address] for address in addresses if address in session.lanes]
    return {lane.address: _reached(session, lane, lane.window.acked) for lane in found}


def _reached(session: Session, lane: Lane, counter: int) -> Reached:
    return Reached(lane.writer, counter, session.transactions.delivered.get(lane.address, 0))


class Destinations:
    """Destination topics of one sender or one reader's owners, checked against the catalog. Thread-safe."""

    def __init__(self, kafka: Kafka, catalog: Catalog | None = None) -> None:
        """Without a catalog, the expected id of a topic is the one found first."""
        self._kafka = kafka
        self._catalog = catalog
        self._lock = threading.Lock()
        """Held while an answer of Kafka is compared, never while one is awaited."""
        self._ids: dict[Destination, bytes] = {}
        """First id found of each topic, when there is no catalog."""
        self.gone: dict[Destination, str] = {}
        """Destination whose records are no longer received -> the reason, as an error text."""
        self.verified: dict[Address, Reached] = {}
        """Progress to each partition when its topic was last found to belong to its queue."""
        self._told: set[Destination] = set()
        """Gone destinations for which TopicMismatch was raised."""

    def _has_topic(self, topic: str) -> bool:
        return self._catalog is None or topic in self._catalog.queues()

    def has_queue(self, address: Address) -> bool:
        """Whether a queue of this instance has that partition, as far as known. Always True without a catalog."""
        if self._catalog is None:
            return True
        queue = self._catalog.queues().get(address.topic)
        return queue is not None and address.partition < queue.partitions

    def read_queues(self) -> bool:
        """Refresh the catalog, to learn of created and dropped queues; False when it cannot be read now."""
        if self._catalog is not None:
            try:
                self._catalog.refresh()
            except (KonverseError, KafkaException):
                return False
        return True

    def takes(self, address: Address, own: Address | None) -> bool:
        """Whether records to this address may be received, as far as known; without I/O.

        `own` is the address of the session's transmission queue.
        """
        is_own = own is not None and own.topic == address.topic
        return destination_of(address) not in self.gone and (is_own or self._has_topic(address.topic))

    def check(self, *addresses: Address) -> None:
        """Raise TopicMismatch for a destination that was found gone; without I/O."""
        for address in addresses if self.gone else ():
            self._raise(destination_of(address))

    def check_untold(self, addresses: Iterable[Address]) -> None:
        """Like `check`, for destinations for which TopicMismatch was not raised before."""
        for destination in {*map(destination_of, addresses)} - self._told:
            self._raise(destination)

    def unverified(self, session: Session) -> list[Address]:
        """Partitions with records, direct or by transactions, sent since their topic was last verified."""
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

    def refresh(self, addresses: Iterable[Address], timeout_s: float = ANSWER_S) -> bool:
        """Ask Kafka whether the topics still belong to their queues, and wait for the answer.

        Returns False when some answers did not arrive in time, or the catalog could not be read. Updates `gone`.
        """
        return self.apply_answers(self.ask(addresses, timeout_s))

    def ask(self, addresses: Iterable[Address], timeout_s: float = ANSWER_S) -> Question:
        """Ask as `refresh` does, without waiting. Give the result to `apply_answers`."""
        asked = {destination_of(address) for address in addresses}
        queues = self._queues()
        topics = {destination.topic for destination in asked}
        journals = {journal_topic(name, queues[name].subscription) for name in topics if name in queues}
        # journals too; a sender without the right to describe them gets no answer, and they stay unchecked
        return Question(asked, self._describe(topics | journals, min(timeout_s, ANSWER_S)))

    def apply_answers(self, question: Question) -> bool:
        """Compare Kafka's answers with the queues, waiting for them if necessary. Returns as `refresh`."""
        asked, found = question.asked, _found(question.answers)
        with self._lock:
            problems = self._problems(asked, found)
        if problems and not self.read_queues():  # this process may not know of a DROP and CREATE QUEUE yet
            return False
        with self._lock:
            problems = self._problems(asked, found) if problems else {}
            for destination in asked:
                if destination.topic in found and destination not in problems:
                    self.gone.pop(destination, None)
            self.gone.update(problems)
        return all(map(has_answered, question.answers.values()))

    def is_of_queue(self, address: Address) -> bool:
        """Whether the present queue of this topic has the incarnation that the address names, as far as known."""
        queue = self._queues().get(address.topic)
        return queue is not None and queue.address(0).tag == address.tag

    def changed(self, expected: Mapping[str, bytes], timeout_s: float = ANSWER_S) -> dict[str, str]:
        """Ask Kafka which topics are gone or have another id than `expected`. Returns topic -> error text."""
        return changes(expected, _found(self._describe({*expected}, timeout_s)))

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
            if self._catalog is None:
                if destination not in self._ids:
                    if found.get(topic):
                        self._ids[destination] = found[topic] or b""
                    continue
                expected = {topic: self._ids[destination]}
            elif queue is None:  # or it was just created, and the caller reads the catalog
                problems[destination] = (
                    f"the queue of topic {topic} was dropped: messages that it had not received are lost. End the "
                    f"dialogs with it by `broker.operations.end(dialog.id, cleanup=True)`. {_ANEW}"
                )
                continue
            elif queue.address(0).tag != tag:
                problems[destination] = (
                    f"the queue of topic {topic} was dropped and created again: messages on dialogs with the former "
                    f"queue are never received. End these dialogs, and begin new ones. {_ANEW}"
                )
                continue
            else:
                expected = topic_ids(queue)
            for why in changes(expected, found).values():
                problems[destination] = why
        return problems

    def _queues(self) -> dict[str, Queue]:
        return self._catalog.queues() if self._catalog is not None else {}


def _found(answers: Mapping[str, Future[TopicDescription]]) -> dict[str, bytes | None]:
    """Topic -> id, None for a topic that does not exist. Topics without an answer are left out."""
    found: dict[str, bytes | None] = {}
    for topic, answer in answers.items():
        try:
            found[topic] = id_of(answer.result())
        except KafkaException as error:
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                found[topic] = None
    return found


def changes(expected: Mapping[str, bytes], found: Mapping[str, bytes | None]) -> dict[str, str]:
    """Topic -> error text, for topics whose found id differs from the `expected` one. A found None means deleted."""
    return {
        name: _gone(name, "was deleted" if found[name] is None else AGAIN)
        for name in expected.keys() & found.keys()
        if found[name] != expected[name]
    }


def _gone(topic: str, what: str) -> str:
    return (
        f"topic {topic} {what}: messages to its queue are never received. A topic restored from a backup has "
        "another id in Kafka, and is refused too. Drop its queue (`drop_queue` with force=True) and create it again"
    )
