"""Drives the producer of a session: hands over the session's records, and tells the session which are delivered.

A record counts as delivered when the producer has run empty without a failure. Only failures are reported record by
record: a report for each success would cost a fifth of a send. While something waits for earlier records to count (a
BEGIN, an END, a caller of `flush`) and the producer never runs empty by itself, senders pause for the few milliseconds
that it needs to do so.

The producer is polled ("served") by the thread that sends or waits. Polling it from another thread would compete for
the interpreter lock with every message (twice the cost, measured). A background thread polls it while no other thread
sends or waits.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Producer

from konverse.bridge.catalog.destinations import Destinations
from konverse.bridge.kafka.clients import (
    PRODUCER_RECORDS_MAX,
    Headers,
    Health,
    Kafka,
    NoProducer,
    connect_producer,
    discard,
)
from konverse.bridge.kafka.refusals import Need
from konverse.bridge.kafka.topic_watch import WATCH_EVERY_S
from konverse.bridge.runtime.log_throttle import LogThrottle
from konverse.bridge.runtime.threads import EXPECTED_ERRORS, ThreadLock, in_background
from konverse.dialog.session.dialogs import SessionDialog
from konverse.dialog.session.lanes import Produce
from konverse.dialog.session.rotation import Age, Unheard
from konverse.schemas.errors import BrokerClosed, KafkaUnavailable, KonverseError, TopicMismatch
from konverse.schemas.identifiers import Address
from konverse.schemas.wire.envelope import HEADER

from .session_ids import SessionRenewal

log: Final = logging.getLogger("konverse.sender")
IN_A_SIGNAL_HANDLER: Final = (
    "this thread is inside a call of the broker already: probably a signal handler has interrupted it. Flush and "
    "close after that call: let the handler raise an exception that ends it, or set a flag that the program checks"
)
LINGER_MS: Final = 5
SERVE_MASK: Final = 255
"""A sending thread polls the producer after every 256 messages to a destination."""
BUSY_SENDS: Final = 32
"""With this many messages within POLL_S, the sending threads poll often enough."""
CATCH_UP_BELOW: Final = PRODUCER_RECORDS_MAX * 4 // 5
"""A producer that was full gets the remaining records once it holds fewer than this many."""
POLL_S: Final = 0.01
PAUSE_AFTER_S: Final = 0.01
"""Senders pause once something has waited this long for earlier records to count."""
PAUSE_MAX_S: Final = 0.5
"""Senders pause at most this long, then send for as long before the next pause."""
RETRY_S: Final = 0.5
"""Delay between a failed producer and the next one."""
REFUSAL_PAUSE_S: Final = 1.0
"""A destination that refused a record is not tried again for this long, doubled after each further refusal.

While it is tried, the producer does not run empty, so no record of any destination counts.
"""
REFUSAL_PAUSE_MAX_S: Final = 30.0
"""Longest such pause."""
STOP_S: Final = 1.0
"""`stop` waits this long for the background thread, which may be reading a destination's answer."""
DESERTED_AFTER_S: Final = 10.0
"""A client from which Kafka has accepted nothing for this long is asked whether it still has a broker."""


class Mark(NamedTuple):
    """The client of a SessionProducer, and the number of records that it had."""

    client: Producer
    records: int


class SessionProducer:
    """One session and one producer, which one thread at a time polls."""

    def __init__(self, kafka: Kafka, renewing: SessionRenewal, destinations: Destinations) -> None:
        self._session = renewing.session
        self._renewal = renewing
        self._kafka = kafka
        self._destinations = destinations
        self._looked_at = (0.0, 0)
        """When the background thread last checked the destinations, and the number of records then."""
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        """Enter `lock` instead: the condition's own methods are Python code, so Ctrl-C could leave it locked."""
        self._failure: str | None = None
        self._refused: Address | None = None
        """The destination whose record failed; None when the producer failed as a whole."""
        self._try_again_at = 0.0
        self._refusal_pause_s = REFUSAL_PAUSE_S
        self.last_failure: str | Health = kafka.health
        """The latest failure of a record; before the first one, the health of the connection to Kafka."""
        self._serving = ThreadLock(IN_A_SIGNAL_HANDLER)
        """Held by the thread that polls the producer."""
        self._unanswered = LogThrottle()
        self._waiters = 0
        self._waiting_since: float | None = None
        self._pausing = False
        self._behind = False
        """Whether the producer was full, so that some records are not handed over yet."""
        self.failed = self._on_failure  # bound once
        self.free = True
        """Sends may take the fast path: no pause, no failure, no earlier records to hand over, not closing."""
        self._shut = False
        """Whether sends are refused, while `close` waits for earlier records."""
        self._closed = False
        self.forked = False
        """This process was forked from the one that created this object: Kafka's clients do not work here."""
        self.carrier: Headers = {HEADER: b""}
        self._client: Producer = self._new_producer()
        self._stuck = Mark(self._client, 0)
        """The state when Kafka last accepted a record, as far as the background thread has seen."""
        self._ask_client_at = time.monotonic() + DESERTED_AFTER_S
        self._thread = in_background("konverse-sender", self._run)

    @property
    def closed(self) -> bool:
        """Whether it was stopped or forked: no thread waits any more."""
        return self._closed

    @property
    def ended(self) -> bool:
        """Whether it was stopped or forked, or its session is over: no further record is delivered."""
        return self._closed or self._session.over is not None

    def check_thread(self) -> None:
        """Raise InvalidState in a signal handler while its thread polls."""
        self._serving.check_thread()

    def refuse_sends(self) -> None:
        """From now on `check_open` raises BrokerClosed, while `close` waits for earlier records."""
        with self.lock:
            self._shut = True
            self.refresh()

    def give_up_id(self) -> None:
        """Take another id for the session, unless the session is ending."""
        with self.lock:
            if not (self._closed or self._session.closing or self._session.over):
                self._renewal.give_up()
                self.refresh()
                self.changed.notify_all()

    def mark(self) -> Mark:
        """The present state, for `moved_since`.

        Until it is polled, the client counts its error reports and log lines as records. So the number is taken before
        a poll, and is used only if that poll brings no event. Raises InvalidState in a signal handler while its thread
        polls.
        """
        with (turn := threading.Lock()):
            self._serving.take(turn)
            while True:
                records = len(self._client)
                if not self._poll(0):
                    return Mark(self._client, records)

    def moved_since(self, mark: Mark) -> bool:
        """Whether the same client has fewer records now: Kafka accepts them, if slowly."""
        return self._client is mark.client and len(self._client) < mark.records

    def stop(self) -> None:
        """End the background thread and discard the Kafka client; records that it still has are given up.

        A thread that reads a destination's answer ends by itself afterwards.
        """
        with self.lock:
            self._closed = True
            self.refresh()
            self.changed.notify_all()
        self._thread.join(STOP_S)
        with self.lock:
            discard(self._client)
            self._client = NoProducer()
            self._stuck = Mark(self._client, 0)
            self.produce = self._client.produce

    def after_fork(self) -> None:
        """Be closed in a forked child: the thread and the client belong to the parent."""
        self.forked = True
        self._closed, self.free = True, False
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self._serving = ThreadLock(IN_A_SIGNAL_HANDLER)

    @property
    def stalled(self) -> bool:
        """Whether sends wait: for records that have to count first, or for room in the client."""
        return self._pausing or self._behind

    def check_open(self) -> None:
        """Raise BrokerClosed once the sender closes."""
        if self._shut or self._closed or self._session.closing:
            raise BrokerClosed("the broker was closed, or its process was forked; connect again")

    def carry_out(self, call: Callable[[], list[Produce]]) -> None:
        """Call the session, and hand over the resulting records. The caller holds the lock.

        An exception that comes from outside, such as Ctrl-C or an alarm, may leave the session half changed. Such an
        exception ends the session.
        """
        try:
            hands = call()
        except KonverseError:  # the session has refused the call and has not changed
            raise
        except BaseException as error:
            self._session.interrupt(type(error).__name__)
            self.refresh()
            raise
        try:
            self.produce_records(hands)
        except BaseException as error:
            self._fail(f"a call was interrupted ({type(error).__name__})")
            raise

    def mend(self, dialog: SessionDialog, sequence: int, error: BaseException) -> None:
        """Hand everything over again after an exception from outside has cut off a direct send."""
        self._session.mend(dialog, sequence)
        self._fail(f"a send was interrupted ({type(error).__name__})")

    def produce_records(self, hands: list[Produce]) -> None:
        """Hand over as many records as the producer takes; `serve` hands over the rest when it has room again."""
        if self._failure:
            return  # the next producer gets every undelivered record
        for address, records in hands:
            for place, (header, key, value) in enumerate(records):
                try:
                    self.produce(
                        address.topic, value, key, address.partition, self._on_failure, None, 0, {HEADER: header}
                    )
                except BufferError:
                    self._session.lanes[address].window.sent -= len(records) - place
                    self._behind = True
                    self.refresh()
                    break
                except KafkaException as error:
                    self._fail(self._words(error.args[0], address.topic), None if error.args[0].fatal() else address)
                    return

    def _new_producer(self) -> Producer:
        producer = self._kafka.data_producer(linger_ms=LINGER_MS)
        connect_producer(producer, self._renewal.topic)
        self.produce = producer.produce
        return producer

    def _on_failure(self, error: Any, message: Any) -> None:
        """A record was not delivered (successes are not reported). Called inside `poll`."""
        if self._failure is not None:  # later failures follow from the first one
            return
        place = (message.topic(), message.partition())
        self._fail(
            f"{self._words(error, place[0])} ({place[0]}/{place[1]})"
        )  # before anything else, or the failed record would count as delivered
        if not error.fatal():
            lanes = list(self._session.lanes.items())  # a copy: a thread that begins a dialog may add a lane
            self._refused = next((address for address, lane in lanes if lane.place == place), None)

    def _words(self, error: KafkaError, topic: str) -> str:
        return self._kafka.words(error, Need.topic("WRITE", topic))

    def _some_topic(self) -> str:
        """A topic with records on their way, to name in the error when Kafka refuses the producer as a whole."""
        waiting = (lane.place[0] for lane in list(self._session.lanes.values()) if lane.window.sent)
        return next(waiting, self._renewal.topic)

    def _fail(self, reason: str, refused: Address | None = None) -> None:
        if self._failure is None:  # later failures follow from the first one
            self._failure = self.last_failure = reason
            self._refused = refused
            self.refresh()

    def serve_until(self, reached: Callable[[], bool], timeout_s: float) -> bool:
        """Poll the producer, or wait while another thread does, until `reached()`.

        False after `timeout_s`, or when no record is delivered any more (`ended`).
        """
        deadline = time.monotonic() + timeout_s
        self._waiters += 1
        try:
            while True:
                with self.lock:  # so that no other thread's send changes the session meanwhile
                    if reached():
                        return True
                if self.ended or time.monotonic() > deadline:
                    return False
                if not self.serve(POLL_S) or self._renewal.wanting:
                    with self.lock:  # the wait releases it for the thread that polls
                        self.changed.wait(POLL_S)
        finally:
            self._waiters -= 1

    def serve(self, wait_s: float) -> bool:
        """Poll the producer and act on its events; False when another thread is polling."""
        with (turn := threading.Lock()):
            if not self._serving.take(turn, blocking=False):
                return False
            self._poll(wait_s)
            with self.lock:  # the session ends dialogs whose lifetime is over
                due = self._renewal.check_clock()
            if due:
                self.refresh()
            if self._renewal.age is Age.DOUBTFUL:
                self._fail(
                    "a destination no longer accepts the id of this session, or records without acknowledgement are "
                    "too old to be accepted"
                )
            if self._failure:
                if not (self._renewal.wanting or self._closed):
                    self._replace_producer()
            elif self._behind and len(self._client) < CATCH_UP_BELOW:
                with self.lock:
                    self._do_or_fail(self._catch_up)
            elif len(self._client) == 0:
                self._settle()
            elif self._waiters or self._session.gated:
                self._pause_senders()
            return True

    def _poll(self, wait_s: float) -> int:
        """Poll the producer. Returns the number of events. The caller holds `_serving`.

        An exception from outside, such as Ctrl-C, may arrive while a failed record is reported. The client has
        forgotten the record then, and an empty client would mean success. So the exception itself counts as a failure.
        """
        try:
            try:
                return self._client.poll(wait_s)
            except KafkaException as error:
                self._fail(self._words(error.args[0], self._some_topic()))
                return 0
        except BaseException as error:
            self._fail(f"a poll was interrupted ({type(error).__name__})")
            raise

    def _run(self) -> None:
        """Body of the background thread."""
        try:
            self._work()
        finally:
            self._renewal.close()

    def _work(self) -> None:
        """Poll the producer unless busy senders poll it themselves."""
        seen = 0
        while not self._closed:
            before, seen = seen, sum(lane.next for lane in list(self._session.lanes.values()))
            wait_s = POLL_S
            try:
                self._make_id()
                if self._renewal.due:
                    self._take_answers()
                self._watch_destinations(seen)
                self._watch_client()
                served = seen - before < BUSY_SENDS and self.serve(POLL_S)
            except EXPECTED_ERRORS as error:
                served, wait_s, self.last_failure = False, RETRY_S, str(error)
                log.warning("%s cannot continue, retrying: %s", self._title, error)
            if not served:
                with self.lock:
                    self.changed.wait(wait_s)

    @property
    def _title(self) -> str:
        """The sender in a log line."""
        return f"the sender of session {self._session.writer.hex()} in database {self._kafka.settings.database!r}"

    def _watch_destinations(self, records: int) -> None:
        """Check the destinations at intervals, so that `send` reports a lost topic even if `flush` is never called."""
        at, before = self._looked_at
        now = time.monotonic()
        if records != before and now - at >= WATCH_EVERY_S:
            self._looked_at = (now, records)
            self._destinations.refresh([*self._session.lanes], POLL_S)
            self.refresh()

    def _watch_client(self) -> None:
        """Replace a client that has lost all its brokers for good, while other clients are answered."""
        now = time.monotonic()
        if not len(self._client) or self._client is not self._stuck.client or self.moved_since(self._stuck):
            self._stuck = Mark(self._client, len(self._client))
            self._ask_client_at = now + DESERTED_AFTER_S
        elif now >= self._ask_client_at:
            self._ask_client_at = now + DESERTED_AFTER_S
            if self._kafka.is_deserted(self._client):
                self._fail("its Kafka client has lost all brokers")

    def _settle(self) -> None:
        with self.lock:
            if len(self._client) or self._failure:
                return
            self._pausing = False
            self.refresh()
            self._waiting_since = None
            self.carry_out(self._session.drained)
            if self._renewal.age and self._waiters:
                if self._renewal.ready:
                    self._renew()
            elif not self._session.refused:
                self._refusal_pause_s = REFUSAL_PAUSE_S
            elif time.monotonic() >= self._try_again_at:
                self.carry_out(self._session.try_again)
            self.changed.notify_all()

    def _catch_up(self) -> None:
        self._behind = False
        self.refresh()
        self.produce_records(self._session.unsent())

    def refresh(self) -> None:
        """Decide again whether sends may take the fast path."""
        kept = self._shut or self._pausing or self._behind or self._failure or self._closed or self._session.closing
        self.free = not (kept or self._renewal.age or self._destinations.gone)

    def _pause_senders(self) -> None:
        now = time.monotonic()
        if self._waiting_since is None:
            self._waiting_since = now
        waited = now - self._waiting_since
        if waited > PAUSE_MAX_S:  # Kafka is slow or unreachable: let senders continue until their windows are full
            self._pausing = False
            self._waiting_since = now + PAUSE_MAX_S
        elif waited > PAUSE_AFTER_S:
            self._pausing = True
        self.refresh()

    def _replace_producer(self) -> None:
        """After a failure, create a new producer and hand over all undelivered records, with the same counters.

        The failure stays recorded until there is a new producer, and is recorded again if the handover is interrupted.
        So an interrupted replacement is repeated, and its records do not count as delivered.
        """
        log.warning("records of %s were not delivered (%s); sending them again", self._title, self._failure)
        with self.lock:
            discard(self._client)
            if self.changed.wait_for(lambda: self._closed, RETRY_S):
                return
            try:
                self._client = self._new_producer()
            except EXPECTED_ERRORS as error:  # the callers keep waiting, as if Kafka did not answer
                self._failure = self.last_failure = str(error)
                return
            if self._refused is not None:
                self._try_again_at = time.monotonic() + self._refusal_pause_s
                self._refusal_pause_s = min(2 * self._refusal_pause_s, REFUSAL_PAUSE_MAX_S)
            if self._renewal.age and not self._renewal.ready:  # the id became old just now
                self._failure = "the session waits for a new id from Kafka; try again"
                return
            self._do_or_fail(self._restart)

    def _restart(self) -> None:
        self._failure = None
        self.refresh()
        if self._renewal.age:
            self._renew()
        else:
            self.produce_records(self._session.restart(self._refused))

    def _do_or_fail(self, work: Callable[[], None]) -> None:
        """Do the work. If it is interrupted, the next producer gets every undelivered record."""
        try:
            work()
        except BaseException as error:
            self._fail(f"handing over was interrupted ({type(error).__name__})")
            raise

    def _make_id(self) -> None:
        """Get a new id if one is due. No lock is held meanwhile, so that other threads can continue.

        Until there is a new id, nothing is handed over.
        """
        if self._renewal.wanting and (self._waiters or self._failure):
            try:
                self._renewal.make()
            except (KafkaUnavailable, TopicMismatch) as error:
                self.last_failure = str(error)
                raise

    def _renew(self) -> None:
        """Continue under the new id."""
        self.carry_out(self._changed_id)

    def _changed_id(self) -> list[Produce]:
        hands = self._renewal.change()
        self.refresh()
        return hands

    def _take_answers(self) -> None:
        """Pass the destinations' answers about former ids to the session.

        If the present id is refused or old itself, give it up: the session asks again under the next id.
        """
        for wanted, said in self._renewal.answers():
            with self.lock:
                if self._closed:
                    return
                if said is Unheard.ANOTHER or self._renewal.age:
                    self._renewal.give_up()
                    return
                self.carry_out(partial(self._session.answered, wanted, said))
                self.changed.notify_all()
        if self._renewal.trouble is None:
            self._unanswered.over()
            return
        self.last_failure = f"the fate of records under a former session id is unknown: {self._renewal.trouble}"
        if self._unanswered.due():
            log.warning("%s cannot continue after a change of its session id: %s", self._title, self.last_failure)
