"""Clients that stay open between tasks or batches of a process: a new one has to fetch the cluster's metadata first."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

Client = TypeVar("Client")

log: Final = logging.getLogger("konverse.spark")

IDLE_CLIENTS_MAX: Final = 4
"""Maximum number of idle clients in a process, which works with few clusters and queries at a time."""


class IdleClients(Generic[Client]):
    """Idle clients by key. Thread-safe; a forked process begins without any."""

    def __init__(self, close: Callable[[Client], None]) -> None:
        self._close = close
        self._clients: dict[tuple[Any, ...], Client] = {}
        """Keys begin with the process id, as a forked process inherits clients that it can neither use nor close."""

    def take(self, key: tuple[Any, ...]) -> Client | None:
        """An idle client for this key, which belongs to the caller from then on; None when there is none."""
        return self._clients.pop((os.getpid(), *key), None)

    def keep(self, key: tuple[Any, ...], client: Client) -> None:
        """Keep an idle client, unless the key has one. Closes the oldest beyond IDLE_CLIENTS_MAX. Raises nothing."""
        process = os.getpid()
        kept = self._clients.setdefault((process, *key), client)
        ours = [one for one in [*self._clients] if one[0] == process]
        over = [self._clients.pop(one, None) for one in ours[:-IDLE_CLIENTS_MAX]]
        for one in (*over, None if kept is client else client):
            if one is not None:
                self._close_client(one)

    def _close_client(self, client: Client) -> None:
        try:
            self._close(client)
        except Exception as error:  # noqa: BLE001  # its work is finished, and a failing close undoes nothing
            log.info("an idle Kafka client, %r, could not be closed: %s", client, error)
