"""Data-dependent routing as a service: a classifier between those who begin dialogs and the services that they are for.

What is done with a conversation group is `konverse.routing.step`, in the transactions of whoever owns the partition; so
a router that is killed leaves the messages as they were, and several of them share the partitions of its queue.

Source: behaviours 230 to 233.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from konverse.bridge.catalog.catalog import Catalog
from konverse.bridge.catalog.lookups import bound
from konverse.bridge.reader.activation import Activation
from konverse.bridge.reader.procedures import check_called_with
from konverse.bridge.runtime.arguments import Seconds, checked
from konverse.bridge.runtime.ids import random_id
from konverse.dialog.transaction.received import Message
from konverse.dialog.transaction.transaction import Transaction
from konverse.routing.decisions import Decision
from konverse.routing.documents import UNCLASSIFIABLE_ERROR
from konverse.routing.routed import Failure, Routed, Tally
from konverse.routing.router import Router
from konverse.routing.step import REDIRECT
from konverse.schemas.catalog.objects import Service
from konverse.schemas.errors import GroupLocked, InvalidSettings, InvalidState
from konverse.schemas.limits import HANDLER_THREADS_MAX, QUEUE_READERS_MAX, ROUTER_ERROR_ENTRIES_MAX
from konverse.schemas.system_messages import shortened

from .contracts import Resolving, check_forwarding, check_redirecting
from .figures import publishing
from .watchdog import Classify, Watched

if TYPE_CHECKING:
    from konverse.bridge.reader.activation import Host
    from konverse.bridge.reader.reader import Reader


@dataclass(frozen=True, slots=True)
class RouterClauses:
    """How a router routes, and how its queue is read."""

    contracts: tuple[str, ...] | None
    """What it is declared with; None: whatever its service lists."""
    mode: str
    redirect_type: str
    max_readers: int
    batch: int
    max_messages: int | None
    classify_timeout_s: float | None

    def check(self, service: str) -> None:
        """Raise InvalidSettings for what cannot be."""
        Router(self.mode)
        if not 0 <= self.max_readers <= QUEUE_READERS_MAX:
            raise InvalidSettings(
                f"router {service!r}: max_readers is {self.max_readers}; it is 0, which starts nothing, to "
                f"{QUEUE_READERS_MAX}"
            )
        if self.classify_timeout_s is not None and self.classify_timeout_s <= 0:
            raise InvalidSettings(
                f"router {service!r}: classify_timeout_s is {self.classify_timeout_s}; it is a number of seconds above "
                "0, or None to watch nothing"
            )


class RoutingService:
    """A service that routes by what first messages say. `broker.router` and `app.router` make one of a classifier.

    Calling it classifies a message, as the function that it was made of does.
    """

    def __init__(
        self,
        service: str,
        clauses: RouterClauses,
        classify: Classify,
        opened: Callable[[], AbstractContextManager[Host]],
    ) -> None:
        check_called_with(classify, "message")
        self.service = service
        self.shown_as = random_id().hex()
        """Under this its figures are shown, beside host and process."""
        self.refused = False
        """It could not be what it was declared as when that was last looked at: it may be declared again."""
        self.clauses = clauses
        self._opened = opened
        self._classify = classify
        self._watched = Watched(service, clauses.classify_timeout_s, self._keep)
        self._catalog: Catalog | None = None
        """Of the database in which it routes, from when it was opened there."""
        self._router = Router(clauses.mode, redirect_type=clauses.redirect_type)
        self._lock = threading.Lock()
        self._tally = Tally()
        self._failures: deque[Failure] = deque(maxlen=ROUTER_ERROR_ENTRIES_MAX)
        self._reader: Reader | None = None
        self._stopping = False

    def __call__(self, message: Message) -> Any:
        """What the classifier says of a message."""
        return self._classify(message)

    @property
    def classify(self) -> Classify:
        """The classifier. Another one may be set while the router runs: it has the next first message.

        Raises InvalidProcedure for what cannot be called with a message, InvalidRoute when its targets are known and do
        not fit to the contracts of the router: then the one before stays.
        """
        return self._classify

    @classify.setter
    def classify(self, classify: Classify) -> None:
        check_called_with(classify, "message")
        if self._catalog is not None:
            classify = bound(self._catalog, classify)
            self._check(self._catalog, classify)
        self._classify = classify

    @property
    def routed(self) -> Routed:
        """What it has done in this process, counted, also by target.

        Figures for people: what a lost partition has another process do again counts there too.
        """
        with self._lock:
            return self._tally.routed

    @property
    def last_errors(self) -> list[Failure]:
        """What it could not do in this process, what it has refused with Error 1, and where its classifier is late.

        The latest first; 100 at most.
        """
        with self._lock:
            return list(reversed(self._failures))

    @checked
    def run(self, *, threads: int | None = None, timeout: Seconds | None = None) -> None:
        """Route until `stop`, Ctrl-C or the end of the broker; or until nothing came for `timeout` seconds.

        By so many threads, or as many as `max_readers` says. Operators of any process are obeyed meanwhile
        (`broker.resume`, `konverse resume` and the like). Raises InvalidRoute for contracts that are not the union of
        what the targets accept, ServiceNotFound, QueueDisabled, and what iterating over a reader raises.
        """
        threads = max(1, self.clauses.max_readers) if threads is None else threads
        if threads > HANDLER_THREADS_MAX:
            raise InvalidSettings(f"a process has {HANDLER_THREADS_MAX} handler threads at most, not {threads}")
        with ExitStack() as exits:
            exits.callback(self._stopped)
            broker = exits.enter_context(self._opened())
            activation = self.activation(broker)
            exits.enter_context(activation.at_work(broker, alone=False))
            clauses = self.clauses
            reader = exits.enter_context(
                broker.reader(activation.queue, batch=clauses.batch, max_messages=clauses.max_messages, timeout=timeout)
            )
            self._reader = reader
            if not self._stopping:
                reader.run(self.route, threads=threads)

    def stop(self) -> None:
        """Let `run` return behind the transactions that are at work, or the next `run` return at once.

        A signal handler may call it.
        """
        self._stopping = True
        if self._reader is not None:
            self._reader.stop()

    def _stopped(self) -> None:
        """`run` returns: it may be called again."""
        self._stopping, self._reader = False, None

    def activation(self, broker: Host) -> Activation:
        """The activation of its queue in this database. Raises as `run`."""
        self.refused = True
        service = broker.catalog.get(Service, self.service)
        classify = bound(broker.catalog, self._classify)
        self._check(broker.catalog, classify)
        self.refused = False
        self._catalog, self._classify = broker.catalog, classify
        clauses = self.clauses
        resolve = Resolving(broker.catalog, service.queue, forwards=clauses.mode != REDIRECT)
        self._router = Router(clauses.mode, redirect_type=clauses.redirect_type, resolve=resolve)
        return Activation(
            service.queue, self.route, clauses.max_readers, clauses.batch, clauses.max_messages, self._at_work
        )

    def route(self, transaction: Transaction) -> None:
        """Do what the messages of a conversation group ask for: the handler of its queue."""
        try:
            self._check_own(transaction)
            step = self._router.take_step(transaction, self._decide)
        except GroupLocked:  # it comes again when whoever has that group is done
            raise
        except Exception as error:
            first = self._note(transaction, str(error), failed=1)
            if first is not None:  # for the log, which does not know what a queue is for
                error.add_note(f"router {self.service!r} was at a message of type {first.type!r}")
            raise
        if "rejected" in step.counts:
            texts = [end.description for end in transaction.ends if end.code == UNCLASSIFIABLE_ERROR]
            self._note(transaction, texts[0])
        with self._lock:
            self._tally.add(step.counts, step.far_service, step.to)

    def _check_own(self, transaction: Transaction) -> None:
        """Raise InvalidState for what is of another service."""
        if transaction.dialog.service != self.service:
            raise InvalidState(
                f"conversation {transaction.dialog.id} is one of service {transaction.dialog.service!r}, on the queue "
                f"of router {self.service!r}, which has that queue for itself: put the other service on another one "
                "with broker.alter_service"
            )

    def _decide(self, message: Message) -> Decision:
        return self._watched.ask(self._classify, message)

    def _note(self, transaction: Transaction, text: str, *, failed: int = 0) -> Message | None:
        """Count and keep what could not be done. Returned is the message that was received first."""
        first = next(iter(transaction), None)
        with self._lock:
            self._tally.add({"failed": failed})
        if first is not None:
            self._keep(first, text)
        return first

    def _keep(self, message: Message, text: str) -> None:
        failure = Failure(
            datetime.fromtimestamp(message.scope.now_ms() / 1000, UTC),
            message.dialog.id,
            message.id,
            message.type,
            shortened(text),
        )
        with self._lock:
            self._failures.append(failure)

    def _check(self, catalog: Catalog, classify: Classify) -> None:
        """Raise InvalidRoute for contracts that do not fit to what is routed."""
        service, clauses = catalog.get(Service, self.service), self.clauses
        if clauses.mode == REDIRECT:
            check_redirecting(catalog, service, clauses.contracts, clauses.redirect_type)
            return
        targets = getattr(classify, "targets", None)
        known = targets() if callable(targets) else None
        check_forwarding(catalog, service, clauses.contracts, None if known is None else frozenset(known))

    @contextmanager
    def _at_work(self, broker: Host, alone: bool) -> Iterator[None]:  # noqa: FBT001  # a callback's shape
        """While its queue is read: its classifier is watched, and its figures are shown."""
        with self._watched.watching(alone=alone), publishing(broker, self):
            yield
