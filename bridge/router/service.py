"""Data-dependent routing as a service: a classifier between the initiators of dialogs and the services they need.

`konverse.routing.step` handles each conversation group, in a transaction of the partition's owner. So a router that is
killed leaves the messages unchanged, and several processes can share the partitions of its queue.

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

from konverse.bridge.catalog.lookups import bound
from konverse.bridge.catalog.network import Network
from konverse.bridge.reader.activation import Activation
from konverse.bridge.reader.procedures import check_called_with
from konverse.bridge.runtime.arguments import Seconds, checked
from konverse.bridge.runtime.ids import random_id
from konverse.bridge.runtime.threads import text_of
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

from .contracts import TargetCheck, check_forwarding, check_redirecting
from .figures import publishing
from .watchdog import Classify, Watched

if TYPE_CHECKING:
    from konverse.bridge.reader.activation import Host
    from konverse.bridge.reader.reader import Reader


@dataclass(frozen=True, slots=True)
class RouterClauses:
    """Arguments of `broker.router`: how a router routes, and how its queue is read."""

    contracts: tuple[str, ...] | None
    """The declared contracts; None: any that its service lists."""
    mode: str
    redirect_type: str
    max_readers: int
    batch: int
    max_messages: int | None
    classify_timeout_s: float | None

    def check(self, service: str) -> None:
        """Raise InvalidSettings for a value that is out of range."""
        Router(self.mode)
        if not 0 <= self.max_readers <= QUEUE_READERS_MAX:
            raise InvalidSettings(
                f"router {service!r}: max_readers is {self.max_readers}; give 0, which starts nothing, to "
                f"{QUEUE_READERS_MAX}"
            )
        if self.classify_timeout_s is not None and self.classify_timeout_s <= 0:
            raise InvalidSettings(
                f"router {service!r}: classify_timeout_s is {self.classify_timeout_s}; give a number of seconds above "
                "0, or None for no limit"
            )


class RoutingService:
    """A service that routes dialogs by their first message. `broker.router` and `app.router` make one of a classifier.

    Calling it calls the classifier.
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
        """Random name: the last part of this router's field in Redis, after host and process id."""
        self.refused = False
        """The last check against the catalog failed, so `router` may declare this service again."""
        self.clauses = clauses
        self._opened = opened
        self._classify = classify
        self._watched = Watched(service, clauses.classify_timeout_s, self._keep)
        self._network: Network | None = None
        """Network of the database in which it routes; None before its first activation."""
        self._router = Router(clauses.mode, redirect_type=clauses.redirect_type)
        self._lock = threading.Lock()
        self._tally = Tally()
        self._failures: deque[Failure] = deque(maxlen=ROUTER_ERROR_ENTRIES_MAX)
        self._reader: Reader | None = None
        self._stopping = False

    def __call__(self, message: Message) -> Any:
        """The classifier's answer for a message."""
        return self._classify(message)

    @property
    def classify(self) -> Classify:
        """The classifier. It may be replaced while the router runs; the new one gets the next first message.

        Setting raises InvalidProcedure for an object that cannot be called with one message, and InvalidRoute when the
        targets are known and do not fit the contracts of the router. The old classifier then stays.
        """
        return self._classify

    @classify.setter
    def classify(self, classify: Classify) -> None:
        check_called_with(classify, "message")
        if self._network is not None:
            classify = bound(self._network, classify)
            self._check(self._network, classify)
        self._classify = classify

    @property
    def routed(self) -> Routed:
        """Counts of the router's work in this process, in total and by target.

        An approximation for people: work that another process repeats after a take-over is counted in both.
        """
        with self._lock:
            return self._tally.routed

    @property
    def last_errors(self) -> list[Failure]:
        """Failures in this process: errors, dialogs rejected with Error 1, and classifier calls that took too long.

        The latest first; 100 at most.
        """
        with self._lock:
            return list(reversed(self._failures))

    @checked
    def run(self, *, threads: int | None = None, timeout: Seconds | None = None) -> None:
        """Route until `stop`, Ctrl-C or the end of the broker, or until no message came for `timeout` seconds.

        `threads` defaults to `max_readers`. Instructions of operators in any process are carried out meanwhile
        (`broker.operations.resume`, `konverse resume` and the like). Raises InvalidRoute for contracts that are not the
        union of the targets' contracts, ServiceNotFound, QueueDisabled, and the errors of iterating over a reader.
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
        """Let `run` return after the current transactions; if it is not running, let the next `run` return at once.

        A signal handler may call it.
        """
        self._stopping = True
        if self._reader is not None:
            self._reader.stop()

    def _stopped(self) -> None:
        """Reset, so that `run` can be called again."""
        self._stopping, self._reader = False, None

    def activation(self, broker: Host) -> Activation:
        """Check the router against the catalog and return the activation of its queue. Raises as `run`."""
        self.refused = True
        service = broker.catalog.get(Service, self.service)
        classify = bound(broker.network, self._classify)
        self._check(broker.network, classify)
        self.refused = False
        self._network, self._classify = broker.network, classify
        clauses = self.clauses
        resolve = TargetCheck(broker.network, service.queue, forwards=clauses.mode != REDIRECT)
        self._router = Router(clauses.mode, redirect_type=clauses.redirect_type, resolve=resolve)
        return Activation(
            service.queue, self.route, clauses.max_readers, clauses.batch, clauses.max_messages, self._at_work
        )

    def route(self, transaction: Transaction) -> None:
        """Route the messages of one conversation group: the handler of the router's queue."""
        try:
            self._check_own(transaction)
            step = self._router.take_step(transaction, self._decide)
        except GroupLocked:  # redelivered when the transaction that holds the other group has ended
            raise
        except Exception as error:
            first = self._note(transaction, text_of(error), failed=1)
            if first is not None:  # the log line names the queue only, not the router
                error.add_note(f"router {self.service!r} failed on a message of type {first.type!r}")
            raise
        if "rejected" in step.counts:
            texts = [end.description for end in transaction.ends if end.code == UNCLASSIFIABLE_ERROR]
            self._note(transaction, texts[0])
        with self._lock:
            self._tally.add(step.counts, step.far_service, step.to)

    def _check_own(self, transaction: Transaction) -> None:
        """Raise InvalidState for a conversation of another service on the router's queue."""
        if transaction.dialog.service != self.service:
            raise InvalidState(
                f"conversation {transaction.dialog.id} belongs to service {transaction.dialog.service!r}, on the queue "
                f"of router {self.service!r}, which needs that queue to itself: put the other service on another queue "
                "with broker.admin.alter_service"
            )

    def _decide(self, message: Message) -> Decision:
        return self._watched.ask(self._classify, message)

    def _note(self, transaction: Transaction, text: str, *, failed: int = 0) -> Message | None:
        """Count and record a failure. Returns the first received message, None when there is none."""
        first = next(iter(transaction), None)
        with self._lock:
            self._tally.add({"failed": failed})
        if first is not None:
            self._keep(first, text)
        return first

    def _keep(self, message: Message, text: str) -> None:
        failure = Failure(
            datetime.fromtimestamp(message.context.now_ms() / 1000, UTC),
            message.dialog.id,
            message.id,
            message.type,
            shortened(text),
        )
        with self._lock:
            self._failures.append(failure)

    def _check(self, network: Network, classify: Classify) -> None:
        """Raise InvalidRoute when the router's contracts do not fit its mode or its targets."""
        catalog, clauses = network.catalog, self.clauses
        service = catalog.get(Service, self.service)
        if clauses.mode == REDIRECT:
            check_redirecting(catalog, service, clauses.contracts, clauses.redirect_type)
            return
        targets = getattr(classify, "targets", None)
        known = targets() if callable(targets) else None
        check_forwarding(network, service, clauses.contracts, None if known is None else frozenset(known))

    @contextmanager
    def _at_work(self, broker: Host, alone: bool) -> Iterator[None]:  # noqa: FBT001  # a callback's shape
        """Watch the classifier and publish the figures while the queue is read."""
        with self._watched.watching(alone=alone), publishing(broker, self):
            yield
