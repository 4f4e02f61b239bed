"""Dialogs that wait in the link queue, and a server that sends them on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from konverse.bridge.broker import Broker
from konverse.bridge.client.dialog import Dialog
from konverse.schemas.identifiers import delays


def is_delayed(dialog: Dialog) -> bool:
    """Whether the target of the dialog had no place when it began."""
    return delays(dialog.begin.target.topic)


@contextmanager
def serving(broker: Broker) -> Iterator[None]:
    """A server of the instance, in a thread."""
    with broker.server() as server:
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        try:
            yield
        finally:
            server.stop()
            thread.join()
