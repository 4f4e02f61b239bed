"""Clients that stay open in a process from one task or batch to the next: a new one has to ask where everything is."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

Client = TypeVar("Client")

log: Final = logging.getLogger("konverse.spark")

RESTING_MAX: Final = 4
"""A process works with few clusters and queries at a time."""


class Resting(Generic[Client]):
    """Those that nobody uses just now, each by what it is for. Safe for threads, and in a forked process empty."""

    def __init__(self, close: Callable[[Client], None]) -> None:
        self._close = close
        self._clients: dict[tuple[Any, ...], Client] = {}
        """A forked process inherits what it can neither use nor close: keys begin with the process."""

    def take(self, key: tuple[Any, ...]) -> Client | None:
        """One for that, which is the caller's alone now; None when there is none."""
        return self._clients.pop((os.getpid(), *key), None)

    def keep(self, key: tuple[Any, ...], client: Client) -> None:
        """Let it rest; those that have rested for longest are closed when there are too many. Raises nothing."""
        process = os.getpid()
        kept = self._clients.setdefault((process, *key), client)
        ours = [one for one in [*self._clients] if one[0] == process]
        over = [self._clients.pop(one, None) for one in ours[:-RESTING_MAX]]
        for one in (*over, None if kept is client else client):
            if one is not None:
                self._let_go(one)

    def _let_go(self, client: Client) -> None:
        try:
            self._close(client)
        except Exception as error:  # noqa: BLE001  # what its user did is done, and stays so
            log.info("a Kafka client that rested does not close: %s", error)
