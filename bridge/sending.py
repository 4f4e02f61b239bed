"""The sender of a process: one session, one producer, and whoever has time serves it.

`Session` decides everything; this module hands its records over and tells it what became of them. Success is learnt
from the producer running empty, failure from a report per record: a report per success would cost a fifth of a send.
While something waits for earlier records to count (a BEGIN, an END, a caller of `flush`) and the producer never runs
empty by itself, senders pause for the few milliseconds that it needs.

The client's events are served by the thread that sends or waits; another thread doing it would fight for the
interpreter with every message (twice the cost, measured). A thread of ours serves when nobody sends or waits.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

from confluent_kafka import KafkaException, Producer

from konverse.dialog.lane import Lane, SessionDialog
from konverse.dialog.session import Hand, Session
from konverse.schemas.envelope import HEADER
from konverse.schemas.errors import BrokerClosed, OutcomeUnknown
from konverse.schemas.identifiers import Address
from konverse.schemas.limits import BODY_BYTES_MAX
from konverse.schemas.records import Begin

from .collector import freeze_once
from .exits import leave_at_exit
from .health import SILENT_S, Health
from .kafka import PRODUCER_RECORDS_MAX, Headers, Kafka
from .leaving import leave, no_room

log: Final = logging.getLogger("konverse.sending")

LINGER_MS: Final = 5
SERVE_MASK: Final = 255
"""A sending thread serves the client after every 256 messages to a destination."""

BUSY_SENDS: Final = 32
"""So many messages within POLL_S: the senders serve often enough."""

CATCH_UP_BELOW: Final = PRODUCER_RECORDS_MAX * 4 // 5
"""A producer that was full gets what waits when it has so few records left."""

POLL_S: Final = 0.01
PAUSE_AFTER_S: Final = 0.01
"""Something waits this long at most before senders make room for it."""

PAUSE_MAX_S: Final = 0.5
"""Senders pause this long at most, then go on for as long."""

RETRY_S: Final = 0.5
"""Between a failed producer and the next one."""

REFUSAL_PAUSE_S: Final = 1.0
REFUSAL_PAUSE_MAX_S: Final = 30.0
"""A destination that refused is left alone for so long, twice as long each time: while it is tried nothing counts."""


class Sender:
    """Hands over what a session decides."""

    def __init__(self, kafka: Kafka, writer: bytes) -> None:
        freeze_once()
        self.session = Session(writer)
        self._kafka = kafka
        self._timeout_s = kafka.settings.send_timeout_s
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._failure: str | None = None
        self._refused: Address | None = None
        """The destination whose record failed, if it was one of a destination."""
        self._try_again_at = 0.0
        self._refusal_pause_s = REFUSAL_PAUSE_S
        self._last_failure: str | Health = kafka.health
        """What a record of ours failed with; before that, what the client says of the way to Kafka."""
        self._serving = threading.Lock()
        """Held by the one thread that serves the client."""
        self._waiters = 0
        self._waiting_since: float | None = None
        self._pausing = False
        self._behind = False
        """The producer was full: some records wait to be handed over."""
        self._failed = self._on_failure  # bound once
        self._free = True
        """Nothing keeps senders waiting: no pause, no failure, nothing to hand over before, not closing."""
        self._closed = False
        self._carrier: Headers = {HEADER: b""}
        self._producer = self._new_producer()
        self._thread = threading.Thread(target=self._run, name="konverse-sender", daemon=True)
        self._thread.start()
        leave_at_exit(self)

    # ------------------------------------------------------------------------------------------------------- calls

    def begin(self, conversation: bytes, begin: Begin) -> SessionDialog:
        """Begin a dialog; returns at once, the first messages leave when its home has it."""
        with self._lock:
            self._check_open()
            dialog, hands = self.session.begin(conversation, begin)
            self._hand(hands)
            return dialog

    def send(self, dialog: SessionDialog, message_type: str, body: bytes) -> int:
        """Send a message; returns its sequence number at once. Waits only when too much is on its way, then QueueFull.

        The usual case is written out: nothing is looked up, asked or made that the next message does not need.
        """
        with self._lock:
            target = dialog.target
            if dialog.open and self._free and target.weight < target.room and len(body) <= BODY_BYTES_MAX:
                sequence = dialog.sent
                carrier = self._carrier
                carrier[HEADER] = dialog.stage(message_type, body)
                topic, partition = target.place
                try:
                    self._produce(topic, body, dialog.key, partition, self._failed, None, 0, carrier)
                except (BufferError, KafkaException):
                    self._hand(self.session.unsent())
                    return sequence
                target.window.sent = counter = target.next
                if not counter & SERVE_MASK:
                    self._serve(0)
                return sequence
        return self._send_with_care(dialog, message_type, body)

    def end(self, dialog: SessionDialog, error_body: bytes = b"") -> None:
        """End a dialog; its home tells the peer when everything that was sent before counts."""
        self.decide(lambda session: session.end(dialog, error_body))

    def decide(self, call: Callable[[Session], list[Hand]]) -> None:
        """Let the session do what is seldom done, and hand over what comes of it."""
        with self._lock:
            self._check_open()
            self._hand(call(self.session))

    def wait_for(self, reached: Callable[[], bool], timeout_s: float) -> bool:
        """Serve the client until something is so; False when that takes too long."""
        return self._serve_until(reached, timeout_s) and reached()

    def ended_by_peer(self, conversation: bytes) -> None:
        """News from the dialog's home: sends are refused from now on."""
        with self._lock:
            self.session.ended_by_peer(conversation)

    def flush(self, timeout_s: float | None = None, dialog: SessionDialog | None = None) -> None:
        """Return when everything sent, begun and ended so far counts (of one dialog: begun and sent).

        Senders make room meanwhile. OutcomeUnknown when Kafka stays silent.
        """
        if dialog is None:
            self._wait_until(lambda: self.session.idle, "some records", timeout_s)
        else:
            last = dialog.sent + len(dialog.held) - 1
            what = f"message {last} of {UUID(bytes=dialog.conversation)}"
            self._wait_until(self.session.acknowledged(dialog), what, timeout_s)

    def _wait_until(self, reached: Callable[[], bool], what: str, timeout_s: float | None) -> None:
        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        waiting = len(self._producer)
        done = self._serve_until(reached, min(timeout_s, SILENT_S))
        if not done and timeout_s > SILENT_S:
            if len(self._producer) >= waiting:  # else it is much, and goes on
                log.warning(
                    "Kafka has not acknowledged %s yet; waiting %.0f s more (last failure: %s)",
                    what,
                    timeout_s - SILENT_S,
                    self._last_failure,
                )
            done = self._serve_until(reached, timeout_s - SILENT_S)
        if not done:
            raise OutcomeUnknown(
                f"Kafka has not acknowledged {what} within {timeout_s} s (last failure: {self._last_failure}). "
                "They are kept and sent again; wait once more to learn of them"
            )
        if not reached():
            raise BrokerClosed("the broker was closed while it waited")

    def close(self, timeout_s: float | None = None) -> None:
        """Wait for everything, say goodbye to every destination, and stop. Safe to call twice.

        Raises OutcomeUnknown when Kafka stays silent: what it has not acknowledged is given up then.
        """
        with self._lock:
            if self._closed:
                return
        try:
            if self.session.lanes:
                with self._lock:  # nobody sends between the two
                    self.flush(timeout_s)
                    if self.session.may_close:  # else somebody else delivers what its transactions send
                        self._hand(self.session.close())
                    self._look()
                self.flush(timeout_s)
        except OutcomeUnknown:
            waiting = sum(len(lane.origins) for lane in self.session.lanes.values())
            raise OutcomeUnknown(
                f"the broker was closed while {waiting} records were not acknowledged by Kafka (last failure: "
                f"{self._last_failure}). They are given up: some of them may have arrived, none goes again"
            ) from None
        finally:
            with self._changed:
                self._closed = True
                self._look()
                self._changed.notify_all()
            self._thread.join()
            self._producer.purge()
            self._producer.flush(0)

    def leave(self, timeout_s: float) -> None:
        """The program ends without `close`: deliver what waits, or say how much of it is given up."""
        if self._closed:
            return
        leave(self, timeout_s, self._last_failure)

    def forked(self) -> None:
        """In a forked child: closed, see `bridge.forks`."""
        self._closed, self._free = True, False
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._serving = threading.Lock()

    # ------------------------------------------------------------------------------------------------------ inside

    def _send_with_care(self, dialog: SessionDialog, message_type: str, body: bytes) -> int:
        """Everything but the usual case: BEGIN under way, no room, failure, ended."""
        numbers: list[int] = []

        def send() -> list[Hand]:
            numbers.append(dialog.next_sequence)
            return self.session.send(dialog, message_type, body)

        self.decide_with_care(dialog, send)
        return numbers[0]

    def decide_with_care(self, dialog: SessionDialog | None, call: Callable[[], list[Hand]]) -> None:
        """The same when there is room for what is sent, on a dialog or (None) in a transaction; else QueueFull."""
        deadline = time.monotonic() + self._timeout_s
        while True:
            with self._lock:
                self._check_open()
                if self._has_room(dialog):
                    self._hand(call())
                    return
            if not self._serve_until(lambda: self._has_room(dialog), deadline - time.monotonic()):
                raise no_room(dialog, self._lane_of(dialog), self._timeout_s, self._last_failure)

    def _has_room(self, dialog: SessionDialog | None) -> bool:
        lane = self._lane_of(dialog)
        blocked = dialog is not None and dialog.blocked
        return not (lane is None or lane.full or blocked or self._pausing or self._behind)

    def _lane_of(self, dialog: SessionDialog | None) -> Lane | None:
        return dialog.target if dialog is not None else self.session.transactions.lane

    def _check_open(self) -> None:
        if self._closed or self.session.closing:
            raise BrokerClosed("the broker was closed, or its process was forked; connect again")

    def _hand(self, hands: list[Hand]) -> None:
        """Hand over as much as the producer takes; the rest goes when it has room again (`_serve`)."""
        if self._failure:
            return  # the next producer gets everything that does not count
        for address, records in hands:
            for place, (header, key, value) in enumerate(records):
                try:
                    self._produce(
                        address.topic, value, key, address.partition, self._on_failure, None, 0, {HEADER: header}
                    )
                except BufferError:
                    self.session.lanes[address].window.sent -= len(records) - place
                    self._behind = True
                    self._look()
                    break
                except KafkaException as error:
                    self._fail(error.args[0].str(), None if error.args[0].fatal() else address)
                    return

    def _new_producer(self) -> Producer:
        producer = self._kafka.data_producer(linger_ms=LINGER_MS)
        self._produce = producer.produce
        return producer

    def _on_failure(self, error: Any, message: Any) -> None:
        """A record was not delivered (successes are not reported). Called inside poll."""
        place = (message.topic(), message.partition())
        address = next((address for address, lane in self.session.lanes.items() if lane.place == place), None)
        self._fail(f"{error.str()} ({place[0]}/{place[1]})", None if error.fatal() else address)

    def _fail(self, reason: str, refused: Address | None = None) -> None:
        if self._failure is None:  # what fails behind it fails because of it
            self._failure = self._last_failure = reason
            self._refused = refused
            self._look()

    def _serve_until(self, reached: Callable[[], bool], timeout_s: float) -> bool:
        """Serve the client, or wait for whoever does, until `reached`; False when that takes too long."""
        deadline = time.monotonic() + timeout_s
        self._waiters += 1
        try:
            while not self._closed:
                with self._lock:
                    if reached():
                        return True
                if time.monotonic() > deadline:
                    return False
                if not self._serve(POLL_S):
                    with self._changed:
                        self._changed.wait(POLL_S)
        finally:
            self._waiters -= 1
        return True

    def _serve(self, wait_s: float) -> bool:
        """Take the client's events and act on them; False when another thread is at it."""
        if not self._serving.acquire(blocking=False):
            return False
        try:
            try:
                self._producer.poll(wait_s)
            except KafkaException as error:
                self._fail(error.args[0].str())
            if self._failure:
                self._replace_producer()
            elif self._behind and len(self._producer) < CATCH_UP_BELOW:
                self._catch_up()
            elif len(self._producer) == 0:
                self._settle()
            elif self._waiters or self.session.gated:
                self._pause_senders()
        finally:
            self._serving.release()
        return True

    def _run(self) -> None:
        """Serve while nobody else does: a busy sender serves for itself."""
        seen = 0
        while not self._closed:
            before, seen = seen, sum(lane.next for lane in list(self.session.lanes.values()))
            if seen - before >= BUSY_SENDS or not self._serve(POLL_S):
                with self._changed:
                    self._changed.wait(POLL_S)

    def _settle(self) -> None:
        with self._changed:
            if len(self._producer) or self._failure:
                return
            self._pausing = False
            self._look()
            self._waiting_since = None
            self._hand(self.session.drained())
            if not self.session.refused:
                self._refusal_pause_s = REFUSAL_PAUSE_S
            elif time.monotonic() >= self._try_again_at:
                self._hand(self.session.try_again())
            self._changed.notify_all()

    def _catch_up(self) -> None:
        with self._lock:
            self._behind = False
            self._look()
            self._hand(self.session.unsent())

    def _look(self) -> None:
        self._free = not (self._pausing or self._behind or self._failure or self._closed or self.session.closing)

    def _pause_senders(self) -> None:
        now = time.monotonic()
        if self._waiting_since is None:
            self._waiting_since = now
        waited = now - self._waiting_since
        if waited > PAUSE_MAX_S:  # Kafka is slow or away: room is all that senders need to wait for
            self._pausing = False
            self._waiting_since = now + PAUSE_MAX_S
        elif waited > PAUSE_AFTER_S:
            self._pausing = True
        self._look()

    def _replace_producer(self) -> None:
        """Something failed: a new producer, and everything that does not count again, with the same counters."""
        log.warning("records were not delivered (%s); sending them again", self._failure)
        with self._changed:
            self._producer.purge()
            try:
                self._producer.flush(1)
            except KafkaException:
                log.debug("the failed producer is dropped", exc_info=True)
            self._changed.wait_for(lambda: self._closed, RETRY_S)
            self._failure = None
            self._look()
            self._producer = self._new_producer()
            if self._refused is not None:
                self._try_again_at = time.monotonic() + self._refusal_pause_s
                self._refusal_pause_s = min(2 * self._refusal_pause_s, REFUSAL_PAUSE_MAX_S)
            self._hand(self.session.restart(self._refused))
