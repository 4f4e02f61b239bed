"""The server of an instance: owns a share of the link queue, routes delayed conversations, and asks for routes."""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType
from typing import Final, Self

from konverse.bridge.catalog.catalog import Catalog
from konverse.bridge.catalog.judge import Rules
from konverse.bridge.client.client import Client
from konverse.bridge.kafka.clients import Kafka
from konverse.bridge.owner.driver import OwnerDriver
from konverse.bridge.reader.reader import Reader
from konverse.bridge.runtime.settings import ReaderOptions
from konverse.dialog.owner.settings import OwnerSettings
from konverse.dialog.state.transitions import State
from konverse.dialog.transaction.received import Message
from konverse.dialog.transaction.transaction import Transaction
from konverse.schemas.catalog.broker_configuration import MISSING_ROUTE, missing_route_body
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.system_messages import DIALOG_TIMER, END_DIALOG, ERROR

from .places import InstancePlaces
from .requests import RequestDialogs, RequestKey, RouteRequests

DECIDE_WITHIN_MS: Final = 10
"""Commit soon: there are no receivers to batch for, and conversations wait for their place."""


class InstanceServer:
    """A share of the link queue. Call `run` until it returns; any number of servers may run."""

    def __init__(self, kafka: Kafka, link: Queue, catalog: Catalog, client: Client) -> None:
        """`catalog` is that of any database of the instance; `client` begins the dialogs of requests."""
        self._requests = RouteRequests(kafka, link, RequestDialogs(kafka, catalog, client).begin)
        places = InstancePlaces(kafka, catalog, self._requests.request)
        rules = Rules(lambda *_: None, catalog=catalog, places=places)
        driver = OwnerDriver(kafka, link, rules, OwnerSettings(uncommitted_ms=DECIDE_WITHIN_MS))
        self.reader: Final = Reader(kafka, driver, ReaderOptions(), lambda _: None)

    def run(self) -> None:
        """Route conversations until `stop` is called."""
        for transaction in self.reader:
            with transaction:
                for message in transaction:
                    _serve(transaction, message)

    def stop(self) -> None:
        """End `run`. May be called from any thread, and from a signal handler."""
        self.reader.stop()

    def close(self) -> None:
        """Give the partitions back."""
        with ExitStack() as exits:
            exits.callback(self._requests.close)
            exits.callback(self.reader.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _serve(transaction: Transaction, message: Message) -> None:
    """Carry on the dialog of a request: send it when its timer rings, and end it when the service has ended it."""
    dialog = message.dialog
    if message.type == DIALOG_TIMER and dialog.key is not None and dialog.committed is State.STARTED_OUTBOUND:
        wanted = RequestKey.decode(dialog.key).wanted
        transaction.send(dialog, MISSING_ROUTE, missing_route_body(wanted))
    elif message.type in (END_DIALOG, ERROR):
        transaction.end(dialog)
