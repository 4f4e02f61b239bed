"""While a process stops, servers may stop before it: that connections to them end then is no news."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_CONNECTION: Final = re.compile(r"Connection (refused|reset)|Disconnected|brokers are down|Broken pipe|timed out")


class Departing(logging.Filter):
    """Lets through what Kafka's clients say, but for lost connections of a process that stops."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.RLock()  # also for a signal handler
        self._leaving = 0

    def begin(self) -> None:
        """The process stops."""
        with self._lock:
            self._leaving += 1

    @contextmanager
    def closing(self) -> Iterator[None]:
        """A connection is closed while the block runs, and its process may go on."""
        self.begin()
        try:
            yield
        finally:
            with self._lock:
                self._leaving -= 1

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line is said."""
        return not (self._leaving and _CONNECTION.search(record.getMessage()))


DEPARTING: Final = Departing()
