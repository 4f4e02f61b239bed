"""`connect` and `Broker`: a connection to one database of conversations, with every call that an application makes.

`Broker` is assembled from one class for each subject: `Dialogs` (BEGIN DIALOG and SEND, here), `Pools`, `Routing`,
`Administration` and `Tidying`. It creates its sender, its transmission queue and its readers when they are first
needed, and closes them together.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from typing import Any, Final, Self

from konverse.bridge.admin.administration import Administration
from konverse.bridge.admin.leaks import Tidying
from konverse.bridge.admin.listener import Obeying
from konverse.bridge.catalog.catalog import Catalog
from konverse.bridge.catalog.destinations import Destinations
from konverse.bridge.catalog.judge import CatalogJudge, Rules
from konverse.bridge.catalog.mirror import CatalogMirror
from konverse.bridge.client.begin import Prepared, Wanted, begin_block, begin_here, check_not_over, check_same
from konverse.bridge.client.dialog import Dialog
from konverse.bridge.client.mailboxes import Mailboxes
from konverse.bridge.client.outcomes import Sessions, opened
from konverse.bridge.client.pool.pools import Pools
from konverse.bridge.client.sender import Sender
from konverse.bridge.client.transaction import ClientTransaction
from konverse.bridge.client.transmission import Transmission, ensure_queue, find_queue, transmitter
from konverse.bridge.kafka.clients import Kafka
from konverse.bridge.kafka.topics import Topics
from konverse.bridge.owner.driver import Owning
from konverse.bridge.owner.end_news import EndNews
from konverse.bridge.reader.drained import Draining
from konverse.bridge.reader.fire_and_forget import FireAndForget
from konverse.bridge.reader.reader import Reader
from konverse.bridge.reader.substitutes import Substitutes
from konverse.bridge.redis.client import connect_redis
from konverse.bridge.redis.view import ViewStore, ViewWriter
from konverse.bridge.router.registry import Routing
from konverse.bridge.runtime.arguments import Body, Partitions, Seconds, Timeout, checked
from konverse.bridge.runtime.collector import prepare_collector
from konverse.bridge.runtime.forks import closed_in_children
from konverse.bridge.runtime.settings import ReaderOptions, Settings
from konverse.bridge.runtime.shutdown import DEPARTING
from konverse.bridge.validation.validator import Validator
from konverse.bridge.verifier.reading import Verification
from konverse.bridge.views.reading_state import ReadingState, reading_states
from konverse.bridge.views.views import Views
from konverse.bridge.views.why import Standing, explain
from konverse.dialog.owner.settings import OwnerSettings, Turns
from konverse.dialog.session.outcome import Outcome
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.errors import BadInput, BrokerClosed, InvalidSettings
from konverse.schemas.identifiers import catalog_topic, check_name
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


class Dialogs:
    """The part of a `Broker` that begins dialogs and sends."""

    catalog: Catalog
    transaction: Callable[[], ClientTransaction]
    _mailboxes: Mailboxes
    _readers: Sequence[Reader]
    _open_sender: Callable[[], Sender]
    _begin_block: Callable[[Wanted], Prepared]
    _check_open: Callable[[], None]

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
        anew: bool = False,
    ) -> Dialog:
        """BEGIN DIALOG. Returns at once; nothing reaches the target before the first message (behaviour 31).

        The target service must list the contract "DEFAULT" like any other (33). `related_to` puts the dialog into the
        conversation group of another dialog (35), `group` into the group with this id, which is created if it does not
        exist (36); the dialog's home follows from the group id. `key` is the Kafka key of the dialog's records.

        `conversation_id` makes it harmless to repeat the begin of a living conversation: the home follows from the id
        alone, and a dialog that this process began is returned again. A conversation that is over is begun again only
        with `anew`. Without it ConversationOver (8429) is raised; or, where this process does not know of the end yet,
        messages come back to `dialog.bounced` as ENDED, or the target gets an Error (-8429).

        `lifetime` is in seconds: when it is over, each open side gets an Error (-8489; 123); without it the dialog
        lives for ever. `broker_instance` is the id of this database (see `views.databases`) or "CURRENT DATABASE" (42).
        `encryption` requires TLS to Kafka; a TLS connection encrypts every dialog, with or without it. With
        `returning`, messages that reach the target after it has ended come back to `dialog.bounced` instead of being
        discarded (110).

        Raises ServiceNotFound (8423; 8490 with `broker_instance`), ContractNotFound (8425), ForeignGroup (9610),
        InvalidTimeout (8411), InvalidSettings, NotSupportedYet. The receiver of the target service checks whether the
        service accepts the contract, and refuses with an Error (-8408; 16).
        """
        self._check_open()
        wanted = Wanted(
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
            anew,
        )
        return self._begin(wanted)

    def _begin(self, wanted: Wanted) -> Dialog:
        sender = self._open_sender()
        conversation, begin, placed, manner = self._prepare(wanted)
        staged = sender.begin(conversation, begin, manner)
        return check_same(Dialog(sender, staged, self.catalog, self._mailboxes, placed), wanted)

    def _prepare(self, wanted: Wanted) -> Prepared:
        """Addresses and id of a dialog. Raises ConversationOver when a reader of this process knows that it is over."""
        prepared = self._begin_block(wanted)
        if prepared.manner.named:
            check_not_over(self._readers, prepared)
        return prepared

    @checked
    def send(self, dialogs: list[Dialog], message_type: str = DEFAULT, body: Body = b"") -> None:
        """SEND ON CONVERSATION (a, b, …): the same message on each of these dialogs, all of them or none (59, 60).

        The message goes through a transaction. Raises BadInput for an empty list or a dialog that is given twice (61),
        and the errors of `ClientTransaction.send`.
        """
        if not dialogs or len({dialog.id for dialog in dialogs}) < len(dialogs):
            raise BadInput("send takes one dialog or more, and each of them once")
        with self.transaction() as transaction:
            for dialog in dialogs:
                transaction.send(dialog, message_type, body)


class Broker(Dialogs, Pools, Routing, Administration, Tidying):
    """Catalog, dialogs and readers of one database. Thread-safe; close it, or use it as a context manager."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.settings = settings
        self.database = check_name("database", settings.database)
        check_name("instance", settings.instance)
        self._kafka = Kafka(settings)
        self._kafka.check()
        self._topics = Topics(self._kafka)
        topic = catalog_topic(settings.instance)
        mirror = CatalogMirror(settings.redis, topic, settings.database) if settings.redis else None
        self.catalog = Catalog(self._kafka, settings.instance, settings.database, mirror)
        self._sessions = Sessions(self._kafka, self._topics, self.catalog)
        self._validator = Validator()
        self._lock = threading.Lock()
        """Guards the list of objects to close. Never held while waiting for Kafka."""
        self._opening = threading.Lock()
        """Held while the sender or the transmission queue is created, which waits for Kafka. Taken before `_lock`."""
        self._sender: Sender | None = None
        self._transmission: Transmission | None = None
        self._readers: list[Reader] = []
        self._obeying: Obeying | None = None
        self._fire_and_forget = FireAndForget(lambda: self._readers)
        self._ends = EndNews(lambda: self._sender)
        self._turns = Turns()
        self._begin_block = partial(begin_block, settings, self.catalog, self._owned)
        self._substitutes = Substitutes(
            self.catalog,
            lambda: self._readers,
            lambda queue: self._read(queue, ReaderOptions(partitions=(), substitute=True)),
        )
        self._mailboxes = Mailboxes(self._kafka, self.catalog, lambda: self._readers)
        self._closed = False
        closed_in_children(self)

    # ----------------------------------------------------------------------------------------------- conversations

    @checked
    def transaction(self) -> ClientTransaction:
        """Begins, sends and ends on several dialogs that happen together or not at all: use it in a `with` block.

        The first transaction creates the instance's transmission queue if there is none. The owner of that queue sends
        the messages of a transaction: this process owns a share of the queue unless the setting `transmit` is off.
        """
        sender = self._open_transmission()
        return ClientTransaction(sender, self.catalog, self._mailboxes, self._prepare)

    @checked
    def session_timeout_s(self) -> float:
        """Seconds after which Kafka assigns the partitions of a dead reader to another reader."""
        self._check_open()
        return self._topics.session_timeout_s()

    def transmission_queue(self) -> Queue | None:
        """The transmission queue of the instance; None before the first transaction."""
        self._check_open()
        return find_queue(self._kafka, self.settings.instance)

    @checked
    def transmitter(self) -> Reader:
        """A reader that owns a share of the transmission queue, for `konverse transmit`.

        Iterate over it: it yields nothing, and sends the messages of transactions meanwhile.
        """
        self._check_open()
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
        seconds without work; `partitions` takes exactly these partitions instead of a share. With `standby` the reader
        follows all other partitions, so that it can lead one at once when it is assigned. Raises QueueNotFound,
        InvalidSettings, TopicMismatch when the queue's topics are missing or were created again.
        """
        self._check_open()
        known = self.catalog.get(Queue, queue)
        options = ReaderOptions(batch, max_messages, timeout, None if partitions is None else (*partitions,), standby)
        options.check(known)
        self._topics.check_queue(known)
        self.catalog.keep_fresh()
        self._fire_and_forget.reads(known.topic)
        reader = self._keep(self._read(known, options))
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
        """The view of a queue in Redis. Raises QueueNotFound, or InvalidSettings when no Redis was configured."""
        self._check_open()
        if not self.settings.redis:
            raise InvalidSettings("no Redis was named: connect with redis='redis://host:port' (or KONVERSE_REDIS)")
        return ViewStore(connect_redis(self.settings.redis), self.catalog.get(Queue, queue))

    @property
    def views(self) -> Views:
        """Service Broker's views: `conversation_endpoints`, `transmission_queue`, `services` …, contents of queues."""
        self._check_open()
        return Views(self._kafka, self.catalog, self._validator, self._present_sender, self.transmission_queue)

    @checked
    def why(self, conversation: uuid.UUID) -> Iterator[list[Standing]]:
        """The state of each side of a conversation and what it waits for, as text: one list for each partition read.

        All lists but the last are empty, because the text about a side also describes the partition of the other side.
        Raises DialogNotFound when no partition has the conversation.
        """
        self._check_open()
        return explain(self._kafka, self.catalog.all(Queue), conversation)

    @checked
    def reading_states(self, queue: str) -> Iterator[ReadingState]:
        """For each partition of a queue: whether it has a reader, and what waits for one. Raises QueueNotFound."""
        self._check_open()
        return reading_states(self._kafka, self.catalog.get(Queue, queue))

    @checked
    def draining(self, queues: Sequence[str]) -> Draining:
        """Finds out whether these queues are drained; queues that are OFF are left out. Close it after use."""
        self._check_open()
        known = [self.catalog.get(Queue, name) for name in queues]
        return Draining(self._kafka, [queue for queue in known if queue.status])

    @checked
    def verification(self, queues: Sequence[Queue], since_ms: int | None = None) -> Verification:
        """A verification of these queues' logs up to their present ends; `run` starts it."""
        self._check_open()
        return Verification(self._kafka, queues, since_ms)

    @checked
    def flush(self, timeout: Seconds | None = None) -> None:
        """Return when Kafka has everything begun, sent and ended here, and the messages of transactions have arrived.

        Messages that others send on the same side afterwards come behind these. Raises OutcomeUnknown, or TopicMismatch
        when a topic was deleted or created again.
        """
        if self._sender is not None:
            self._sender.flush(timeout)

    @checked
    def outcome(self, token: bytes, *, timeout: Seconds | None = None) -> Outcome:
        """Which messages of an OutcomeUnknown were received, by its `token`, when their sender is gone.

        The `missing` messages will never be received, so they may be sent again. A sender that still lives is stopped.
        Raises OutcomeUnknown when no worker answers within `timeout` seconds (default: `send_timeout_s`),
        OutcomeExpired.
        """
        self._check_open()
        if opened(token).transmission is not None and self.settings.transmit:
            self._open_transmission()  # the queue's former owner may be gone too
        return self._sessions.outcome(token, self._sender.session if self._sender else None, timeout)

    def close(self) -> None:
        """Close pools and readers, deliver everything that was sent, and close the session at its destinations.

        Readers commit their finished transactions. Safe to call twice.
        """
        self._close_pools()
        with self._lock:
            if self._closed:
                return
            self._closed = True
        with DEPARTING.closing(), ExitStack() as exits:  # runs in reverse order, and to the end whatever fails
            exits.callback(self.catalog.close)
            exits.callback(self._validator.close)
            if self._transmission is not None:
                exits.callback(self._transmission.close)
            if self._sender is not None:
                exits.callback(self._sender.close)
            if self._transmission is not None:
                exits.callback(self._transmission.settle)
            for reader in self._readers:
                exits.callback(reader.close)
            exits.callback(self._substitutes.close)
            exits.callback(self._mailboxes.close)
            if self._obeying is not None:
                exits.callback(self._obeying.close)

    def forked(self) -> None:
        """Be closed in a forked child (`bridge.runtime.forks`)."""
        self._closed = True
        self._lock, self._opening = threading.Lock(), threading.Lock()
        self._pools_forked()
        self._mailboxes.forked()
        self._validator.forked()
        self._substitutes.forked()
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

    def _read(self, queue: Queue, options: ReaderOptions) -> Reader:
        redis = self.settings.redis
        rules = Rules(
            self.catalog.check_send,
            CatalogJudge(self.catalog, self._validator),
            partial(begin_here, self.catalog),
            None if options.substitute else self._substitutes.look_after,
            self.catalog,
        )
        settings = OwnerSettings(
            options.batch, options.max_messages, turns=self._turns, hands_out=not options.substitute
        )
        view = partial(ViewWriter, redis, queue) if redis else None
        owning = Owning(self._kafka, queue, rules, settings, view, self._ends)
        return Reader(self._kafka, owning, options, self._ends.tell)

    def _opened(self) -> AbstractContextManager[Broker]:
        self._check_open()
        return nullcontext(self)

    def _owned(self, queue: Queue) -> frozenset[int]:
        """Partitions of a queue that readers of this process own; replies to a dialog with its home there come here."""
        owned = [r.partitions for r in self._readers if r.queue.topic == queue.topic and not r.closed]
        return frozenset().union(*owned)

    def _keep(self, reader: Reader) -> Reader:
        """Close a reader together with the broker; at once, with BrokerClosed, if the broker was closed meanwhile."""
        with self._lock:
            self._readers = [other for other in self._readers if not other.closed] + [reader]
            closed = self._closed
            if self._obeying is None and not closed:
                self._obeying = Obeying(self._kafka, self.database, lambda: self._readers)
        if closed:
            reader.close()
            self._check_open()
        return reader

    def _open_transmission(self) -> Sender:
        """The sender, with the transmission queue opened for its transactions."""
        sender = self._open_sender()
        with self._opening:
            self._check_open()
            if self._transmission is None:
                queue = ensure_queue(self._kafka, self.settings.instance)
                with self._lock:
                    self._check_open()
                    self._transmission = Transmission(
                        self._kafka, queue, sender, self.catalog, own=self.settings.transmit
                    )
        return sender

    def _present_sender(self) -> Sender | None:
        self._check_open()
        return self._sender

    def _open_sender(self) -> Sender:
        with self._opening:
            self._check_open()
            if self._sender is None:
                there, session = Destinations(self._kafka, self.catalog), self._sessions.new()
                with self._lock:
                    self._check_open()
                    self._sender = Sender(self._kafka, session, there, self._fire_and_forget)
            return self._sender

    def _check_open(self) -> None:
        if self._closed:
            raise BrokerClosed("the broker was closed, or its process was forked; connect again")
