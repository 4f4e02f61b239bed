"""Substitute readers for queues that services have left (ALTER SERVICE) and that have no reader any more.

Messages of older conversations are still addressed to the old queue, and an owner there has to send them on. So a
process that reads the new queue makes a substitute: it owns those partitions of the old queue that have no owner, hands
nothing out, and gives way to any reader of that queue (protocol.md section 7.3).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from konverse.bridge.catalog.catalog import Catalog
from konverse.bridge.runtime.log_throttle import LogThrottle
from konverse.bridge.runtime.threads import EXPECTED_ERRORS, in_background
from konverse.schemas.catalog.objects import Queue, Service
from konverse.schemas.counting import listed

from .readers import Readers

if TYPE_CHECKING:
    from .reader import Reader

log: Final = logging.getLogger("konverse.substitutes")
PUMP_EVERY_S: Final = 0.02
WANTED_EVERY: Final = 100
"""Number of pumps between two checks of which substitutes are wanted."""


class _Request:
    """A request to look after a queue. A later request for the same queue is another object."""

    __slots__ = ("queue",)

    def __init__(self, queue: Queue) -> None:
        self.queue = queue


class Substitutes:
    """The substitutes of one process: one for each queue that services have left for a queue that is read here."""

    def __init__(self, catalog: Catalog, readers: Readers, make: Callable[[Queue], Reader]) -> None:
        self._catalog = catalog
        self._readers = readers
        self._make = make
        self._lock = threading.Lock()
        self._wanted: dict[str, _Request] = {}
        """Name of a queue -> the last request to look after it."""
        self._open: dict[str, Reader] = {}
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()
        self._mistakes = LogThrottle()

    def look_after(self, queue: Queue) -> None:
        """Look after a queue that services have left for a queue that this process reads."""
        with self._lock:
            self._wanted[queue.name] = _Request(queue)
            if self._thread is None and not self._closing.is_set():
                self._thread = in_background("konverse-substitutes", self._run)

    def _run(self) -> None:
        turn = 0
        while not self._closing.wait(PUMP_EVERY_S):
            if turn % WANTED_EVERY == 0:
                try:
                    self._choose()
                except Exception as error:  # noqa: BLE001  # without this thread no queue is looked after
                    self._log("cannot determine which queues need a substitute reader", error)
            turn += 1
            for name, reader in list(self._open.items()):
                try:
                    reader.keep_up()
                    reader.check()
                except Exception as error:  # noqa: BLE001  # another reader is made for it, and the others go on
                    self._log(f"the substitute reader of queue {name!r} failed and will be replaced", error)
                    self._leave(name)
        for name in list(self._open):
            self._leave(name)

    def _log(self, what: str, error: Exception) -> None:
        """Log an expected error briefly, an unexpected one with its traceback and throttled."""
        if isinstance(error, EXPECTED_ERRORS):
            log.info("%s: %s", what, error)
        elif self._mistakes.due(what):
            log.error("%s: unexpected error", what, exc_info=error)

    def _choose(self) -> None:
        """Make substitutes for queues that are wanted and not read here; close those that are no longer wanted."""
        with self._lock:
            known = dict(self._wanted)
        # read after the requests, so that the readers that made them are among these
        read = {reader.queue.name for reader in self._readers.open()}
        try:
            left = {
                name
                for service in self._catalog.all(Service)
                if service.queue in read
                for name in service.queues_before
            }
            there = {queue.name: queue.incarnation for queue in self._catalog.all(Queue)}
        except EXPECTED_ERRORS as error:
            log.debug("cannot determine which of the queues %s need a substitute reader: %s", listed(known), error)
            return
        for name, request in known.items():
            queue = request.queue
            if name not in left or there.get(name) != queue.incarnation:
                self._leave(name)  # takes a while, in which another reader may request it again
                with self._lock:
                    if self._wanted.get(name) is request:
                        del self._wanted[name]
            elif name in read:  # for as long as that reader lives
                self._leave(name)
            elif name not in self._open:
                try:
                    self._open[name] = self._make(queue)
                except Exception as error:  # noqa: BLE001  # as in `_run`: the other queues go on
                    self._log(f"no substitute reader can be made for queue {name!r} yet", error)

    def _leave(self, name: str) -> None:
        reader = self._open.pop(name, None)
        if reader is not None:
            try:
                reader.close()
            except Exception as error:  # noqa: BLE001  # other readers find its partitions silent and claim them
                self._log(f"the substitute reader of queue {name!r} could not be closed cleanly", error)

    def close(self) -> None:
        """Give all partitions back and end the thread."""
        self._closing.set()
        with self._lock:
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def after_fork(self) -> None:
        """Mark as closed in a forked child (`bridge.runtime.forks`)."""
        self._closing = threading.Event()
        self._closing.set()
        self._lock = threading.Lock()
        self._thread = None
        for reader in self._open.values():
            reader.after_fork()
