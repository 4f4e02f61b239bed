"""Hides lost-connection log lines of Kafka's clients while a process stops: its servers may stop before it does."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_CONNECTION: Final = re.compile(r"Connection (refused|reset)|Disconnected|brokers are down|Broken pipe|timed out")


class ShutdownLogFilter(logging.Filter):
    """Drops log lines about lost connections while the process stops; every other line passes."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.RLock()  # reentrant, because a signal handler calls `begin`
        self._leaving = 0

    def begin(self) -> None:
        """Drop these lines from now on: the process is stopping."""
        with self._lock:
            self._leaving += 1

    @contextmanager
    def closing(self) -> Iterator[None]:
        """Drop these lines while the block closes a connection; the process may go on afterwards."""
        self.begin()
        try:
            yield
        finally:
            with self._lock:
                self._leaving -= 1

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line is logged."""
        return not (self._leaving and _CONNECTION.search(record.getMessage()))


SHUTDOWN_FILTER: Final = ShutdownLogFilter()
