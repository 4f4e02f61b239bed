"""The partitions of a queue that a reader takes: suggested by a consumer group, or named by the caller.

The group's protocol calls back inside of the consumer's `poll` and `consume`; a claim, a recovery and a release happen
in there. A partition is ours when its journal says so.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from typing import Final

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from konverse.bridge.kafka.clients import FETCH_RECORDS, NO_GROUP, ConsumerFailed, Kafka, LogTruncated
from konverse.bridge.kafka.open_transactions import OpenTransactions
from konverse.bridge.kafka.topic_watch import TopicWatch
from konverse.bridge.kafka.topics import Topics
from konverse.bridge.owner.driver import Owning
from konverse.bridge.runtime.log_throttle import Seldom
from konverse.bridge.runtime.settings import ReaderOptions
from konverse.bridge.runtime.threads import in_background
from konverse.dialog.owner.events import Halted
from konverse.schemas.errors import KonverseError, PartitionHalted, QueueNotFound, SteppedDown, TopicMismatch
from konverse.schemas.identifiers import consumer_group

from .joining import Joining
from .orphans import Forsaken, Orphans

log: Final = logging.getLogger("konverse.reader")

CLAIM_AGAIN_S: Final = 0.5
HEAR_EVERY_S: Final = 0.1
"""The group is listened to at least so often, however much there is to hand out. It takes a record each time."""

AWAY_S: Final = 5.0
"""A reader says that Kafka is away when a question to it has had no answer for so long."""

AWAITED_WAIT_S: Final = 0.005
"""A fetch waits no longer while outputs to one destination wait for those to another, or somebody for a commit."""

LEAVE_S: Final = 30.0
"""For the farewell to a group: the brokers may be away, and the client asks them more than once."""

NOTHING_S: Final = 15.0
"""A reader that has had no partition for so long says so."""

ORPHANED_WAIT_S: Final = 0.02
"""How long the group's consumer may be waited for while another one reads, too."""


class Share:
    """The consumer of a reader, and which partitions it takes."""

    def __init__(self, kafka: Kafka, owning: Owning, options: ReaderOptions, lock: threading.RLock) -> None:
        self._owning = owning
        self._options = options
        self._lock = lock
        self._closed = False
        self._assigned: set[int] = set()
        self._paused: set[int] = set()
        self._claim_again_at: dict[int, float] = {}
        self._topics = Topics(kafka)
        self._health = kafka.health
        self._away = Seldom()
        self._events = Seldom()
        self._nothing = Seldom()
        self._nothing_since = time.monotonic()
        self._watch = TopicWatch(kafka, owning.queue)
        self.joining = Joining(group=options.partitions is None)
        self.failure: KonverseError | None = None
        """What ends the reader."""
        self._lost = 0
        """Partitions that were lost without being given back, so far."""
        self._hear_at = 0.0
        self._kafka = kafka
        self._orphans = (Forsaken if options.substitute else Orphans)(kafka, owning.queue)
        self._transactions = OpenTransactions(kafka, owning.queue)
        self._group = consumer_group(self._topic, owning.queue.subscription)
        self.consumer = self._subscribe()

    @property
    def _topic(self) -> str:
        return self._owning.queue.topic

    @property
    def lost(self) -> int:
        """Losses of work that was finished here, or may have been, so far."""
        return self._lost + self._owning.late.count

    @property
    def rests(self) -> bool:
        """Nothing is expected of the group, and of Kafka, any more: the reader may be idle."""
        return self.joining.over(self.consumer, self._owning.owners.values())

    @property
    def waiting(self) -> bool:
        """Partitions are ours to take and not taken yet."""
        return bool(self._claim_again_at)

    def check(self) -> None:
        """Raise what has ended the reader, each time anew: several threads may ask."""
        if self.failure is not None:
            raise type(self.failure)(*self.failure.args)

    def close(self) -> None:
        """Leave the group."""
        self._closed = True
        self._orphans.close()
        self._leave(self.consumer)

    def _leave(self, consumer: Consumer) -> None:
        """In a thread, and not waited for without end; what it calls back does nothing.

        A client that is given partitions while it leaves was seen to wait for itself for ever, in its own call of
        `assign`. The group takes what it holds from it as from who is silent.
        """
        leaving = in_background("konverse-leaving", consumer.close)
        leaving.join(LEAVE_S)
        if leaving.is_alive():
            log.warning(
                "the Kafka client of queue %r has not left its group within %.0f s; it is left alone, and its "
                "partitions go to others when the group misses it (setting max.poll.interval.ms)",
                self._owning.queue.name,
                LEAVE_S,
            )

    def fetch(self, wait_s: float, records: int = FETCH_RECORDS) -> bool:
        """Take new data from Kafka, waiting for the first record only; callbacks of the group run in here."""
        self._hear_at = time.monotonic() + wait_s + HEAR_EVERY_S
        if self._orphans.numbers:
            wait_s = min(wait_s, ORPHANED_WAIT_S)
        if self._owning.gated or self._owning.hurries():
            wait_s = min(wait_s, AWAITED_WAIT_S)
        first = self.consumer.poll(wait_s) if wait_s else None
        messages = self._fetch_behind(first) if wait_s else self.consumer.consume(records, 0)
        messages += self._orphans.fetch(records)
        with self._lock:
            events = self._owning.feed(messages)
            del messages, first  # before what comes of them is made
            self._flow()
            self._say_nothing()
            for event in events:  # after the records that came with them, which do not come again
                try:
                    self._kafka.check_event(event, self._group if self.joining.refused(self.consumer) else "")
                except LogTruncated:
                    self._owning.truncated(event.partition() or 0)
                except ConsumerFailed as failure:
                    self._begin_with_another(failure)
                    break
                else:
                    self._say_event(event)
            return self._owning.ingest() > 0

    def _fetch_behind(self, first: Message | None) -> list[Message]:
        """A record and what waits behind it; without it when its partition changed hands in between."""
        if first is None:
            return []
        number, owners = first.partition() or 0, self._owning.owners
        owner = owners.get(number)
        messages = self.consumer.consume(FETCH_RECORDS, 0)
        return [first, *messages] if owners.get(number) is owner else messages

    def hear(self) -> bool:
        """Let the group call back, which it does nowhere else; a member that is not heard of is thrown out."""
        return time.monotonic() >= self._hear_at and self.fetch(0.0, 1)

    def _flow(self) -> None:
        """Stop fetching for owners whose look-ahead is full; go on when it has room again."""
        for number, owner in self._owning.owners.items():
            full = len(owner.fold.data) > 0 and not owner.has_room
            place = [TopicPartition(self._topic, number)]
            if full and number not in self._paused:
                self._consumer_of(number).pause(place)
                self._paused.add(number)
            elif not full and number in self._paused:
                self._consumer_of(number).resume(place)
                self._paused.discard(number)

    def _say_nothing(self) -> None:
        """More readers than partitions: some have none, and would wait in silence."""
        if self._assigned or self._orphans.numbers or self._options.standby or self._options.substitute:
            self._nothing_since = time.monotonic()
            self._nothing.over()
        elif time.monotonic() - self._nothing_since > NOTHING_S and self._nothing.due():
            queue = self._owning.queue
            log.warning(
                "this reader of queue %r has no partition: other readers have all %d, or Kafka's group has not come to "
                "rest yet. It goes on when one of them leaves. One reader serves several threads (`reader.run`); a "
                "queue with more partitions serves more readers",
                queue.name,
                queue.partitions,
            )

    def _subscribe(self) -> Consumer:
        kafka, topic, partitions = self._kafka, self._topic, self._options.partitions
        if partitions is None:
            consumer = kafka.group_consumer(self._group)
            consumer.subscribe([topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost)
            return consumer
        self._assigned.update(partitions)
        places, waiting = self._places(partitions)
        consumer = kafka.consumer()
        consumer.assign(places)
        consumer.pause(waiting)
        return consumer

    def _begin_with_another(self, failure: ConsumerFailed) -> None:
        """The consumer takes part in nothing any more, for instance because Kafka has lost its group: begin anew."""
        log.warning("queue %r is read by another consumer from now on: %s", self._owning.queue.name, failure)
        self._orphans.close()  # it may be the one that failed
        for number in [*self._assigned, *self._owning.owners]:
            self._owning.give_back(number)
            self._let_go(number)
        failed, self.consumer = self.consumer, self._subscribe()
        self._leave(failed)

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if self._has_left(consumer):  # the group gave us something while we left it
            return
        with self._lock:
            numbers = [place.partition for place in partitions]
            for number in self._orphans.numbers.intersection(numbers):
                self._owning.give_back(number)  # to ourselves: the group's consumer reads it from now on
                self._let_go(number)
            known = [number for number in numbers if number < self._owning.queue.partitions]
            self._assigned.update(known)
            places, waiting = self._places(known)
            if places:
                self.joining.given()
            added = [TopicPartition(self._topic, number, 0) for number in numbers if number not in known]
        consumer.incremental_assign([*places, *added])
        consumer.pause([*waiting, *added])
        consumer.resume([place for place in places if place not in waiting])  # the client does not forget a pause

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Handlers that are not done yet lose their work; the next owner receives the messages again."""
        if self._has_left(consumer):  # all of it was given back, by who waits for this with the lock
            return
        with self._lock:
            for place in partitions:
                self._owning.give_back(place.partition)
                self._let_go(place.partition)

    def _on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if self._has_left(consumer):
            return
        with self._lock:
            for place in partitions:
                self._lost += place.partition in self._owning.owners
                self._owning.drop(place.partition)
                self._let_go(place.partition)

    def _has_left(self, consumer: Consumer) -> bool:
        return self._closed or consumer is not self.consumer

    def _let_go(self, number: int) -> None:
        self._orphans.leave(number)
        self._assigned.discard(number)
        self._paused.discard(number)
        self._claim_again_at.pop(number, None)

    def _places(self, numbers: Sequence[int]) -> tuple[list[TopicPartition], list[TopicPartition]]:
        """Claim partitions: where each is read from, and which of these places are not ours yet and wait, paused.

        They wait at the log's beginning, not at its end: that the client would ask Kafka for, and take the answer for
        its position even when it was told another one meanwhile.
        """
        claimed = {number: self._claim(number) for number in numbers}
        places = {number: TopicPartition(self._topic, number, offset or 0) for number, offset in claimed.items()}
        return [*places.values()], [places[number] for number, offset in claimed.items() if offset is None]

    def _claim(self, number: int) -> int | None:
        """Take a partition over; from where to read it, or None when that failed: it is tried again."""
        try:
            offset = self._owning.take_over(number)
        except (KonverseError, KafkaException) as error:
            if self._events.due(("claim", number)):
                queue = self._owning.queue.name
                log.warning("partition %d of queue %r cannot be recovered yet: %s", number, queue, error)
            offset = None
        if offset is None:
            self._claim_again_at[number] = time.monotonic() + CLAIM_AGAIN_S
        return offset

    def see_stopped(self) -> None:
        """Lost partitions: claimed again while the group suggests them, a failure when the caller named them."""
        for number, owner, effect in self._owning.stopped():
            if self._owning.owners.get(number) is owner:
                self._owning.drop(number)
                self._orphans.leave(number)  # claimed by somebody with better right, or found again by its silence
            self._lost += owner.counters.claims  # what never led had nothing to lose
            if isinstance(effect, Halted):
                self.failure = PartitionHalted(effect.reason)
            elif effect.fenced and self._options.partitions:
                self.failure = SteppedDown(
                    f"partition {number} of queue {self._owning.queue.name!r} was claimed by another process; "
                    "what was not committed is received there. Give each process partitions of its own"
                )
            elif number in self._assigned and number not in self._owning.owners:
                self._claim_again_at.setdefault(number, time.monotonic() + CLAIM_AGAIN_S)
        try:
            self._watch.look()
        except TopicMismatch as error:
            self.failure = error
        if self._owning.sweeping.dropped:
            self.failure = QueueNotFound(f"queue {self._owning.queue.name!r} was dropped while it was read")
        self._say_how_kafka_is()
        self._transactions.look(self._owning.owners)
        while self._owning.misplaced:
            number = self._owning.misplaced.pop()
            current = self._owning.owners.get(number)
            if current is not None:  # maybe another one than said so
                self._read_from(number, current.fold.data_to)
        due = [number for number, at in self._claim_again_at.items() if at <= time.monotonic()]
        if due:
            self._claim_again(due)
        if self._options.partitions is None or self._options.substitute:
            for number in self._orphans.look({*self._assigned, *self._owning.owners}):
                self._adopt(number)

    def _adopt(self, number: int) -> None:
        """Claim a partition that nobody looks after, whomever the group has given it to."""
        name = self._owning.queue.name
        log.log(
            logging.INFO if self._options.substitute else logging.WARNING,
            "nobody has looked after partition %d of queue %r for %.0f s (silence_timeout_s); this reader claims it, "
            "until the reader does to which Kafka's group %s has given it",
            number,
            name,
            self._orphans.timeout_s,
            self._group,
        )
        try:
            offset = self._owning.take_over(number)
            if offset is not None:
                self._orphans.adopt(number, offset)
                self.joining.given()
        except (KonverseError, KafkaException) as error:
            log.warning("partition %d of queue %r cannot be recovered yet: %s", number, name, error)
            self._orphans.failed(number, self._owning.drop(number))

    def _consumer_of(self, number: int) -> Consumer:
        return self._orphans.consumer_of(number) or self.consumer

    def _say_how_kafka_is(self) -> None:
        name, silent_s = self._owning.queue.name, self._watch.silent_s
        if silent_s > AWAY_S:
            if self._away.due():
                log.warning(
                    "Kafka has not answered for %.0f s; queue %r waits (last failure: %s)", silent_s, name, self._health
                )
        elif silent_s == 0.0 and self._away.over():
            log.warning("Kafka answers again; queue %r goes on", name)

    def _say_event(self, event: Message) -> None:
        """What the client says and goes on after, as far as anybody knows."""
        error = event.error()
        if error is not None and (code := error.code()) != NO_GROUP and self._events.due((event.partition(), code)):
            log.warning("queue %r, partition %s: %s", self._owning.queue.name, event.partition(), error.str())

    def _read_from(self, number: int, offset: int) -> None:
        """Go on elsewhere; when the client cannot, the partition is claimed again later.

        It is assigned anew, as a consumer whose offset was out of range does not read the partition any more.
        """
        place = [TopicPartition(self._topic, number, offset)]
        try:
            consumer = self._consumer_of(number)
            consumer.incremental_unassign(place)
            consumer.incremental_assign(place)
            consumer.resume(place)
        except KafkaException as error:
            log.warning("%s/%d cannot be read from %d yet: %s", self._topic, number, offset, error)
            self._owning.give_back(number)
            if number in self._assigned:
                self._claim_again_at[number] = time.monotonic() + CLAIM_AGAIN_S
            else:
                self._orphans.leave(number)
        else:
            self._paused.discard(number)

    def _claim_again(self, numbers: list[int]) -> None:
        try:
            self._topics.same_queue(self._owning.queue)
        except TopicMismatch as error:
            self.failure = error
            return
        except KonverseError as error:
            log.warning("partitions of queue %r cannot be claimed yet: %s", self._owning.queue.name, error)
            self._claim_again_at.update(dict.fromkeys(numbers, time.monotonic() + CLAIM_AGAIN_S))
            return
        for number in numbers:
            del self._claim_again_at[number]
            offset = self._claim(number)
            if offset is not None:
                self._read_from(number, offset)
