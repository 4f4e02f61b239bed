"""The partitions of a queue that a reader takes: suggested by a consumer group, or named by the caller.

The group's callbacks run inside the consumer's `poll` and `consume`, so claims, recoveries and releases happen there. A
partition is owned here when its journal says so, whatever the group says.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Final

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from konverse.bridge.kafka.clients import FETCH_RECORDS, NO_GROUP, ConsumerFailed, DesertionWatch, Kafka, LogTruncated
from konverse.bridge.kafka.open_transactions import OpenTransactions
from konverse.bridge.kafka.topic_watch import TopicWatch
from konverse.bridge.kafka.topics import Topics
from konverse.bridge.owner.driver import OwnerDriver
from konverse.bridge.runtime.log_throttle import LogThrottle
from konverse.bridge.runtime.settings import ReaderOptions
from konverse.bridge.runtime.threads import in_background
from konverse.dialog.owner.events import LEADING, Halted, Stopped
from konverse.dialog.owner.owner import Owner
from konverse.schemas.counting import counted
from konverse.schemas.errors import KonverseError, PartitionHalted, QueueNotFound, SteppedDown, TopicMismatch
from konverse.schemas.identifiers import consumer_group

from .join_wait import JoinWait
from .orphans import Orphans, UnownedPartitions

log: Final = logging.getLogger("konverse.reader")

CLAIM_AGAIN_S: Final = 0.5
POLL_EVERY_S: Final = 0.1
"""The consumer is polled at least this often, so that the group's callbacks run. Each poll takes up to one record."""

SILENCE_WARNING_S: Final = 5.0
"""A reader warns that Kafka does not answer when it has had no answer for this long."""

AWAITED_WAIT_S: Final = 0.005
"""Longest wait of a fetch while outputs wait for earlier outputs to another destination, or senders for a commit."""

LEAVE_S: Final = 30.0
"""Longest wait for a consumer to leave its group: brokers may be unreachable, and the client asks more than once."""

LEAVING_S: Final = 10.0
"""How long a consumer that leaves its group may still have partitions. The rest of LEAVE_S is for closing it."""
LEAVING_POLL_S: Final = 0.01

NO_PARTITION_WARNING_S: Final = 15.0
"""A reader that has had no partition for this long warns."""

ORPHANED_WAIT_S: Final = 0.02
"""Longest wait for the group's consumer while orphaned partitions are read by another one."""


class Assignment:
    """The consumer of a reader, and the partitions that the reader takes."""

    def __init__(self, kafka: Kafka, driver: OwnerDriver, options: ReaderOptions, lock: threading.RLock) -> None:
        self._driver = driver
        self._options = options
        self._lock = lock
        self._closed = False
        self._assigned: set[int] = set()
        self._paused: set[int] = set()
        self._claim_again_at: dict[int, float] = {}
        self._topics = Topics(kafka)
        self._health = kafka.health
        self._away = LogThrottle()
        self._events = LogThrottle()
        self._nothing = LogThrottle()
        self._nothing_since = time.monotonic()
        self._watch = TopicWatch(kafka, driver.queue)
        self.join_wait = JoinWait(group=options.partitions is None)
        self.failure: KonverseError | None = None
        """The error that ends the reader."""
        self._lost = 0
        """Number of partitions that were lost without being given back."""
        self._poll_at = 0.0
        self._kafka = kafka
        self._desertion = DesertionWatch(kafka)
        self._failed: ConsumerFailed | None = None
        """Why the consumer is being replaced."""
        self._leaving: list[threading.Thread] = []
        """Threads that close consumers."""
        self._orphans = (UnownedPartitions if options.substitute else Orphans)(kafka, driver.queue)
        self._transactions = OpenTransactions(kafka, driver.queue.topic)
        self._group = consumer_group(self._topic, driver.queue.subscription)
        self.consumer = self._subscribe()

    @property
    def _topic(self) -> str:
        return self._driver.queue.topic

    @property
    def lost(self) -> int:
        """How often finished work was lost, or may have been."""
        return self._lost + self._driver.late.count

    @property
    def may_be_idle(self) -> bool:
        """Whether the reader may count as idle: the group has assigned its partitions and existing data was fetched."""
        return self.join_wait.over(self.consumer, self._driver.owners.values())

    def ends(self) -> dict[int, int]:
        """Partition -> end of its data log at the last fetch, as far as the client knows it."""
        found: dict[int, int] = {}
        for number in self._driver.owners:
            with suppress(KafkaException):  # nothing was fetched from it yet
                place = TopicPartition(self._topic, number)
                found[number] = self._consumer_of(number).get_watermark_offsets(place, cached=True)[1]
        return found

    def read_to(self, partition: int) -> int | None:
        """Next offset to read in the data log of a partition; None if this reader does not own the partition."""
        owner = self._driver.owners.get(partition)
        return None if owner is None else owner.fold.data_to

    @property
    def waiting(self) -> bool:
        """Whether partitions of this reader still have to be claimed."""
        return bool(self._claim_again_at)

    def check(self) -> None:
        """Raise the error that ended the reader: a new object each time, as several threads may ask."""
        if self.failure is not None:
            raise type(self.failure)(*self.failure.args)

    def close(self) -> None:
        """Begin to leave the group."""
        self._closed = True
        self._close_orphans()
        self._leave(self.consumer)

    def _close_orphans(self) -> None:
        consumer = self._orphans.close()
        if consumer is not None:
            self._close_later(consumer, self._orphans.desertion)

    def _leave(self, consumer: Consumer) -> None:
        """Leave the group, if the consumer is in one, and close the consumer. From then on its callbacks do nothing."""
        self._close_later(consumer, self._desertion, _leave_group if self._options.partitions is None else None)

    def _close_later(
        self, consumer: Consumer, desertion: DesertionWatch, first: Callable[[Consumer], None] | None = None
    ) -> None:
        """Close a consumer in a thread of its own, since brokers may be unreachable. Calls `first` before closing."""

        def close() -> None:
            desertion.wait()
            try:
                if first is not None:
                    first(consumer)
            finally:
                consumer.close()

        alive = [thread for thread in self._leaving if thread.is_alive()]
        self._leaving = [*alive, in_background("konverse-leaving", close)]

    def wait_until_left(self) -> None:
        """Wait at most LEAVE_S until the consumers are closed. Call it without the reader's lock.

        If they are not, the group reassigns their partitions, as it does for any silent member.
        """
        deadline = time.monotonic() + LEAVE_S
        for thread in self._leaving:
            thread.join(max(0.0, deadline - time.monotonic()))
        if any(thread.is_alive() for thread in self._leaving):
            log.warning(
                "the Kafka client of queue %r has not left its consumer group within %.0f s and is abandoned; the "
                "group reassigns its partitions after a timeout (setting max.poll.interval.ms)",
                self._driver.queue.name,
                LEAVE_S,
            )

    @contextmanager
    def _positions_kept(self) -> Iterator[None]:
        """If an exception ends the block, read every partition again from the position of its owner.

        Records that were taken from the client may have reached no owner, and the client may have been given no
        position in a partition that was just claimed.
        """
        try:
            yield
        except BaseException:
            self._driver.misplaced.update(self._driver.owners)
            raise

    def fetch(self, wait_s: float, records: int = FETCH_RECORDS) -> bool:
        """Take new data from Kafka. Waits up to `wait_s` for the first record only. The group's callbacks run here.

        Returns True when owners have ingested something.
        """
        self._poll_at = time.monotonic() + wait_s + POLL_EVERY_S
        if self._orphans.numbers:
            wait_s = min(wait_s, ORPHANED_WAIT_S)
        if self._driver.gated or self._driver.hurries():
            wait_s = min(wait_s, AWAITED_WAIT_S)
        with self._positions_kept():
            first = self.consumer.poll(wait_s) if wait_s else None
            messages = self._fetch_behind(first) if wait_s else self.consumer.consume(records, 0)
            self._desertion.brought(messages)
            messages += self._orphans.fetch(records)
            with self._lock:
                events = self._driver.feed(messages)
                del messages, first  # frees them before owners make objects of their columns
                self._pause_and_resume()
                self._warn_without_partition()
                self._take_events(events)  # after the records that came with them, which are not delivered again
                return self._driver.ingest() > 0

    def _take_events(self, events: list[Message]) -> None:
        for event in events:
            try:
                self._kafka.check_event(event, self._group if self.join_wait.refused(self.consumer) else "")
            except LogTruncated as why:
                self._driver.truncated(event.partition() or 0, why)
            except ConsumerFailed as failure:
                self._replace_consumer(failure)
                break
            else:
                self._log_event(event)

    def _fetch_behind(self, first: Message | None) -> list[Message]:
        """The first record and those after it. If its partition changed hands meanwhile, the first is left out."""
        if first is None:
            return []
        number, owners = first.partition() or 0, self._driver.owners
        owner = owners.get(number)
        messages = self.consumer.consume(FETCH_RECORDS, 0)
        return [first, *messages] if owners.get(number) is owner else messages

    def poll_when_due(self) -> bool:
        """Poll the consumer when that is due: the group's callbacks run only there, and it expels a silent member."""
        return time.monotonic() >= self._poll_at and self.fetch(0.0, 1)

    def _pause_and_resume(self) -> None:
        """Pause the partitions of owners whose look-ahead is full; resume them when it has room again."""
        for number, owner in self._driver.owners.items():
            full = len(owner.fold.data) > 0 and not owner.has_room
            place = [TopicPartition(self._topic, number)]
            if full and number not in self._paused:
                self._consumer_of(number).pause(place)
                self._paused.add(number)
            elif not full and number in self._paused:
                self._consumer_of(number).resume(place)
                self._paused.discard(number)

    def _warn_without_partition(self) -> None:
        """Warn when this reader has no partition: with more readers than partitions, some would wait silently."""
        if self._assigned or self._orphans.numbers or self._options.standby or self._options.substitute:
            self._nothing_since = time.monotonic()
            self._nothing.over()
        elif time.monotonic() - self._nothing_since > NO_PARTITION_WARNING_S and self._nothing.due():
            queue = self._driver.queue
            log.warning(
                "this reader of queue %r has no partition: other readers own all that the queue has (%s), or the "
                "consumer group is still rebalancing. It gets one when another reader leaves. One reader serves "
                "several threads (`reader.run`); a queue with more partitions serves more readers",
                queue.name,
                counted(queue.partitions, "partition"),
            )

    def _subscribe(self) -> Consumer:
        kafka, topic, partitions = self._kafka, self._topic, self._options.partitions
        if partitions is None:
            consumer = kafka.group_consumer(self._group)
            consumer.subscribe([topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost)
            return consumer
        self._driver.leave_group_out()
        self._assign(partitions)
        places, waiting = self._places(partitions)
        consumer = kafka.consumer()
        consumer.assign(places)
        consumer.pause(waiting)
        return consumer

    def _replace_consumer(self, failure: ConsumerFailed) -> None:
        """Replace a consumer that has failed for good, for instance because Kafka has lost its group."""
        if self._failed is None:
            log.warning("the consumer of queue %r failed and was replaced: %s", self._driver.queue.name, failure)
        self._failed = failure  # until the replacement is complete: an interrupted call is repeated
        self._close_orphans()  # their consumer may be the one that failed
        numbers = {*self._assigned, *self._driver.owners}
        self._driver.give_back(*numbers)
        for number in numbers:
            self._forget(number)
        failed, self.consumer = self.consumer, self._subscribe()
        self._failed = None
        self._leave(failed)

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if self._has_left(consumer):  # the group assigned something while the consumer left it
            return
        with self._lock:
            numbers = [place.partition for place in partitions]
            known = [number for number in numbers if number < self._driver.queue.partitions]
            self._assign(known)
            adopted = self._orphans.numbers.intersection(numbers)
            self._driver.give_back(*adopted)  # claimed again below: the group's consumer reads them from now on
            for number in adopted:
                self._orphans.drop(number)
                self._paused.discard(number)
            places, waiting = self._places(known)
            if places:
                self.join_wait.given()
            added = [TopicPartition(self._topic, number, 0) for number in numbers if number not in known]
        consumer.incremental_assign([*places, *added])
        consumer.pause([*waiting, *added])
        consumer.resume([place for place in places if place not in waiting])  # the client remembers a pause

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Give partitions back. The work of handlers that still run is lost; the next owner redelivers its messages."""
        if self._has_left(consumer):  # everything was given back before
            return
        with self._lock, ExitStack() as exits:  # all of them, even if one is interrupted
            numbers = [place.partition for place in partitions]
            for number in numbers:
                exits.callback(self._forget, number)
            exits.callback(self._driver.give_back, *numbers)

    def _on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if self._has_left(consumer):
            return
        with self._lock:
            for place in partitions:
                self._lost += place.partition in self._driver.owners
                self._driver.drop(place.partition)
                self._forget(place.partition)

    def _has_left(self, consumer: Consumer) -> bool:
        return self._closed or consumer is not self.consumer

    def _forget(self, number: int) -> None:
        self._orphans.drop(number)
        self._assigned.discard(number)
        self._paused.discard(number)
        self._claim_again_at.pop(number, None)

    def _places(self, numbers: Sequence[int]) -> tuple[list[TopicPartition], list[TopicPartition]]:
        """Claim partitions. Returns the place to read each from, and the places to pause until a claim succeeds.

        A paused partition stands at the beginning of its log, not at the end: the client would ask Kafka for the end,
        and take the answer as its position even if it was given another position meanwhile.
        """
        claimed = {number: self._claim(number) for number in numbers}
        places = {number: TopicPartition(self._topic, number, offset or 0) for number, offset in claimed.items()}
        return [*places.values()], [places[number] for number, offset in claimed.items() if offset is None]

    def _claim(self, number: int) -> int | None:
        """Take a partition over. Returns the offset to read from; None when that failed and will be tried again."""
        try:
            offset = self._driver.take_over(number)
        except (KonverseError, KafkaException) as error:
            if self._events.due(("claim", number)):
                queue = self._driver.queue.name
                log.warning("partition %d of queue %r cannot be recovered yet: %s", number, queue, error)
            offset = None
        if offset is None:
            self._claim_later([number])
        else:
            del self._claim_again_at[number]
        return offset

    def _assign(self, numbers: Sequence[int]) -> None:
        """Note partitions that this reader is to own. `maintain` claims those whose claim is interrupted."""
        self._assigned.update(numbers)
        self._claim_later(numbers)

    def _claim_later(self, numbers: Sequence[int]) -> None:
        self._claim_again_at.update(dict.fromkeys(numbers, time.monotonic() + CLAIM_AGAIN_S))

    def maintain(self) -> None:
        """Deal with lost owners, changed topics, wrong positions of the consumer, claims that are due, and orphans.

        A lost partition is claimed again while the group suggests it. If the caller named it and another process has
        claimed it, the reader fails.
        """
        with self._positions_kept():
            self._maintain()

    def _maintain(self) -> None:
        for number, owner, effect in self._driver.stopped():
            self._drop_stopped(number, owner, effect)
        try:
            self._watch.poll()
        except TopicMismatch as error:
            self.failure = error
        if self._driver.catalog_changes.dropped:
            self.failure = QueueNotFound(f"queue {self._driver.queue.name!r} was dropped while it was read")
        self._log_kafka_health()
        self._replace_failed()
        self._transactions.poll(self._driver.owners)
        while self._driver.misplaced:
            number = self._driver.misplaced.pop()
            current = self._driver.owners.get(number)
            if current is not None and current.phase is LEADING:  # it may have replaced the owner that asked
                self._read_from(number, current.fold.data_to)
        due = [number for number, at in self._claim_again_at.items() if at <= time.monotonic()]
        if due:
            self._claim_again(due)
        if self._options.partitions is None or self._options.substitute:
            for number in self._orphans.find({*self._assigned, *self._driver.owners}):
                self._adopt(number)

    def _drop_stopped(self, number: int, owner: Owner, effect: Halted | Stopped) -> None:
        """Drop an owner that leads no more, and note whether this reader fails or claims the partition again."""
        if self._driver.owners.get(number) is owner:
            self._driver.drop(number)
            self._orphans.drop(number)  # another reader has claimed it, or `find` returns it again
        self._lost += owner.counters.claims  # an owner that never led had nothing to lose
        if isinstance(effect, Halted):
            self.failure = self._halted(effect.reason)
        elif effect.fenced and self._options.partitions:
            self.failure = SteppedDown(
                f"partition {number} of queue {self._driver.queue.name!r} was claimed by another process; "
                "uncommitted messages are received there again. Give each process partitions of its own"
            )
        elif number in self._assigned and number not in self._driver.owners:
            pause_s = CLAIM_AGAIN_S + self._driver.validator_pause_s
            self._claim_again_at.setdefault(number, time.monotonic() + pause_s)

    def _halted(self, reason: str) -> KonverseError:
        """The error of a halted partition: TopicMismatch if a topic is no longer the queue's, else PartitionHalted."""
        try:
            self._topics.same_queue(self._driver.queue)
        except TopicMismatch as error:
            return error
        except KonverseError as error:
            log.warning("the topics of queue %r cannot be checked: %s", self._driver.queue.name, error)
        return PartitionHalted(reason)

    def _adopt(self, number: int) -> None:
        """Claim a partition that has no live owner, whichever reader the group has assigned it to."""
        name = self._driver.queue.name
        log.log(
            logging.INFO if self._options.substitute else logging.WARNING,
            "partition %d of queue %r has had no live owner for %.0f s (silence_timeout_s); this reader claims it. It "
            "gives the partition up when the reader assigned by consumer group %s claims it",
            number,
            name,
            self._orphans.timeout_s,
            self._group,
        )
        try:
            offset = self._driver.take_over(number)
            if offset is None:
                self._orphans.failed(number, self._driver.owners.get(number))
            else:
                self._orphans.adopt(number, offset)
                self.join_wait.given()
        except (KonverseError, KafkaException) as error:
            log.warning("partition %d of queue %r cannot be recovered yet: %s", number, name, error)
            self._orphans.failed(number, self._driver.drop(number))
            self._orphans.drop(number)

    def _consumer_of(self, number: int) -> Consumer:
        return self._orphans.consumer_of(number) or self.consumer

    def _log_kafka_health(self) -> None:
        name, silent_s = self._driver.queue.name, self._watch.silent_s
        if silent_s > SILENCE_WARNING_S:
            if self._away.due():
                log.warning(
                    "Kafka has not answered for %.0f s; queue %r waits (last failure: %s)", silent_s, name, self._health
                )
        elif silent_s == 0.0 and self._away.over():
            log.warning("Kafka answers again; queue %r continues", name)

    def _replace_failed(self) -> None:
        """Replace a consumer that has lost all its brokers for good, or whose replacement was interrupted."""
        if self._desertion.finds(self.consumer, self._topic) or self._orphans.is_deserted():
            self._replace_consumer(ConsumerFailed("Kafka's client has lost all brokers"))
        elif self._failed is not None:
            self._replace_consumer(self._failed)

    def _log_event(self, event: Message) -> None:
        """Log an event that does not stop the client."""
        error = event.error()
        if error is not None and (code := error.code()) != NO_GROUP and self._events.due((event.partition(), code)):
            log.warning("queue %r, partition %s: %s", self._driver.queue.name, event.partition(), error.str())

    def _read_from(self, number: int, offset: int) -> None:
        """Read a partition from another offset. If the client cannot, the partition is claimed again later.

        The partition is unassigned and assigned again, because a consumer whose offset was out of range no longer reads
        it.
        """
        if number not in self._assigned and number not in self._orphans.numbers:
            self._driver.give_back(number)  # its adoption was interrupted
            return
        place = [TopicPartition(self._topic, number, offset)]
        consumer = self._consumer_of(number)
        try:
            with suppress(KafkaException):  # the partition was not assigned
                consumer.incremental_unassign(place)
            consumer.incremental_assign(place)
            consumer.resume(place)
        except KafkaException as error:
            log.warning("%s/%d cannot be read from offset %d yet: %s", self._topic, number, offset, error)
            self._driver.give_back(number)
            if number in self._assigned:
                self._claim_later([number])
            else:
                self._orphans.drop(number)
        else:
            self._paused.discard(number)

    def _claim_again(self, numbers: list[int]) -> None:
        try:
            self._topics.same_queue(self._driver.queue)
        except TopicMismatch as error:
            self.failure = error
            return
        except KonverseError as error:
            log.warning("partitions of queue %r cannot be claimed yet: %s", self._driver.queue.name, error)
            self._claim_later(numbers)
            return
        for number in numbers:
            offset = self._claim(number)
            if offset is not None:
                self._read_from(number, offset)


def _leave_group(consumer: Consumer) -> None:
    """Leave the consumer group, so that closing the consumer runs no callback of it.

    A group may assign partitions to a consumer while it is closed. confluent-kafka then calls `assign` in librdkafka
    with Python's interpreter lock held, and librdkafka, which is ending its part in the group, may never answer: all
    threads of the process stand still. `poll` runs the same callbacks while librdkafka still answers.
    """
    deadline = time.monotonic() + LEAVING_S
    with suppress(KafkaException):  # the client has failed for good: it is in no group
        consumer.unsubscribe()
        while consumer.poll(0.0) is not None or consumer.assignment():
            if time.monotonic() > deadline:
                break
            consumer.poll(LEAVING_POLL_S)
