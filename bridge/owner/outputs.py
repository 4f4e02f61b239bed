"""Writes the outputs of owners to the destinations' topics: one producer is filled, left to run empty, filled again.

A producer that ran empty without a reported failure proves that Kafka has everything (protocol.md section 4). But a
topic that was deleted and created again accepts records like the first one. So before outputs are reported as
delivered, Kafka is asked for the ids of the topics. Outputs that went to a topic other than their queue's are withheld:
they are reported as delivered if the queue was dropped, and sent again once the queue's own topic is back.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from itertools import groupby
from typing import Any, Final

from confluent_kafka import KafkaException, Message, Producer

from konverse.bridge.catalog.destinations import Destinations, Question, destination_of
from konverse.bridge.kafka.clients import DesertionWatch, Headers, Kafka, NoProducer, discard
from konverse.bridge.kafka.refusals import Need
from konverse.bridge.kafka.topic_watch import WATCH_EVERY_S
from konverse.bridge.runtime.log_throttle import LogThrottle
from konverse.dialog.owner.emitter import Emit
from konverse.dialog.owner.events import Drained, ProducerReplaced
from konverse.dialog.owner.owner import Owner
from konverse.schemas.identifiers import Address
from konverse.schemas.wire.envelope import HEADER

log: Final = logging.getLogger("konverse.owner")

LINGER_MS: Final = 1
"""As long as handing over a window takes. Without lingering, the first records leave alone and the others in a second
request, which costs Kafka a third more. A longer time delays applications that send single messages in a loop."""

ROOM_S: Final = 5.0
"""How long an output waits for room in the producer's buffer before its destination is paused."""


class Outputs:
    """The outputs of all owners of a reader, and the producer that they share."""

    def __init__(
        self,
        kafka: Kafka,
        owners: Mapping[int, Owner],
        step: Callable[[Owner, Drained | ProducerReplaced], None],
        destinations: Destinations,
    ) -> None:
        self._kafka = kafka
        self._destinations = destinations
        self._owners = owners
        self._step = step
        self._producer: Producer = kafka.data_producer(linger_ms=LINGER_MS)
        self._emits: deque[tuple[Owner, Emit]] = deque()
        """Outputs that wait until the producer has run empty."""
        self._handed: list[tuple[Owner, Address]] = []
        """Destinations of the outputs in the producer; kept after it ran empty until Kafka reports the topics' ids."""
        self._question: Question | None = None
        self._withheld: list[tuple[Owner, Address]] = []
        """Destinations whose outputs went to a topic that is not their queue's: not reported as delivered."""
        self._homeless: list[tuple[Owner, Address]] = []
        """Destinations without a known queue: their outputs wait until the catalog has been read."""
        self._read_again_at = 0.0
        self._astray = LogThrottle()
        self._withholds = LogThrottle()
        self._recheck_at = 0.0
        self._desertion = DesertionWatch(kafka)
        self._undelivered = 0
        """Number of records in the producer when it was last seen to deliver some."""
        self._interrupted = False
        """An exception from outside, such as Ctrl-C, has cut off a call: the report of a failed record may be lost."""
        self._refusal: tuple[str, int] | None = None
        self._refusals = LogThrottle()

    def add(self, owner: Owner, effect: Emit) -> None:
        """Queue outputs for the next `pump` that finds the producer empty."""
        self._emits.append((owner, effect))

    def pump(self) -> None:
        """Report delivered outputs to their owners, and hand waiting outputs to the producer.

        After an interrupted call everything undelivered is sent again. The client drops the report whose callback is
        interrupted, so a producer that has run empty would prove nothing.
        """
        try:
            if self._interrupted:
                self.replace_producer()
                self._interrupted = False
            self._pump()
        except BaseException:
            self._interrupted = True
            raise

    def _pump(self) -> None:
        if self._handed and self._question is None:
            self._poll()
            if self._refusal is not None:
                self.replace_producer(self._refusal)
            elif self._is_deserted():
                log.warning(
                    "the producer of outputs has lost all brokers; a new one sends the unacknowledged outputs again"
                )
                self.replace_producer()
            if self._handed and len(self._producer) == 0:
                self._question = self._destinations.ask(address for _, address in self._handed)
        if self._question is not None and self._question.done:
            question, self._question = self._question, None
            if self._destinations.apply_answers(question):  # else Kafka is asked again
                self._delivered()
        if self._emits and not self._handed:
            while self._emits:
                self._hand_over(*self._emits.popleft())
        if self._withheld and not self._handed and time.monotonic() >= self._recheck_at:
            self._recheck_topics()
        if self._homeless and not self._handed and time.monotonic() >= self._read_again_at:
            self._find_queues()

    def _is_deserted(self) -> bool:
        """Whether the producer, which has no time-out, has delivered nothing for long and lost all brokers for good."""
        undelivered = len(self._producer)
        if undelivered != self._undelivered or not undelivered:
            self._undelivered = undelivered
            self._desertion.heard()
        return self._desertion.finds(self._producer, self._handed[0][1].topic)

    def _poll(self) -> None:
        try:
            self._producer.poll(0)
        except KafkaException as error:  # the producer has failed for good
            address = self._handed[0][1]
            self._refusal = (address.topic, address.partition)
            self._log_refused(self._refusal, "delivered", error)

    def replace_producer(self, refusal: tuple[str, int] | None = None) -> None:
        """Create a new producer, and have owners emit undelivered outputs again; those to `refusal` pause."""
        discard(self._producer)
        self._producer = self._kafka.data_producer(linger_ms=LINGER_MS)
        self._refusal = self._question = None
        self._withheld.clear()
        self._homeless.clear()
        self._emits.clear()
        handed, self._handed = self._handed, []
        refused = next((a for _, a in handed if (a.topic, a.partition) == refusal), None)
        for owner in list(self._owners.values()):
            self._step(owner, ProducerReplaced(refused))

    def close(self) -> None:
        """Discard the producer. The next owners of the partitions deliver its undelivered outputs."""
        discard(self._producer)
        self._producer = NoProducer()

    def _delivered(self) -> None:
        """Report all outputs in the producer as delivered, except those that went to a wrong topic."""
        handed, self._handed = self._handed, []
        for owner, address in handed:
            if self._is_withheld(address):
                self._withhold(owner, address)
        arrived = [pair for pair in handed if not self._is_withheld(pair[1])]
        for address in {address for _, address in arrived}:
            if self._refusals.over((address.topic, address.partition)):
                log.warning("outputs to %s/%d can be delivered again", address.topic, address.partition)
        self._drained(arrived)

    def _drained(self, arrived: list[tuple[Owner, Address]]) -> None:
        for owner, run in groupby(arrived, lambda pair: pair[0]):
            self._step(owner, Drained([address for _, address in run]))

    def _is_withheld(self, address: Address) -> bool:
        """Whether the topic is known not to be its queue's. False for a dropped queue: it has no topic to wait for."""
        return destination_of(address) in self._destinations.gone and self._destinations.is_of_queue(address)

    def _withhold(self, owner: Owner, address: Address) -> None:
        if not self._withheld:
            self._recheck_at = time.monotonic() + WATCH_EVERY_S
        self._withheld.append((owner, address))
        if self._withholds.due(address.topic):
            why = self._destinations.gone[destination_of(address)]
            log.error("outputs to %s/%d wait: %s", address.topic, address.partition, why)

    def _recheck_topics(self) -> None:
        """Ask whether topics are their queues' again, or queues were dropped. Waits for the answer, as this is rare."""
        self._recheck_at = time.monotonic() + WATCH_EVERY_S
        self._destinations.refresh({address for _, address in self._withheld})
        if any(
            destination_of(address) not in self._destinations.gone
            for _, address in self._withheld
            if self._destinations.is_of_queue(address)
        ):
            self.replace_producer()  # outputs that went to the wrong topic are sent again
            return
        dropped = [pair for pair in self._withheld if not self._is_withheld(pair[1])]
        self._withheld = [pair for pair in self._withheld if self._is_withheld(pair[1])]
        self._drained(dropped)

    def _find_queues(self) -> None:
        """Read the catalog: an output waits for a queue that was just created, but not for one that does not exist.

        A foreign producer that may write to the data topic can name any topic as the home of a conversation. Outputs to
        it would never be received, or would be received by another application.
        """
        self._read_again_at = time.monotonic() + WATCH_EVERY_S
        if not self._destinations.read_queues():
            return
        if any(self._destinations.has_queue(address) for _, address in self._homeless):
            self.replace_producer()  # outputs to queues that were found are sent, the others wait again
            return
        homeless, self._homeless = self._homeless, []
        times = self._astray.due()
        if times:
            address = homeless[0][1]
            log.warning(
                "an output to %s/%d was dropped, because this instance has no queue there (%d so far): the queue was "
                "dropped, or a foreign producer with the right to write to a data topic named that partition",
                address.topic,
                address.partition,
                times,
            )
        self._drained(homeless)

    def _hand_over(self, owner: Owner, effect: Emit) -> None:
        address = effect.address
        topic, number = address.topic, address.partition
        produce, refused = self._producer.produce, self._on_refusal
        carrier: Headers = {HEADER: b""}
        if not self._destinations.has_queue(address):
            self._homeless.append((owner, address))
            return
        if self._destinations.gone and self._is_withheld(address):
            self._withhold(owner, address)
            return
        self._handed.append((owner, address))
        for key, headers, bodies in effect.batches():
            for header, body in zip(headers, bodies, strict=True):
                carrier[HEADER] = header
                try:
                    produce(topic, body, key, number, refused, None, 0, carrier)
                except (BufferError, KafkaException) as error:
                    if not self._taken_later(error, topic, body, key, number, refused, None, 0, carrier):
                        self._refusal = (topic, number)
                        return

    def _taken_later(self, error: Exception, *record: Any) -> bool:
        """Retry a record that the producer refused, up to ROOM_S while its buffer is full. Whether it was accepted."""
        deadline = time.monotonic() + ROOM_S
        while isinstance(error, BufferError) and time.monotonic() < deadline:
            try:
                self._producer.poll(0.05)
                self._producer.produce(*record)
                return True
            except (BufferError, KafkaException) as again:
                error = again
        self._log_refused((record[0], record[3]), "accepted", error)
        return False

    def _on_refusal(self, error: Any, message: Message) -> None:
        """Delivery report of a failure; successes are not reported."""
        self._refusal = (message.topic() or "", message.partition() or 0)
        self._log_refused(self._refusal, "delivered", error)

    def _log_refused(self, place: tuple[str, int], what: str, error: object) -> None:
        if self._refusals.due(place):
            why = self._kafka.words(error, Need.topic("WRITE", place[0]))
            log.warning("outputs to %s/%d are not %s, and are sent again: %s", *place, what, why)
