"""The open readers of one broker: which of them owns a partition, and queries on the state of a partition."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from konverse.dialog.state.partition import Partition
from konverse.schemas.identifiers import Address

if TYPE_CHECKING:
    from .reader import Reader

Answer = TypeVar("Answer")


class Readers:
    """The readers that an application has opened. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._readers: tuple[Reader, ...] = ()

    def add(self, reader: Reader) -> None:
        """Keep a reader until it is closed."""
        with self._lock:
            self._readers = (*(other for other in self._readers if not other.closed), reader)

    def open(self) -> list[Reader]:
        """The open readers, oldest first."""
        return [reader for reader in self._readers if not reader.closed]

    def kept(self) -> list[Reader]:
        """The open readers, and those whose `close` may still be giving partitions back in another thread."""
        return [*self._readers]

    def of_topic(self, topic: str) -> list[Reader]:
        """Readers of the queue with this data topic."""
        return [reader for reader in self.open() if reader.queue.topic == topic]

    def owned(self, topic: str) -> frozenset[int]:
        """Partitions of a data topic that these readers own."""
        return frozenset().union(*(reader.partitions for reader in self.of_topic(topic)))

    def owner_of(self, address: Address) -> Reader | None:
        """The reader that owns a partition."""
        owners = (reader for reader in self.of_topic(address.topic) if address.partition in reader.partitions)
        return next(owners, None)

    def answers(self, address: Address, question: Callable[[Partition], Answer | None]) -> list[Answer | None]:
        """The answer of each reader of the queue; None from a reader that does not own the partition."""
        return [reader.ask(address.partition, question) for reader in self.of_topic(address.topic)]

    def after_fork(self) -> None:
        """Close without I/O, in a forked child (`bridge.runtime.forks`)."""
        self._lock = threading.Lock()
        for reader in self._readers:
            reader.after_fork()
