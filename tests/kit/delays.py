"""Dialogs that wait in the link queue, and a server that sends them on."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from konverse.bridge.broker import Broker
from konverse.bridge.client.dialog import Dialog
from konverse.bridge.server.server import InstanceServer
from konverse.schemas.identifiers import delays


def is_delayed(dialog: Dialog) -> bool:
    """Whether the target of the dialog had no place when it began."""
    return delays(dialog.begin.target.topic)


@contextmanager
def serving(broker: Broker) -> Iterator[InstanceServer]:
    """A server of the instance, which runs in a thread. Raises the error that ended it."""
    with broker.server() as server, ThreadPoolExecutor(1) as pool:
        running = pool.submit(server.run)
        try:
            yield server
        finally:
            server.stop()
        running.result()
