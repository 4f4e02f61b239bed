"""A host that answers the transactions of a partition in place of a reader."""

from __future__ import annotations

from collections.abc import Callable

from konverse.dialog.owner.staging import Staging
from konverse.dialog.state.endpoint import Endpoint
from konverse.dialog.transaction.begun import NewDialog
from konverse.dialog.transaction.transaction import NoHost, Transaction
from konverse.schemas.identifiers import Address


class Host:
    """A `TransactionHost` whose answers a test can replace; by default it answers as `NoHost` does."""

    def __init__(self) -> None:
        no_host = NoHost()
        self.lock: Callable[[Transaction, Endpoint | NewDialog, bytes], Address | None] = no_host.lock
        self.further: Callable[[Transaction], Transaction | None] = no_host.further
        self.done: Callable[[Transaction, bool], None] = no_host.done


def host_of(staging: Staging) -> Host:
    """The replaceable host of a staging's transactions; the first call installs it."""
    host = staging.context.host
    if not isinstance(host, Host):
        host = staging.context.host = Host()
    return host
