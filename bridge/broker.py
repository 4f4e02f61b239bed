"""`connect` and `Broker`: a connection to one database of conversations, with every call that an application makes."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from typing import Any, Final, Self

from redis import Redis

from konverse.bridge.admin.administration import Administration
from konverse.bridge.admin.listener import InstructionListener
from konverse.bridge.admin.operations import Operations
from konverse.bridge.catalog.catalog import Catalog
from konverse.bridge.catalog.judge import CatalogJudge, Rules
from konverse.bridge.catalog.lookups import bound
from konverse.bridge.catalog.network import Network
from konverse.bridge.client.begin import BeginClauses, begin_here
from konverse.bridge.client.client import Client
from konverse.bridge.client.connection import Connection
from konverse.bridge.client.dialog import Dialog
from konverse.bridge.client.pool.pool import Pool
from konverse.bridge.client.pool.pools import Pools
from konverse.bridge.client.transaction import ClientTransaction, checked_dialog
from konverse.bridge.client.transmission import ensure_queue, transmitter
from konverse.bridge.kafka.clients import Kafka
from konverse.bridge.kafka.topics import Topics
from konverse.bridge.owner.driver import OwnerDriver
from konverse.bridge.owner.sender_notifier import SenderNotifier
from konverse.bridge.reader.reader import Reader
from konverse.bridge.reader.readers import Readers
from konverse.bridge.reader.substitutes import Substitutes
from konverse.bridge.redis.client import connect_redis
from konverse.bridge.redis.view import ViewStore, ViewWriter
from konverse.bridge.router.registry import RouterRegistry
from konverse.bridge.runtime.arguments import Body, Partitions, Seconds, Timeout, checked
from konverse.bridge.runtime.collector import prepare_collector
from konverse.bridge.runtime.forks import close_after_fork
from konverse.bridge.runtime.settings import PoolOptions, ReaderOptions, Settings
from konverse.bridge.runtime.shutdown import SHUTDOWN_FILTER
from konverse.bridge.validation.validator import Validator
from konverse.bridge.views.views import Views
from konverse.bridge.views.why import SideState, explain
from konverse.dialog.owner.settings import OwnerSettings, Turns
from konverse.dialog.session.outcome import Outcome
from konverse.routing.classifiers import Classifier, parse
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.counting import counted
from konverse.schemas.errors import BadInput, BrokerClosed, InvalidSettings
from konverse.schemas.identifiers import check_name
from konverse.schemas.system_messages import DEFAULT

log: Final = logging.getLogger("konverse.broker")


def connect(
    kafka: str | None = None, *, redis: str | None = None, database: str | None = None, **settings: Any
) -> Broker:
    """Connect to the conversations of `database`, e.g. `connect("kafka://localhost:9092", database="sales")`.

    Settings that are not given come from the environment (`KONVERSE_KAFKA` …) or `konverse.toml`;
    `bridge.runtime.settings` has all names. Raises InvalidSettings, or KafkaUnavailable when no broker answers. Redis
    is optional: it only shows state to people and tools, and no decision depends on it.
    """
    prepare_collector()  # first of all: objects that exist now are frozen and never collected
    return Broker(Settings.load(kafka=kafka, redis=redis, database=database, **settings))


class Broker(RouterRegistry):
    """Dialogs, readers and pools of one database. Thread-safe; close it, or use it as a context manager."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(self._itself)
        self.settings = settings
        self.database = check_name("database", settings.database)
        check_name("instance", settings.instance)
        self._kafka = Kafka(settings)
        self._kafka.check()
        self._topics = Topics(self._kafka)
        self.catalog = Catalog(self._kafka, settings.instance, settings.database)
        self.network = Network(self._kafka, self.catalog)
        self._validator = Validator()
        connection = Connection(
            settings,
            self.database,
            self._kafka,
            self._topics,
            self.catalog,
            self.network,
            self._validator,
            self._check_open,
        )
        self._readers = Readers()
        self._client = Client(connection, self._readers)
        self._pools = Pools(connection, self._client, self.reader)
        self.admin = Administration(connection, self._client.prepare_ids)
        """CREATE, ALTER and DROP."""
        self.operations = Operations(connection)
        """Commands of operators."""
        self._lock = threading.Lock()
        """Guards the list of objects to close. Never held while waiting for Kafka."""
        self._listener: InstructionListener | None = None
        self._view_client: Redis | None = None
        self._notifier = SenderNotifier(lambda: self._client.sender)
        self._turns = Turns()
        self._substitutes = Substitutes(
            self.catalog,
            self._readers,
            lambda queue: self._read(queue, ReaderOptions(partitions=(), substitute=True)),
        )
        self._closed = False
        close_after_fork(self)

    # ----------------------------------------------------------------------------------------------- conversations

    @checked
    def begin_dialog(  # noqa: PLR0913  # the clauses of BEGIN DIALOG
        self,
        from_service: str,
        to_service: str,
        contract: str = DEFAULT,
        *,
        related_to: Dialog | None = None,
        group: uuid.UUID | None = None,
        key: bytes | None = None,
        conversation_id: uuid.UUID | None = None,
        lifetime: Timeout | None = None,
        broker_instance: uuid.UUID | str | None = None,
        encryption: bool = False,
        returning: bool = False,
    ) -> Dialog:
        """BEGIN DIALOG. Returns at once; nothing reaches the target before the first message (behaviour 31).

        The target service must list the contract "DEFAULT" like any other (33). `related_to` puts the dialog into the
        conversation group of another dialog (35), `group` into the group with this id, which is created if it does not
        exist (36); the group id determines the dialog's home. `key` is the Kafka key of the dialog's records.

        `conversation_id` makes it harmless to repeat the begin of an open conversation: the id alone determines the
        home, and a dialog that this process began is returned again. The id of a conversation that is over cannot be
        used again: ConversationOver (8429) is raised. If this process has not learned of the end yet, messages come
        back to `dialog.bounced` as ENDED, or the target gets an Error (-8429).

        `lifetime` is in seconds: when it expires, each open side gets an Error (-8489; 123); without it the dialog
        never expires. `broker_instance` is the id of a database of this instance (see `views.databases`), or "CURRENT
        DATABASE" (42). The routes of this database choose the database of the target service. The default route leads
        to this database if it has the service, or else to any other database of the instance that has it (167, 168).
        Name the database if several have the service and several processes begin under one `conversation_id`, because
        these processes may know different routes.

        `encryption` requires TLS to Kafka; a TLS connection encrypts every dialog, with or without it. With
        `returning`, messages that reach the target after it has ended come back to `dialog.bounced` instead of being
        discarded (110).

        Raises ServiceNotFound (8423; 8490 with `broker_instance`), ContractNotFound (8425), ForeignGroup (9610),
        InvalidTimeout (8411), InvalidSettings, NotSupportedYet. The receiver of the target service checks whether the
        service accepts the contract, and refuses with an Error (-8408; 16).
        """
        self._check_open()
        clauses = BeginClauses(
            from_service,
            to_service,
            contract,
            related_to,
            group,
            key,
            conversation_id,
            lifetime,
            broker_instance,
            encryption,
            returning,
        )
        return self._client.begin(clauses)

    @checked
    def send(self, dialogs: Sequence[Dialog | None], message_type: str = DEFAULT, body: Body = b"") -> None:
        """SEND ON CONVERSATION (a, b, …): the same message on each of these dialogs, all of them or none (59, 60).

        The message goes through a transaction. Raises BadInput for an empty list or a dialog that is given twice (61),
        NullHandle for None among them (49), and the errors of `ClientTransaction.send`.
        """
        given = [checked_dialog(dialog) for dialog in dialogs]
        if not given or len({dialog.id for dialog in given}) < len(given):
            raise BadInput("send takes one or more dialogs, and each of them once")
        with self.transaction() as transaction:
            for dialog in given:
                transaction.send(dialog, message_type, body)

    @checked
    def transaction(self) -> ClientTransaction:
        """A client transaction, which begins, sends and ends on several dialogs atomically: use it in a `with` block.

        The first transaction creates the instance's transmission queue if there is none. The owner of that queue sends
        the messages of a transaction: this process owns a share of the queue unless the setting `transmit` is off.
        """
        self._check_open()
        return self._client.transaction()

    @checked
    def transmitter(self) -> Reader:
        """A reader that owns a share of the transmission queue, for `konverse transmit`.

        Iterate over it: it yields nothing, but sends the messages of transactions while it is iterated.
        """
        self._check_open()
        self.operations.session_timeout_check.run()
        return self._keep(transmitter(self._kafka, ensure_queue(self._kafka, self.settings.instance), self.catalog))

    @checked
    def reader(  # noqa: PLR0913  # the clauses of RECEIVE, and how partitions are found
        self,
        queue: str,
        *,
        batch: int = 100,
        max_messages: int | None = None,
        timeout: float | None = None,
        partitions: Partitions | None = None,
        standby: bool = False,
    ) -> Reader:
        """Read a queue: iterate over the result for transactions. Readers of several processes share its partitions.

        At most `batch` conversation groups share a commit; `max_messages` is TOP; iteration ends after `timeout`
        seconds without a message; `partitions` takes exactly these partitions instead of a share. With `standby` the
        reader follows all other partitions, so that it can take one over at once when it is assigned. Raises
        QueueNotFound, InvalidSettings, TopicMismatch when the queue's topics are missing or were created again.
        """
        self._check_open()
        known = self.catalog.get(Queue, queue)
        options = ReaderOptions(batch, max_messages, timeout, None if partitions is None else (*partitions,), standby)
        options.check(known)
        self._topics.check_queue(known)
        self.catalog.refresh_every()
        self._client.fire_and_forget.reads(known.topic)
        if partitions is None:
            self.operations.session_timeout_check.run()
        reader = self._keep(self._read(known, options))
        beside = len(self._readers.of_topic(known.topic))
        if partitions is None and beside > known.partitions:
            log.warning(
                "%d readers of this process share %s of queue %r: some get none. Use one reader with "
                "several threads (`reader.run`), or create the queue with more partitions",
                beside,
                counted(known.partitions, "partition"),
                queue,
            )
        return reader

    @checked
    def pool(  # noqa: PLR0913  # the clauses of a pool
        self,
        from_service: str,
        to_service: str,
        contract: str = DEFAULT,
        *,
        name: str | None = None,
        size: int | None = None,
        max_age: float = 3600.0,
        max_messages: int | None = None,
        lifetime: float | None = None,
        end_of_stream: str = "EndOfStream",
        read: bool = True,
    ) -> Pool:
        """Conversations that are reused: `pool.send(message_type, body, key)` finds or begins one (224 to 229).

        There is one conversation for each key. Sends without a key use one for each thread or, with `size`, rotate
        through that many. After `max_age` seconds or `max_messages` messages a conversation is recycled: the pool sends
        `end_of_stream`, a type of the contract, the target ends, then this side ends. For this, a background thread
        reads the queue of `from_service` until the broker is closed; with `read=False` a handler of the application
        must read it and call `pool.answer`.

        `lifetime` applies to each conversation, in seconds. With a `name`, the next process that opens the pool
        continues its conversations. The pool follows a redirecting router: it resends to the service that the router
        names (233).

        Raises ServiceNotFound (8423), ContractNotFound (8425), InvalidSettings, InvalidTimeout; NotInContract,
        WrongDirection or MessageTypeNotFound for `end_of_stream`; PoolInUse when another process, or this broker, has
        the named pool open.
        """
        self._check_open()
        options = PoolOptions(
            from_service,
            to_service,
            contract,
            name,
            size,
            max_age,
            max_messages,
            lifetime,
            end_of_stream,
            read,
        )
        return self._pools.open(options)

    @checked
    def classifier(self, classifier: Classifier | str | Mapping[str, object]) -> Classifier:
        """A classifier, given as such or as its description, bound to the tables and schemas of this database.

        Each classification looks names up in the catalog of this process, which sees changes by other processes
        within a fraction of a second. Raises InvalidSettings for an invalid description.
        """
        self._check_open()
        made = classifier if isinstance(classifier, Classifier) else parse(classifier)
        ready: Classifier = bound(self.network, made)
        return ready

    @checked
    def view(self, queue: str) -> ViewStore:
        """The view of a queue in Redis. Raises QueueNotFound, or InvalidSettings when no Redis was configured."""
        self._check_open()
        if not self.settings.redis:
            raise InvalidSettings("no Redis is configured: connect with redis='redis://host:port' (or KONVERSE_REDIS)")
        found = self.catalog.get(Queue, queue)
        with self._lock:
            if self._view_client is None:
                self._view_client = connect_redis(self.settings.redis)
        return ViewStore(self._view_client, found)

    @property
    def views(self) -> Views:
        """Service Broker's views: `conversation_endpoints`, `transmission_queue`, `services` …, contents of queues."""
        self._check_open()
        return Views(
            self._kafka, self.catalog, self._validator, self._client.present_sender, self.operations.transmission_queue
        )

    @checked
    def why(self, conversation: uuid.UUID) -> Iterator[list[SideState]]:
        """The state of each side of a conversation and what it waits for, as text: one list for each partition read.

        All lists but the last are empty, because the text about one side needs the partition of the other side, too,
        which may be in another database. Raises DialogNotFound when no partition of this database has the conversation.
        """
        self._check_open()
        return explain(self._kafka, self.catalog, conversation)

    @checked
    def flush(self, timeout: Seconds | None = None) -> None:
        """Return when Kafka has everything begun, sent and ended here, and the messages of transactions have arrived.

        Messages that other senders send on the same side afterwards come after these. Raises OutcomeUnknown,
        TopicMismatch when a topic was deleted or created again, TransactionLost when a transaction did not happen, and
        InvalidState in a signal handler that has interrupted a call which waits for Kafka: flush after that call.
        """
        if self._client.sender is not None:
            self._client.sender.flush(timeout)

    @checked
    def outcome(self, token: bytes, *, timeout: Seconds | None = None) -> Outcome:
        """Which messages of an OutcomeUnknown were received. Call it with the `token` when their sender is gone.

        The `missing` messages will never be received, so they may be sent again. A sender that still lives is stopped.
        Raises OutcomeUnknown when no worker answers within `timeout` seconds (default: `send_timeout_s`),
        OutcomeExpired.
        """
        self._check_open()
        return self._client.outcome(token, timeout)

    def close(self) -> None:
        """Close pools and readers, deliver everything that was sent, and close the session at its destinations.

        Readers commit their finished transactions. Safe to call twice. Raises InvalidState, and stays open, in a signal
        handler that has interrupted a call which waits for Kafka, as `flush` does: close after that call.
        """
        self._client.check_thread()
        self._pools.close()
        with self._lock:
            if self._closed:
                return
            self._closed = True
        with SHUTDOWN_FILTER.closing(), ExitStack() as exits:  # runs in reverse order; a failure does not skip the rest
            exits.callback(self.catalog.close)
            exits.callback(self._validator.close)
            exits.callback(self._client.close)
            for reader in self._readers.kept():
                exits.callback(reader.close)  # waits for a close in another thread
            exits.callback(self._substitutes.close)
            exits.callback(self._client.mailboxes.close)
            if self._listener is not None:
                exits.callback(self._listener.close)
            if self._view_client is not None:
                exits.callback(self._view_client.close)

    def after_fork(self) -> None:
        """Close without I/O, in a forked child (`bridge.runtime.forks`)."""
        self._closed = True
        self._lock = threading.Lock()
        self._pools.after_fork()
        self._client.after_fork()
        self._validator.after_fork()
        self._substitutes.after_fork()
        self._readers.after_fork()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------------------------------------------------ inside

    def _read(self, queue: Queue, options: ReaderOptions) -> Reader:
        redis = self.settings.redis
        rules = Rules(
            self.catalog.check_send,
            CatalogJudge(self.catalog, self._validator),
            partial(begin_here, self.network),
            None if options.substitute else self._substitutes.look_after,
            self.catalog,
        )
        settings = OwnerSettings(
            options.batch, options.max_messages, turns=self._turns, hands_out=not options.substitute
        )
        view = partial(ViewWriter, redis, queue) if redis else None
        driver = OwnerDriver(self._kafka, queue, rules, settings, view, self._notifier)
        return Reader(self._kafka, driver, options, self._notifier.notify_sender)

    def _itself(self) -> AbstractContextManager[Broker]:
        self._check_open()
        return nullcontext(self)

    def _keep(self, reader: Reader) -> Reader:
        """Keep a reader until the broker closes. If it is closed already, close the reader and raise BrokerClosed."""
        with self._lock:
            self._readers.add(reader)
            closed = self._closed
            if self._listener is None and not closed:
                self._listener = InstructionListener(self._kafka, self.database, self._readers)
        if closed:
            reader.close()
            self._check_open()
        return reader

    def _check_open(self) -> None:
        if self._closed:
            raise BrokerClosed("the broker was closed, or its process was forked; connect again")
