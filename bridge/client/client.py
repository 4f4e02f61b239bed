"""The client half of a broker: begins dialogs, opens transactions, and owns the sender that writes for both."""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Final

from konverse.bridge.catalog.destinations import Destinations
from konverse.bridge.reader.readers import Readers
from konverse.dialog.session.outcome import Outcome
from konverse.schemas.catalog.objects import Queue

from .adoption import AdoptedConversation, Adopter
from .begin import BeginClauses, Prepared, begin_block, check_at_home, check_same
from .connection import Connection
from .dialog import Dialog
from .fire_and_forget import FireAndForget
from .mailboxes import Mailboxes
from .outcomes import Sessions, opened
from .sender import Sender
from .transaction import ClientTransaction
from .transmission import Transmission, ensure_queue


class Client:
    """Writes for one broker. Its sender and its transmission queue are opened when they are first needed.

    Thread-safe. Two locks: `_opening` is held while the sender or the queue is opened, which waits for Kafka; it is
    taken before `_lock`, which guards the objects to close and is never held while waiting for Kafka.
    """

    def __init__(self, connection: Connection, readers: Readers) -> None:
        self._connection = connection
        self._readers = readers
        self._sessions: Final = Sessions(connection.kafka, connection.topics, connection.catalog)
        self.fire_and_forget: Final = FireAndForget(readers)
        self.mailboxes: Final = Mailboxes(connection.kafka, connection.catalog, readers)
        self._begin_block = partial(begin_block, connection.settings, connection.network, self._owned)
        self._lock = threading.Lock()
        self._opening = threading.Lock()
        self.sender: Sender | None = None
        """None until the first call that needs it."""
        self._transmission: Transmission | None = None

    def begin(self, clauses: BeginClauses) -> Dialog:
        """BEGIN DIALOG. Returns at once. Raises the errors of `Broker.begin_dialog`."""
        sender = self.open_sender()
        conversation, begin, placed, manner = self._prepare(clauses)
        staged = sender.begin(conversation, begin, manner)
        return check_same(Dialog(sender, staged, self._connection.catalog, self.mailboxes, placed), clauses)

    def transaction(self) -> ClientTransaction:
        """A transaction over several dialogs. Creates the transmission queue if there is none."""
        return ClientTransaction(self._open_transmission(), self._connection.catalog, self.mailboxes, self._prepare)

    def adopt(
        self, wanted: Sequence[BeginClauses], *, writers: Collection[bytes] = (), timeout: float | None = None
    ) -> list[AdoptedConversation]:
        """Take over conversations of a dead process: see `Adopter.adopt`. `timeout` is in seconds."""
        adopter = Adopter(self.open_sender(), self._connection.catalog, self.mailboxes, self._begin_block)
        return adopter.adopt(wanted, writers, self._connection.settings.send_timeout_s if timeout is None else timeout)

    def outcome(self, token: bytes, timeout: float | None) -> Outcome:
        """Which messages of an OutcomeUnknown were received (`Broker.outcome`)."""
        if opened(token).transmission is not None and self._connection.settings.transmit:
            self._open_transmission()  # the queue's former owner may be gone too
        return self._sessions.outcome(token, self.sender.session if self.sender else None, timeout)

    def prepare_ids(self) -> None:
        """Create the topic from which sessions take the broker's time."""
        self._sessions.ids.prepare()

    def present_sender(self) -> Sender | None:
        """The sender, if there is one. Raises BrokerClosed."""
        self._connection.check_open()
        return self.sender

    def open_sender(self) -> Sender:
        """The sender, created at the first call."""
        with self._opening:
            self._connection.check_open()
            if self.sender is None:
                kafka = self._connection.kafka
                destinations, session = Destinations(kafka, self._connection.catalog), self._sessions.new()
                with self._lock:
                    self._connection.check_open()
                    self.sender = Sender(kafka, session, destinations, self.fire_and_forget)
            return self.sender

    def _open_transmission(self) -> Sender:
        """The sender, with the transmission queue opened for its transactions."""
        sender, settings = self.open_sender(), self._connection.settings
        with self._opening:
            self._connection.check_open()
            if self._transmission is None:
                queue = ensure_queue(self._connection.kafka, settings.instance)
                with self._lock:
                    self._connection.check_open()
                    self._transmission = Transmission(
                        self._connection.kafka, queue, sender, self._connection.catalog, own=settings.transmit
                    )
        return sender

    def _prepare(self, clauses: BeginClauses) -> Prepared:
        """Addresses and id of a dialog. Raises ConversationOver, ForeignGroup if a reader of this process objects."""
        prepared = self._begin_block(clauses)
        if prepared.manner.named or prepared.begin.group != prepared.conversation:
            check_at_home(self._readers, prepared)
        return prepared

    def _owned(self, queue: Queue) -> frozenset[int]:
        """Partitions of a queue that this process owns; replies to a dialog with its home there come here."""
        return self._readers.owned(queue.topic)

    def check_thread(self) -> None:
        """Raise InvalidState in a signal handler whose thread waits for Kafka in a call of this client."""
        if self.sender is not None:
            self.sender.check_thread()

    def close(self) -> None:
        """Deliver everything that was sent, and close the session. Call it only when `check_open` already raises."""
        with self._lock:  # an `open_sender` that has passed its check is done; a later one raises
            sender, transmission = self.sender, self._transmission
        with ExitStack() as exits:  # runs in reverse order, and to the end whatever fails
            if transmission is not None:
                exits.callback(transmission.close)
            if sender is not None:
                exits.callback(sender.close)
            if transmission is not None:
                exits.callback(transmission.settle)

    def after_fork(self) -> None:
        """Mark as closed in a forked child (`bridge.runtime.forks`)."""
        self._lock, self._opening = threading.Lock(), threading.Lock()
        self.mailboxes.after_fork()
        if self.sender is not None:
            self.sender.after_fork()
        if self._transmission is not None:
            self._transmission.after_fork()
