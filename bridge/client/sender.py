"""The sender of a process: handles the calls of all application threads. `SessionProducer` writes records to Kafka.

The sender also receives news from homes of its dialogs that this process owns or follows. Its errors and log lines name
the records concerned: those that found no room, were not acknowledged, or are given up when the program ends.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final
from uuid import UUID

from confluent_kafka import KafkaException

from konverse.bridge.catalog.destinations import ANSWER_S, ANSWER_S_MIN, Destinations, addresses_of, reached_of
from konverse.bridge.kafka.clients import SILENT_S, Health, Kafka
from konverse.bridge.reader.readers import Readers
from konverse.bridge.runtime.exits import leave_at_exit
from konverse.dialog.queries.hearing import needs_another_id, on_id_news, on_peer_ended
from konverse.dialog.session.dialogs import BeginOptions, DialogState, SessionDialog
from konverse.dialog.session.lanes import Lane, Produce
from konverse.dialog.session.session import Session
from konverse.dialog.state.endpoint import Endpoint
from konverse.dialog.state.mailbox import Bounced
from konverse.dialog.state.partition import Partition
from konverse.schemas.counting import counted, listed
from konverse.schemas.errors import (
    BrokerClosed,
    KafkaUnavailable,
    OutcomeUnknown,
    QueueFull,
    SessionTakenOver,
    TopicMismatch,
)
from konverse.schemas.identifiers import Address
from konverse.schemas.limits import BODY_BYTES_MAX
from konverse.schemas.wire import token as tokens
from konverse.schemas.wire.envelope import HEADER
from konverse.schemas.wire.records import Begin, Notice, Timer, WriterClosed
from konverse.schemas.wire.token import Token

from .fire_and_forget import FireAndForget
from .outgoing import Outgoing
from .session_ids import SessionRenewal
from .session_producer import POLL_S, SERVE_MASK, SessionProducer
from .unsent import unsent

log: Final = logging.getLogger("konverse.sender")
CLOSE_SESSION_S: Final = 1.0
"""At the end of a program, closing the session at its destinations may take this long. It only frees memory there."""


class Sender:
    """The calls of an application on the session of its process. Thread-safe."""

    def __init__(
        self,
        kafka: Kafka,
        renewing: SessionRenewal,
        destinations: Destinations | None = None,
        fire_and_forget: FireAndForget | None = None,
    ) -> None:
        self.session = renewing.session
        self._renewal = renewing
        self._timeout_s = kafka.settings.send_timeout_s
        self._destinations = destinations or Destinations(kafka)
        self._producer = SessionProducer(kafka, renewing, self._destinations)
        self.is_unverified = False
        """`close` has not learned whether the topics are still those of the queues."""
        self.fire_and_forget = fire_and_forget or FireAndForget(Readers())
        self.awaits_arrival = threading.Event()
        """Set while a caller waits for outputs of transactions; `Transmission` then reads the journal more often."""
        self._awaited = 0
        leave_at_exit(self)

    # -------------------------------------------------------------------------------------------- news from homes

    def on_peer_ended(self, home: Partition, endpoint: Endpoint) -> None:
        """A home owned by this process has ingested the end of an endpoint's peer."""
        with self._producer.lock:
            on_peer_ended(self.session, home, endpoint)

    def on_id_news(self, said: Notice | WriterClosed | Bounced) -> None:
        """A home owned by this process has news of a writer, which may mean that the session's id is refused."""
        with self._producer.lock:
            shut_out = on_id_news(self.session, said)
        if shut_out:
            self.replace_id()

    def on_home(self, home: Partition) -> None:
        """This process now owns a home, which may have earlier news that the session's id is refused."""
        with self._producer.lock:
            shut_out = needs_another_id(self.session, home)
        if shut_out:
            self.replace_id()

    def replace_id(self) -> None:
        """Replace the present id, which a destination refuses; ask how many records of the old one were ingested."""
        self._producer.give_up_id()

    def ended_by_peer(self, conversation: bytes) -> None:
        """The home of a dialog has reported that the peer ended: refuse sends from now on."""
        with self._producer.lock:
            self.session.ended_by_peer(conversation)

    # ------------------------------------------------------------------------------------------------------- calls

    def begin(self, conversation: bytes, begin: Begin, manner: BeginOptions) -> SessionDialog:
        """Begin a dialog. Returns at once; its messages are sent once its home has the BEGIN.

        Waits only while the window to the home is full; QueueFull after `send_timeout_s`. Raises ConversationOver,
        TopicMismatch, KafkaUnavailable.
        """
        self._destinations.check(begin.home, begin.target)
        self.wait_for_id()
        begun: list[SessionDialog] = []

        def has_room() -> bool:
            lane = self.session.lanes.get(begin.home)
            return lane is None or not lane.full or conversation in self.session.dialogs

        def call() -> list[Produce]:
            dialog, hands = self.session.begin(conversation, begin, manner)
            begun.append(dialog)
            return hands

        self._decide_when(has_room, call, lambda: (None, self.session.lanes[begin.home]))
        return begun[0]

    def send(self, dialog: SessionDialog, message_type: str, body: bytes) -> int:
        """Send a message; returns its sequence number at once.

        Waits only while the window to the target is full; QueueFull after `send_timeout_s`. The usual case is written
        out inline, without any lookup, call or object that it does not need.
        """
        producer = self._producer
        with producer.lock:
            target = dialog.target
            if dialog.open and producer.free and target.weight < target.room and len(body) <= BODY_BYTES_MAX:
                sequence = dialog.sent
                carrier = producer.carrier
                try:
                    carrier[HEADER] = dialog.stage(message_type, body)
                    topic, partition = target.place
                    try:
                        producer.produce(topic, body, dialog.key, partition, producer.failed, None, 0, carrier)
                    except (BufferError, KafkaException):
                        producer.produce_records(self.session.unsent())
                        return sequence
                    target.window.sent = counter = target.next
                except BaseException as error:  # from outside: Ctrl-C, an alarm
                    producer.mend(dialog, sequence, error)
                    raise
                if not counter & SERVE_MASK:
                    producer.serve(0)
                return sequence
        return self._send_slowly(dialog, message_type, body)

    def end(self, dialog: SessionDialog, error_body: bytes = b"") -> None:
        """End a dialog; its home notifies the peer when everything that was sent before is delivered.

        Raises TopicMismatch when the topic of home or target is known to be gone. A peer that has ended is not
        notified, so only the topic of the home matters then.
        """
        home, target = addresses_of(dialog)
        self._destinations.check(*((home,) if dialog.state is DialogState.ENDED else (home, target)))
        self.decide(lambda session: session.end(dialog, error_body))

    def set_timer(self, dialog: SessionDialog, timer: Timer) -> None:
        """Set the timer of a dialog at its home. Waits only while the window to the home is full, then QueueFull."""
        self.check([dialog])
        self.wait_for_id()
        self._decide_when(
            lambda: not (dialog.home.full or dialog.unsettled),
            lambda: self.session.set_timer(dialog, timer),
            lambda: (dialog, dialog.home),
        )

    def decide(self, call: Callable[[Session], list[Produce]]) -> None:
        """Call the session under its lock, and hand over the resulting records. For rare operations."""
        self.wait_for_id()
        with self._producer.lock:
            self._producer.check_open()
            self._producer.carry_out(lambda: call(self.session))

    def apply_news(self, news: Callable[[Session], list[Produce]]) -> None:
        """As `decide`, but without waiting, since the caller may hold locks. Call `wait_for_id` before.

        Raises KafkaUnavailable when the id has become old meanwhile.
        """
        with self._producer.lock:
            self._producer.check_open()
            if self._renewal.age:
                raise KafkaUnavailable("the session waits for a new id from Kafka; try again")
            self._producer.carry_out(lambda: news(self.session))

    @property
    def redirecting(self) -> list[SessionDialog]:
        """Dialogs with redirected messages that have not arrived yet."""
        with self._producer.lock:
            return [] if self._producer.closed else list(self.session.redirecting)

    def undelivered(self) -> list[Outgoing]:
        """Messages that are not acknowledged or not handed over yet, with the last failure as their status."""
        failure = self._producer.last_failure
        with self._producer.lock:
            status = str(failure) if not isinstance(failure, Health) or failure.troubled else ""
            return [] if self._producer.closed else unsent(self.session, status)

    def wait_for(self, reached: Callable[[], bool], timeout_s: float) -> bool:
        """Poll the producer until `reached()`; False after `timeout_s`."""
        return self._producer.serve_until(reached, timeout_s)

    def check_thread(self) -> None:
        """Raise InvalidState in a signal handler while its thread polls: `flush` and `close` would wait for ever."""
        self._producer.check_thread()

    @property
    def conversations(self) -> list[bytes]:
        """Ids of the conversations that this session began and that are not over, as far as it knows."""
        with self._producer.lock:
            return list(self.session.dialogs)

    def flush(self, timeout_s: float | None = None, dialog: SessionDialog | None = None) -> None:
        """Return when everything sent, begun and ended so far is delivered (with `dialog`: begun and sent on it).

        The messages of transactions have arrived then, so messages that others send later on the same side come after
        them. Sends of other threads may have to wait. Raises TopicMismatch, OutcomeUnknown when Kafka does not
        answer or the transmission queue has no owner, TransactionLost, and BrokerClosed in a forked process.
        """
        if self._producer.forked:
            self._producer.check_open()
        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        deadline = time.monotonic() + timeout_s
        with self._producer.lock:
            arrived = self.session.transactions.arrived(dialog)
            redirecting = self.session.redirecting
        if dialog is None:
            self.settle(timeout_s)
            if redirecting:
                self._wait_until(
                    lambda: not any(one in redirecting for one in self.session.redirecting),
                    "the messages that were redirected",
                    deadline - time.monotonic(),
                    None,
                )
        elif arrived():
            last = dialog.sent + len(dialog.held) - 1
            what = f"{f'message {last}' if last >= 0 else 'the BEGIN'} of {UUID(bytes=dialog.conversation)}"
            acknowledged = self.session.acknowledged(dialog)
            self._wait_until(lambda: dialog.home.counts(dialog.begun_at) and acknowledged(), what, timeout_s, dialog)
        if not arrived():
            self._wait_for_arrival(arrived, deadline, timeout_s, dialog)
        # after the acknowledgements: a topic that is still its queue's was so when it accepted the records
        while not self._check_destinations(dialog, max(deadline - time.monotonic(), ANSWER_S_MIN)):
            if time.monotonic() > deadline:
                raise not_verified(timeout_s, self._producer.last_failure, self._token(dialog))
            time.sleep(POLL_S)

    def settle(self, timeout_s: float | None = None, *, leaves: bool = False) -> None:
        """Return when Kafka has everything. Messages of transactions are then sent even without this process.

        With `leaves` it also waits until an old or refused id is replaced: under the next id the session learns which
        records were not received.
        """

        def settled() -> bool:
            return self.session.idle and not (leaves and self._renewal.age)

        self._wait_until(settled, None, timeout_s, None, leaves=leaves)

    @property
    def unacknowledged(self) -> str:
        """The topics of the records that Kafka has not acknowledged, in words."""
        with self._producer.lock:
            behind = (lane for chain in self.session.takeover.behind.values() for lane in chain)
            lanes = (*self.session.lanes.values(), *behind)
            topics = sorted({lane.address.topic for lane in lanes if lane.origins})
        return f"records to {listed(topics)}" if topics else "some records"

    def _wait_for_arrival(
        self, arrived: Callable[[], bool], deadline: float, timeout_s: float, dialog: SessionDialog | None
    ) -> None:
        """Wait without pausing other threads' sends: the awaited outputs do not pass through this producer.

        Kafka is asked early about the topics, because outputs to one that is gone never arrive.
        """
        for until in (min(deadline, time.monotonic() + SILENT_S), deadline):
            self._wait_while(lambda: not (self._producer.closed or self.session.over or arrived()), until)
            if until < deadline and not arrived():
                self._check_destinations(dialog)
        self.session.check_over()
        if arrived():
            return
        if self._producer.closed:
            raise BrokerClosed("the broker was closed while this call waited")
        self._check_destinations(dialog)
        raise not_arrived(timeout_s, self._token(dialog))

    def _wait_while(self, waits: Callable[[], bool], deadline: float) -> None:
        with self._producer.lock:
            self._awaited += 1
            self.awaits_arrival.set()
            try:
                while waits() and time.monotonic() < deadline:
                    self._producer.changed.wait(POLL_S)
            finally:
                self._awaited -= 1
                if not self._awaited:
                    self.awaits_arrival.clear()

    def _wait_until(
        self,
        reached: Callable[[], bool],
        what: str | None,
        timeout_s: float | None,
        dialog: SessionDialog | None,
        *,
        leaves: bool = False,
    ) -> None:
        """Poll the producer until `reached()`. `what` is the awaited record in words; None: all records.

        `leaves`: the caller closes this sender, and judges the topics itself.
        """
        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        answer_s = min(ANSWER_S, timeout_s / 4)
        deadline = time.monotonic() + timeout_s - answer_s  # the remaining time is for asking Kafka about the reason
        self.session.check_over()
        mark = self._producer.mark()
        done = self._producer.serve_until(reached, min(deadline - time.monotonic(), SILENT_S))
        if not (done or self._producer.ended) and timeout_s > SILENT_S:
            self._check_destinations(dialog, leaves=leaves)
            if not self._producer.moved_since(mark):
                log.warning(
                    "Kafka has not acknowledged %s yet; waiting %.0f s more (last failure: %s)",
                    what or self.unacknowledged,
                    timeout_s - SILENT_S,
                    self._producer.last_failure,
                )
            done = self._producer.serve_until(reached, deadline - time.monotonic())
        self.session.check_over()
        if done:
            return
        if self._producer.closed:
            raise BrokerClosed("the broker was closed while this call waited")
        self._check_destinations(dialog, answer_s, leaves=leaves)
        what = what or self.unacknowledged
        raise not_acknowledged(what, timeout_s, self._producer.last_failure, self._token(dialog))

    def check(self, dialogs: Iterable[SessionDialog]) -> None:
        """Raise TopicMismatch when a topic of one of these dialogs is known to be gone. Does not ask Kafka."""
        self._destinations.check(*(address for dialog in dialogs for address in addresses_of(dialog)))

    def _check_destinations(
        self, dialog: SessionDialog | None, timeout_s: float = ANSWER_S, *, leaves: bool = False
    ) -> bool:
        """Ask Kafka about the topics written to (by one dialog); TopicMismatch when one is no longer its queue's.

        False when Kafka does not answer, so that the topics are neither confirmed nor refuted.
        """
        with self._producer.lock:
            addresses = addresses_of(dialog) if dialog is not None else self._destinations.unverified(self.session)
            reached = reached_of(self.session, addresses)
        answered = self._destinations.refresh(addresses, timeout_s)
        self._producer.refresh()
        if not leaves:
            self._destinations.check(*addresses)
            if answered:
                self._destinations.verified |= reached
        return answered

    def close(self, timeout_s: float | None = None) -> None:
        """Wait until everything is delivered, close the session at each destination, and stop. Safe to call twice.

        Raises OutcomeUnknown when Kafka does not answer in time: records without acknowledgement are given up. The same
        happens as soon as all remaining records go to dropped queues or lost topics, which would never accept them, and
        when an interrupted call has ended the session.
        Raises TopicMismatch when Kafka has every record but a topic is no longer its queue's, and OutcomeUnknown when
        Kafka does not say whether that is so. Raises InvalidState, and stays open, in a signal handler while its thread
        polls.
        """
        self.check_thread()
        with self._producer.lock:
            if self._producer.closed:
                return
        answered = True
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        deadline = time.monotonic() + limit_s
        try:
            if self.session.lanes and self.session.over is None:
                self._wait_until(
                    lambda: self.session.idle or bool(self._undeliverable_lanes()), None, timeout_s, None, leaves=True
                )
                with self._producer.lock:
                    if self._undeliverable_lanes():
                        raise self._given_up()
                    self._producer.refuse_sends()  # instead of holding the lock, which would block other threads
                unverified: list[Address] = []
                with suppress(SessionTakenOver):  # Kafka has every record, and the closer knows which of them count
                    unverified = self._close_session(timeout_s)
                    what = f"the closing of session {self.session.writer.hex()}"
                    self._wait_until(self._session_closed, what, timeout_s, None, leaves=True)
                while not (answered := self._destinations.refresh(unverified)) and time.monotonic() < deadline:
                    time.sleep(POLL_S)  # `refresh` waits for Kafka, but an unreadable catalog fails at once
                self._destinations.check_untold(unverified)
        except OutcomeUnknown:
            raise self._given_up() from None
        finally:
            self._producer.stop()
        if self._gives_up:
            raise self._given_up()
        if not answered:
            self.is_unverified = True
            raise not_verified(limit_s, self._producer.last_failure, self._token(None))

    def _close_session(self, timeout_s: float | None) -> list[Address]:
        """Close the session when everything is delivered. Returns the partitions whose topics are not verified."""
        while True:
            self.settle(timeout_s, leaves=True)
            with self._producer.lock:
                if self._renewal.age:
                    continue  # its id was refused meanwhile, and a closing session keeps its id
                unverified = self._destinations.unverified(self.session)
                if self.session.may_close:  # else outputs of its transactions have not arrived (M106)
                    self._producer.carry_out(self.session.close)
                self._producer.refresh()
                return unverified

    def _session_closed(self) -> bool:
        """Whether everything is delivered, except CLOSE_WRITER records to dropped queues, which do not matter."""
        return self.session.idle or bool(self._undeliverable_lanes())

    def _undeliverable_lanes(self) -> list[Lane]:
        """The lanes with waiting records, if all of them lead to dropped queues; empty when a record may yet arrive."""
        session = self.session
        waiting = [lane for lane in session.lanes.values() if lane.origins]
        own = session.transactions.address
        if (
            session.redirecting
            or session.takeover.behind
            or any(self._destinations.takes(lane.address, own) for lane in waiting)
        ):
            return []
        return waiting

    @property
    def _gives_up(self) -> bool:
        """Whether the session has ended with records that Kafka has not acknowledged.

        After a takeover the other process knows which of them count.
        """
        with self._producer.lock:
            over = self.session.over
            return over is not None and not isinstance(over, SessionTakenOver) and not self.session.idle

    def _given_up(self) -> OutcomeUnknown:
        with self._producer.lock:
            messages = self.session.messages_waiting
            why = self.session.over or f"last failure: {self._producer.last_failure}"
            return given_up(messages, self._undeliverable_lanes(), why, self._token(None))

    def at_exit(self, timeout_s: float) -> None:
        """Called when the program ends without `close`: see `deliver_at_exit`."""
        if self._producer.closed:
            return
        if self.session.over is None:
            deliver_at_exit(self, timeout_s, self._producer.last_failure)
        elif self._gives_up:
            log.error("the program ends: %s", self._given_up())

    def after_fork(self) -> None:
        """Mark as closed in a forked child (`bridge.runtime.forks`)."""
        self._producer.after_fork()

    # ------------------------------------------------------------------------------------------------------ inside

    def _send_slowly(self, dialog: SessionDialog, message_type: str, body: bytes) -> int:
        """The slow path of `send`: BEGIN is not delivered yet, there is no room, a failure, or an ended dialog."""
        numbers: list[int] = []

        def send() -> list[Produce]:
            numbers.append(dialog.next_sequence)
            return self.session.send(dialog, message_type, body)

        with self._producer.lock:
            if self.session.over is None:
                dialog.check_open()  # raises at once: a dialog that has ended may never get room
        self.decide_with_room(dialog, send)
        return numbers[0]

    def decide_with_room(self, dialog: SessionDialog | None, call: Callable[[], list[Produce]]) -> None:
        """As `decide`, once there is room on a dialog or (None) for a transaction. QueueFull after `send_timeout_s`."""
        self.check([dialog] if dialog is not None else ())
        self._decide_when(lambda: self._has_room(dialog), call, lambda: (dialog, self._lane_of(dialog)))

    def _decide_when(
        self,
        has_room: Callable[[], bool],
        call: Callable[[], list[Produce]],
        full: Callable[[], tuple[SessionDialog | None, Lane | None]],
    ) -> None:
        """Make the call once there is room, or the session is over and raises. QueueFull names the result of `full`."""
        deadline = time.monotonic() + self._timeout_s
        while True:
            with self._producer.lock:
                self._producer.check_open()
                if has_room() or self.session.over is not None:
                    self._producer.carry_out(call)
                    return
            room = self._producer.serve_until(has_room, deadline - time.monotonic())
            if not (room or self._producer.ended):
                raise no_room(*full(), self._timeout_s, self._producer.last_failure)

    def _has_room(self, dialog: SessionDialog | None) -> bool:
        lane = self._lane_of(dialog)
        blocked = dialog is not None and dialog.blocked
        return not (lane is None or lane.full or blocked or self._producer.stalled or self._renewal.age)

    def _lane_of(self, dialog: SessionDialog | None) -> Lane | None:
        return dialog.target if dialog is not None else self.session.transactions.lane

    def wait_for_id(self) -> None:
        """Wait until an old id is replaced: nothing is handed over under it.

        Raises KafkaUnavailable after `send_timeout_s`.
        """
        if not self._renewal.age or self._producer.serve_until(lambda: not self._renewal.age, self._timeout_s):
            return
        if not self._producer.ended:
            why = self._producer.last_failure
            raise KafkaUnavailable(f"the session did not get a new id within {self._timeout_s} s: {why}")

    def _token(self, dialog: SessionDialog | None) -> bytes:
        """Token for `broker.outcome` about all records whose outcome is unknown; empty when there are none."""
        with self._producer.lock:
            sent = self.session.unknown(dialog)
            return tokens.encode(Token(tuple(sent), self.session.transactions.address)) if sent else b""


def no_room(dialog: SessionDialog | None, lane: Lane | None, timeout_s: float, failure: object) -> QueueFull:
    """The error for a call that found no room on a dialog or lane."""
    if dialog is not None and dialog.unsettled:
        return QueueFull(
            f"a transaction with this dialog has not arrived for {timeout_s} s; is the transmission queue served "
            "(`konverse transmit`)? The call had no effect; try again later"
        )
    assert lane is not None
    topic = lane.address.topic
    waiting = counted(len(lane.origins), f"record to {topic} has waited", f"records to {topic} have waited")
    return QueueFull(
        f"{waiting} {timeout_s} s for Kafka (last failure: {failure}); the call had no effect; try again later"
    )


def not_acknowledged(what: str, timeout_s: float, failure: object, token: bytes) -> OutcomeUnknown:
    """The error when Kafka does not acknowledge records in time."""
    return OutcomeUnknown(
        f"Kafka has not acknowledged {what} within {timeout_s} s (last failure: {failure}). "
        "Unacknowledged records are kept and sent again; call `flush` again to learn the outcome",
        token,
    )


def not_verified(timeout_s: float, failure: object, token: bytes) -> OutcomeUnknown:
    """The error when Kafka has every record, but does not say whether the topics are still those of the queues."""
    return OutcomeUnknown(
        f"Kafka has acknowledged every record, but has not confirmed within {timeout_s} s that the topics are still "
        f"those of the queues (last failure: {failure}). Call `flush` again to learn the outcome",
        token,
    )


def not_arrived(timeout_s: float, token: bytes) -> OutcomeUnknown:
    """The error when Kafka has the transactions, but their messages have not arrived."""
    return OutcomeUnknown(
        f"messages of transactions have not arrived within {timeout_s} s; is the transmission queue served (`konverse "
        "transmit`)? Transactions stored in Kafka take effect, and messages that others send meanwhile on the same "
        "dialogs may arrive first; call `flush` again to learn the outcome",
        token,
    )


def given_up(messages: int, vain: list[Lane], why: object, token: bytes) -> OutcomeUnknown:
    """The error of `close`. `messages`: number of messages without acknowledgement, beside other records.

    `vain`: lanes to dropped queues, when all waiting records are in them; otherwise `why` is the reason.
    """
    topics = ", ".join(sorted({lane.address.topic for lane in vain}))
    if vain:
        why = f"the queues of {topics} were dropped, or their topics deleted"
    return OutcomeUnknown(
        f"the broker was closed before Kafka had acknowledged all of its records; messages among them: {messages} "
        f"({why}). They are given up: some of them may have arrived, and none is sent again",
        token,
    )


def deliver_at_exit(sender: Sender, timeout_s: float, failure: object) -> None:
    """Deliver the waiting records of a program that ends without `close`, or log how many are given up."""
    close_session_s = CLOSE_SESSION_S
    try:
        sender.settle(timeout_s)
    except TopicMismatch as error:
        close_session_s = 0.0
        log.error("the program ends: %s", error)  # noqa: TRY400  # no traceback
    except OutcomeUnknown:
        close_session_s = 0.0
        log.error(  # noqa: TRY400  # a traceback into this module does not help the reader of the log
            "the program ends and Kafka has not acknowledged %s: %s (last failure: %s). To wait longer and get an "
            "error, call flush() or close() before the program ends",
            sender.unacknowledged,
            counted(
                sender.session.messages_waiting,
                "message is given up, which may have arrived",
                "messages are given up, of which some may have arrived",
            ),
            failure,
        )
    try:
        sender.close(close_session_s)
    except TopicMismatch as error:
        log.error("the program ends: %s", error)  # noqa: TRY400  # no traceback
    except OutcomeUnknown as error:  # a session that is not closed loses nothing: its destinations forget it later
        if close_session_s and sender.is_unverified:
            log.error("the program ends: %s", error)  # noqa: TRY400  # no traceback
