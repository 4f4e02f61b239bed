"""The public door: a connection to one database of conversations."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from typing import Any, Final, Self

from konverse.dialog.asking import Outcome
from konverse.dialog.staging import OwnerSettings
from konverse.dialog.turns import Turns
from konverse.schemas.catalog import Queue
from konverse.schemas.errors import BrokerClosed, InvalidSettings
from konverse.schemas.identifiers import catalog_topic, check_name

from .administration import Administration
from .arguments import Partitions, Seconds, checked
from .beginning import begin_block, begin_here
from .catalog import Catalog
from .collector import prepare_collector
from .departing import DEPARTING
from .destinations import Destinations
from .dialogs import Dialogs
from .draining import Draining
from .end_news import EndNews
from .fire_and_forget import FireAndForget
from .forks import closed_in_children
from .judging import CatalogJudge, Rules
from .kafka import Kafka
from .mailboxes import Mailboxes
from .mirror import CatalogMirror
from .obeying import Obeying
from .outcomes import Sessions, opened
from .owning import Owning
from .pools import Pools
from .reader import Reader
from .reading_state import ReadingState, reading_states
from .redis_client import connect_redis
from .routers import Routing
from .sending import Sender
from .settings import ReaderOptions, Settings
from .substituting import Substitutes
from .tidying import Tidying
from .topics import Topics
from .transactions import ClientTransaction
from .transmission import Transmission, ensure_queue, find_queue, transmitter
from .validating.validator import Validator
from .verifier.reading import Verification
from .view import ViewStore, ViewWriter
from .views.door import Views
from .why import Standing, explain

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
        """Held while what has to be closed is noted; never while Kafka is asked."""
        self._opening = threading.Lock()
        """Held while Kafka is asked for what sends. It is taken before `_lock`."""
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

        The first one creates the transmission queue of the instance if there is none. What a transaction sends leaves
        by the owner of that queue: this process, unless the setting `transmit` says otherwise.
        """
        sender = self._open_transmission()
        return ClientTransaction(sender, self.catalog, self._mailboxes, self._prepare)

    @checked
    def session_timeout_s(self) -> float:
        """After so long Kafka gives the partitions of a reader that died to another one, in seconds."""
        self._check_open()
        return self._topics.session_timeout_s()

    def transmission_queue(self) -> Queue | None:
        """The transmission queue of the instance; None before anybody has needed it."""
        self._check_open()
        return find_queue(self._kafka, self.settings.instance)

    @checked
    def transmitter(self) -> Reader:
        """An owner of the transmission queue, as `konverse transmit` is: iterate over it, and transactions leave."""
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

        `batch` conversation groups at most share a commit; `max_messages` is TOP; iteration ends after `timeout`
        seconds without work; `partitions` takes exactly these instead of a share. With `standby` all others are
        followed meanwhile, and one that becomes ours is led at once. Raises QueueNotFound,
        TopicMismatch when the queue's topics are missing or were created again, InvalidSettings.
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
        """What Redis shows of a queue. Raises QueueNotFound, or InvalidSettings when no Redis was named."""
        self._check_open()
        if not self.settings.redis:
            raise InvalidSettings("no Redis was named: connect with redis='redis://host:port' (or KONVERSE_REDIS)")
        return ViewStore(connect_redis(self.settings.redis), self.catalog.get(Queue, queue))

    @property
    def views(self) -> Views:
        """Service Broker's views: `conversation_endpoints`, `transmission_queue`, `services` …, queues' contents."""
        self._check_open()
        return Views(self._kafka, self.catalog, self._validator, self._present_sender, self.transmission_queue)

    @checked
    def why(self, conversation: uuid.UUID) -> Iterator[list[Standing]]:
        """Where the sides of a conversation stand and what they wait for, in words: a list for each partition.

        All but the last one are empty: each side also tells of the other one's. DialogNotFound: no partition had it.
        """
        self._check_open()
        return explain(self._kafka, self.catalog.all(Queue), conversation)

    @checked
    def reading_states(self, queue: str) -> Iterator[ReadingState]:
        """Whether each partition of a queue has a reader, and what waits for one. Raises QueueNotFound."""
        self._check_open()
        return reading_states(self._kafka, self.catalog.get(Queue, queue))

    @checked
    def draining(self, queues: Sequence[str]) -> Draining:
        """Asks whether nothing of these queues waits any more, but in those that are OFF; close it."""
        self._check_open()
        known = [self.catalog.get(Queue, name) for name in queues]
        return Draining(self._kafka, [queue for queue in known if queue.status])

    @checked
    def verification(self, queues: Sequence[Queue], since_ms: int | None = None) -> Verification:
        """The logs of these queues as they end now, to be verified: `run` it."""
        self._check_open()
        return Verification(self._kafka, queues, since_ms)

    @checked
    def flush(self, timeout: Seconds | None = None) -> None:
        """Return when Kafka has everything that was begun, sent and ended here, and what transactions sent has arrived.

        What others send on the same side then comes behind it. Raises OutcomeUnknown, TopicMismatch for lost topics.
        """
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
        """Close pools and readers (what is finished is committed), send what waits, say goodbye. Safe to call twice."""
        self._close_pools()
        with self._lock:
            if self._closed:
                return
            self._closed = True
        with DEPARTING.closing(), ExitStack() as exits:  # the last first, and all of them whatever fails
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
        """In a forked child: closed, see `bridge.forks`."""
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
        """Partitions of a queue that readers of this process own: replies come back here."""
        owned = [r.partitions for r in self._readers if r.queue.topic == queue.topic and not r.closed]
        return frozenset().union(*owned)

    def _keep(self, reader: Reader) -> Reader:
        """It is closed with the broker: at once when that was closed meanwhile."""
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
        """The sender, and what takes its transactions to their destinations."""
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
