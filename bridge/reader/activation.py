"""Activation: `activate` declares which handler answers which queue, and `konverse run` calls the handlers.

Declaring does no I/O, so a module of handlers can be imported and tested without any server.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from konverse.bridge.runtime.arguments import Count, checked
from konverse.dialog.transaction.transaction import Transaction
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.counting import counted
from konverse.schemas.errors import AlreadyExists, InvalidSettings
from konverse.schemas.identifiers import check_name
from konverse.schemas.limits import HANDLER_THREADS_MAX, QUEUE_READERS_MAX

from .procedures import _name, check_procedure

if TYPE_CHECKING:
    from konverse.bridge.catalog.catalog import Catalog
    from konverse.bridge.catalog.network import Network
    from konverse.bridge.runtime.settings import Settings

    from .reader import Reader

Handler = TypeVar("Handler", bound=Callable[[Transaction], object])


class Host(Protocol):
    """The parts of a `Broker` that the handlers and routers of its queues need."""

    @property
    def catalog(self) -> Catalog:
        """The objects of the database."""

    @property
    def network(self) -> Network:
        """Where conversations of the database go."""

    @property
    def settings(self) -> Settings:
        """Where Kafka and Redis are."""

    @property
    def database(self) -> str:
        """Name of the database."""

    def reader(
        self, queue: str, *, timeout: float | None = None, batch: int = 1, max_messages: int | None = None
    ) -> Reader:
        """RECEIVE from a queue of the database."""


@dataclass(frozen=True, slots=True)
class Activation:
    """ACTIVATION of a queue: the handler that answers it, and how many of its calls run at a time."""

    queue: str
    handler: Callable[[Transaction], object]
    max_readers: int
    batch: int
    """Conversation groups that share one commit, at most."""
    max_messages: int | None
    """Messages of a conversation in one transaction, at most."""
    around: Callable[[Host, bool], AbstractContextManager[object]] | None = None
    """Makes a context that is open while the queue is read. Arguments: the host, and `alone` as for `at_work`."""

    def at_work(self, host: Host, *, alone: bool) -> AbstractContextManager[object]:
        """Context to enter before the queue is read; `alone`: the process does nothing else."""
        return nullcontext() if self.around is None else self.around(host, alone)

    def check(self, queue: Queue, *, processes: bool) -> None:
        """Raise InvalidSettings when `max_readers` is too high, as reader `processes` or as threads of one process."""
        if processes and self.max_readers > queue.partitions:
            raise InvalidSettings(
                f"queue {self.queue!r} has {counted(queue.partitions, 'partition')}, and one process reads each: of "
                f"{self.max_readers} reader processes {self.max_readers - queue.partitions} would have nothing to do. "
                f"Set max_readers to {queue.partitions} or less, use --readers threads, or create the queue with more "
                "partitions"
            )
        if not processes and self.max_readers > HANDLER_THREADS_MAX:
            raise InvalidSettings(
                f"queue {self.queue!r} is activated with max_readers={self.max_readers}, and a process has "
                f"{HANDLER_THREADS_MAX} handler threads at most; lower max_readers, or use --readers processes"
            )


class HandlerRegistry:
    """The part of an `App` and of a `Broker` that declares handlers of queues.

    `RouterRegistry`, in `router.registry`, adds routers. It is a class of its own because this package must not import
    routers.
    """

    def __init__(self) -> None:
        self._activations: dict[str, Activation] = {}

    @property
    def activations(self) -> list[Activation]:
        """Activations, in the order in which they were declared."""
        return list(self._activations.values())

    @checked
    def activate(
        self,
        queue: str,
        *,
        max_readers: int = 1,
        batch: Count = 100,
        max_messages: Count | None = None,
    ) -> Callable[[Handler], Handler]:
        """ACTIVATION: let `konverse run` call the decorated function for every transaction of a queue.

        The function takes the transaction: the ready messages of one conversation group. The transaction is committed
        when the function returns and rolled back when it raises. The result is ignored (behaviour 202). At most
        `max_readers` calls run at a time in one `konverse run` (194); 0 starts nothing (24). At most `batch`
        conversation groups share a commit; `max_messages` is TOP. Raises InvalidSettings (24), InvalidProcedure for a
        function that cannot be called with a transaction alone (29), AlreadyExists for a queue that is activated
        already.
        """
        check_name("queue", queue)
        if not 0 <= max_readers <= QUEUE_READERS_MAX:
            raise InvalidSettings(
                f"queue {queue!r}: max_readers is {max_readers}; give 0, which starts nothing, to {QUEUE_READERS_MAX}"
            )
        if queue in self._activations:
            raise AlreadyExists(
                f"queue {queue!r} is activated already, by {_name(self._activations[queue].handler)}; one function "
                "answers a queue: let it distinguish messages by message.type"
            )

        def register(handler: Handler) -> Handler:
            check_procedure(handler)
            self._activations[queue] = Activation(queue, handler, max_readers, batch, max_messages)
            return handler

        return register
