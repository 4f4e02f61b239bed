"""The public door: a connection to one database of conversations."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, Final, Self

from konverse.dialog.asking import Outcome
from konverse.dialog.staging import OwnerSettings
from konverse.schemas.catalog import DEFAULT, KEEP_FOR_EVER, Contract, MessageType, Queue, SentBy, Service
from konverse.schemas.errors import (
    AlreadyExists,
    BrokerClosed,
    InvalidSettings,
)
from konverse.schemas.identifiers import check_name, data_topic
from konverse.schemas.limits import QUEUE_PARTITIONS_MAX

from .arguments import Seconds, checked
from .beginning import Wanted, begin_block, check_same
from .catalog import Catalog, Object, differences, kind_of
from .collector import prepare_collector
from .dialog import Dialog
from .forks import closed_in_children
from .kafka import Kafka
from .mailboxes import Mailboxes
from .outcomes import Sessions, opened
from .owning import Owning
from .reader import Reader
from .sending import Sender
from .settings import ReaderOptions, Settings
from .topics import Topics
from .transactions import ClientTransaction
from .transmission import Transmission, ensure_queue, find_queue, transmitter
from .verifier.reading import Verification
from .view import ViewStore, ViewWriter, connect_redis

log: Final = logging.getLogger("konverse.broker")


def connect(
    kafka: str | None = None, *, redis: str | None = None, database: str | None = None, **settings: Any
) -> Broker:
    """Connect to the conversations of `database`, e.g. `connect("kafka://localhost:9092", database="sales")`.

    What is not given comes from the environment (`KONVERSE_KAFKA` …) or `konverse.toml`; see `bridge.settings` for all
    names. Raises InvalidSettings, or KafkaUnavailable when no broker answers. Redis is not needed: without it nobody
    can look at the state of conversations, and nothing else changes.
    """
    prepare_collector()  # before there is anything of ours that it would not see any more
    return Broker(Settings.load(kafka=kafka, redis=redis, database=database, **settings))


KEEP: Final = timedelta(days=7)
"""How long what was received stays for others to read, unless a queue says otherwise: as long as in Kafka itself."""


class Broker:
    """Catalog, dialogs and readers of one database. Thread-safe; close it, or use it as a context manager."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.database = check_name("database", settings.database)
        check_name("instance", settings.instance)
        self._kafka = Kafka(settings)
        self._kafka.check()
        self._topics = Topics(self._kafka)
        self.catalog = Catalog(self._kafka, settings.instance, settings.database)
        self._sessions = Sessions(self._kafka, self._topics, self.catalog, settings.instance)
        self._lock = threading.Lock()
        self._sender: Sender | None = None
        self._transmission: Transmission | None = None
        self._readers: list[Reader] = []
        self._mailboxes = Mailboxes(self._kafka, self.catalog, lambda: self._readers)
        self._closed = False
        closed_in_children(self)

    # ----------------------------------------------------------------------------------------------------- catalog

    @checked
    def create_message_type(self, name: str, *, if_not_exists: bool = False) -> MessageType:
        """CREATE MESSAGE TYPE … VALIDATION = NONE: bodies may be anything (behaviour 2).

        Raises AlreadyExists. With `if_not_exists` (here and for what follows) an object of the same definition that is
        there already is returned instead, and AlreadyExists says what differs.
        """
        return self._create(MessageType(check_name("message type", name)), lambda: None, if_not_exists=if_not_exists)

    @checked
    def create_contract(
        self, name: str, sent_by: Mapping[str, str | SentBy], *, if_not_exists: bool = False
    ) -> Contract:
        """CREATE CONTRACT: message type -> "INITIATOR", "TARGET" or "ANY".

        Raises InvalidContract (8492) when the initiator may send nothing, MessageTypeNotFound, AlreadyExists.
        Behaviours 11, 17.
        """
        value = Contract.of(name, sent_by)

        def check() -> None:
            for kind in value.sent_by:
                self.catalog.get(MessageType, kind)

        return self._create(value, check, if_not_exists=if_not_exists)

    @checked
    def create_queue(
        self, name: str, *, partitions: int = 1, keep: timedelta | None = KEEP, if_not_exists: bool = False
    ) -> Queue:
        """CREATE QUEUE: its topics, and an incarnation of its own. Partitions are fixed from here on.

        What was received stays in the topics for others to read: at least as long as `keep` (None: for ever).
        Raises InvalidSettings for the number, TopicMismatch when an administrator's topics do not fit, AlreadyExists.
        """
        self._check_open()
        check_name("queue", name)
        if not 1 <= partitions <= QUEUE_PARTITIONS_MAX:
            raise InvalidSettings(
                f"queue {name!r} cannot have {partitions} partitions; 1 to {QUEUE_PARTITIONS_MAX} can be"
            )
        if keep is not None and keep < timedelta():
            raise InvalidSettings(f"queue {name!r} cannot keep what was received for {keep}; give 0 or more")
        keep_ms = KEEP_FOR_EVER if keep is None else keep // timedelta(milliseconds=1)
        topic = data_topic(self.settings.instance, self.database, name)
        known = self.catalog.find(Queue, name)
        if known is not None:
            wanted = replace(known, topic=topic, partitions=partitions, keep_ms=keep_ms)
            return self._existing(wanted, if_not_exists=if_not_exists)
        self._sessions.ids.prepare()
        value = self._topics.make_queue(name, topic, partitions, keep_ms)
        return self._create(value, lambda: None, if_not_exists=if_not_exists)

    @checked
    def create_service(
        self, name: str, *, queue: str, contracts: list[str] | tuple[str, ...] = (), if_not_exists: bool = False
    ) -> Service:
        """CREATE SERVICE on a queue; `contracts` are those for which it may be a target (behaviours 16, 17).

        "DEFAULT" is one of them only when it is named; without any the service can begin dialogs and nothing else.
        Raises QueueNotFound, ContractNotFound, ContractTwice (8404), AlreadyExists.
        """
        value = Service.of(name, queue, contracts)

        def check() -> None:
            self.catalog.get(Queue, queue)
            for contract in contracts:
                self.catalog.get(Contract, contract)

        return self._create(value, check, if_not_exists=if_not_exists)

    # ----------------------------------------------------------------------------------------------- conversations

    @checked
    def begin_dialog(  # noqa: PLR0913  # the clauses of BEGIN DIALOG
        self,
        from_service: str,
        to_service: str,
        contract: str = DEFAULT,
        *,
        related_to: Dialog | None = None,
        key: bytes | None = None,
        conversation_id: uuid.UUID | None = None,
    ) -> Dialog:
        """BEGIN DIALOG. Returns at once; nothing reaches the target before the first message (behaviour 31).

        Without `contract` it is "DEFAULT" (33), which the target must list like any other.
        `related_to` puts the dialog into that dialog's conversation group (35); `key` is the Kafka key of its records.
        `conversation_id` makes a repeated begin of a living conversation harmless: its home follows from the id alone,
        and a dialog that this process began is given again. Raises ServiceNotFound (8423),
        ContractNotFound (8425), also when the target service does not accept the contract.
        """
        self._check_open()
        wanted = Wanted(from_service, to_service, contract, related_to, key, conversation_id)
        sender = self._open_sender()
        conversation, begin = begin_block(self.catalog, self._owned, wanted)
        dialog = Dialog(sender, sender.begin(conversation, begin), self.catalog, self._mailboxes)
        return check_same(dialog, wanted)

    @checked
    def transaction(self) -> ClientTransaction:
        """Begins, sends and ends on several dialogs that happen together or not at all: use it in a `with` block.

        The first one creates the transmission queue of the instance if there is none. What a transaction sends leaves
        by the owner of that queue: this process, unless the setting `transmit` says otherwise.
        """
        sender = self._open_transmission()
        return ClientTransaction(sender, self.catalog, self._mailboxes, partial(begin_block, self.catalog, self._owned))

    def transmission_queue(self) -> Queue | None:
        """The transmission queue of the instance; None before anybody has needed it."""
        self._check_open()
        return find_queue(self._kafka, self.settings.instance)

    @checked
    def transmitter(self) -> Reader:
        """An owner of the transmission queue, as `konverse transmit` is: iterate over it, and transactions leave."""
        self._check_open()
        return self._keep(transmitter(self._kafka, ensure_queue(self._kafka, self.settings.instance)))

    @checked
    def reader(  # noqa: PLR0913  # the clauses of RECEIVE, and how partitions are found
        self,
        queue: str,
        *,
        batch: int = 100,
        max_messages: int | None = None,
        timeout: float | None = None,
        partitions: tuple[int, ...] | None = None,
        standby: bool = False,
    ) -> Reader:
        """Read a queue: iterate over the result for transactions. Readers of several processes share its partitions.

        `batch` conversation groups at most share a commit; `max_messages` is TOP; iteration ends after `timeout`
        seconds without work; `partitions` takes exactly these instead of a share. With `standby` all others are
        followed meanwhile, and one that becomes ours is led at once. Raises QueueNotFound,
        TopicMismatch when the queue's topics are missing or were created again, InvalidSettings.
        """
        self._check_open()
        known = self.catalog.get(Queue, queue)
        options = ReaderOptions(batch, max_messages, timeout, partitions, standby)
        options.check(known)
        self._topics.check_queue(known)
        redis = self.settings.redis
        owning = Owning(
            self._kafka,
            known,
            self.catalog.check_send,
            OwnerSettings(batch, max_messages),
            ViewWriter(redis, known) if redis else None,
        )
        reader = self._keep(Reader(self._kafka, owning, options, self._ended_by_peer))
        beside = sum(other.queue.topic == known.topic for other in self._readers)
        if partitions is None and beside > known.partitions:
            log.warning(
                "%d readers of this process share %d partitions of queue %r: some get none. One reader serves several "
                "threads (`reader.run`); or create the queue with more partitions",
                beside,
                known.partitions,
                queue,
            )
        return reader

    @checked
    def view(self, queue: str) -> ViewStore:
        """What Redis shows of a queue. Raises QueueNotFound, or InvalidSettings when no Redis was named."""
        self._check_open()
        if not self.settings.redis:
            raise InvalidSettings(
                "no Redis was named: connect with redis='redis://host:port' (--redis, KONVERSE_REDIS) to see the view"
            )
        return ViewStore(connect_redis(self.settings.redis), self.catalog.get(Queue, queue))

    def verification(self, queues: Sequence[Queue], since_ms: int | None = None) -> Verification:
        """The logs of these queues as they end now, to be verified: `run` it, then close it."""
        self._check_open()
        return Verification(self._kafka, queues, since_ms)

    @checked
    def flush(self, timeout: Seconds | None = None) -> None:
        """Return when Kafka has everything that was begun, sent and ended here; OutcomeUnknown when it stays silent."""
        if self._sender is not None:
            self._sender.flush(timeout)

    @checked
    def outcome(self, token: bytes, *, timeout: Seconds | None = None) -> Outcome:
        """What became of the messages of an OutcomeUnknown, by its `token`, when whoever sent them is gone.

        What is `missing` will never be received, so it may be sent again; a sender that lives is stopped. Raises
        OutcomeUnknown when no worker answers in time (without `timeout`: `send_timeout_s`), OutcomeExpired.
        """
        self._check_open()
        if opened(token).transmission is not None and self.settings.transmit:
            self._open_transmission()  # whoever did it may be gone too
        return self._sessions.outcome(token, self._sender.session if self._sender else None, timeout)

    def close(self) -> None:
        """Close readers (what is finished is committed), send what waits, say goodbye. Safe to call twice."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        with ExitStack() as exits:  # the last first, and all of them whatever fails
            exits.callback(self.catalog.close)
            if self._transmission is not None:
                exits.callback(self._transmission.close)
            if self._sender is not None:
                exits.callback(self._sender.close)
            if self._transmission is not None:
                exits.callback(self._transmission.settle)
            for reader in self._readers:
                exits.callback(reader.close)
            exits.callback(self._mailboxes.close)

    def forked(self) -> None:
        """In a forked child: closed, see `bridge.forks`."""
        self._closed = True
        self._lock = threading.Lock()
        self._mailboxes.forked()
        for reader in self._readers:
            reader.forked()
        if self._sender is not None:
            self._sender.forked()
        if self._transmission is not None:
            self._transmission.forked()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------------------------------------------------ inside

    def _create(self, value: Object, check: Callable[[], None], *, if_not_exists: bool) -> Object:
        self._check_open()
        kind = type(value)

        def decide() -> Object:
            if self.catalog.find(kind, value.name) is not None:
                raise AlreadyExists
            check()
            return value

        try:
            self.catalog.change(value.name, decide, kind)
        except AlreadyExists:
            return self._existing(value, if_not_exists=if_not_exists)
        return value

    def _existing(self, wanted: Object, *, if_not_exists: bool) -> Object:
        """What is there already, when that is what was wanted; else AlreadyExists."""
        kind = type(wanted)
        found = self.catalog.get(kind, wanted.name)
        differs = differences(found, wanted)
        if if_not_exists and not differs:
            return found
        how = f", with {differs}" if differs else ""
        raise AlreadyExists(f"there is a {kind_of(kind)} {wanted.name!r} in database {self.database!r} already{how}")

    def _owned(self, queue: Queue) -> frozenset[int]:
        """Partitions of a queue that readers of this process own: replies come back here."""
        owned = [r.partitions for r in self._readers if r.queue.topic == queue.topic and not r.closed]
        return frozenset().union(*owned)

    def _keep(self, reader: Reader) -> Reader:
        """It is closed with the broker: at once when that was closed meanwhile."""
        with self._lock:
            self._readers = [other for other in self._readers if not other.closed] + [reader]
            closed = self._closed
        if closed:
            reader.close()
            self._check_open()
        return reader

    def _open_transmission(self) -> Sender:
        """The sender, and what takes its transactions to their destinations."""
        sender = self._open_sender()
        with self._lock:
            self._check_open()
            if self._transmission is None:
                queue = ensure_queue(self._kafka, self.settings.instance)
                self._transmission = Transmission(self._kafka, queue, sender, own=self.settings.transmit)
        return sender

    def _open_sender(self) -> Sender:
        with self._lock:
            self._check_open()
            if self._sender is None:
                self._sender = Sender(self._kafka, self._sessions.new())
            return self._sender

    def _ended_by_peer(self, conversation: bytes) -> None:
        if self._sender is not None:
            self._sender.ended_by_peer(conversation)

    def _check_open(self) -> None:
        if self._closed:
            raise BrokerClosed("the broker was closed, or its process was forked; connect again")
