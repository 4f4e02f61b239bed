"""Warns of whoever sends on a dialog and ends it without waiting for anything: fire and forget.

An Error with which the target refuses such a message later finds a side that has ended, and is thrown away: the message
is lost, and nobody learns of it. And a target that waits for more stays open for ever (service-broker.md section 9, R5
and R6). It is said once for each way, since whoever does so does it with every dialog.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from konverse.dialog.session.dialogs import DialogState, SessionDialog
from konverse.dialog.state.partition import Partition
from konverse.dialog.transaction.transaction import Transaction
from konverse.schemas.identifiers import Role
from konverse.schemas.limits import WAY_ENTRIES_MAX
from konverse.schemas.wire.records import Begin

if TYPE_CHECKING:
    from .reader import Reader

log: Final = logging.getLogger("konverse.sending")

_told: Final[set[tuple[str, str, str, str]]] = set()
"""Ways of which this process was warned: a program that connects anew for each dialog is told no more often."""


class FireAndForget:
    """Looks at the dialogs that a broker's clients end. Asked with an end, never with a message."""

    def __init__(self, readers: Callable[[], Sequence[Reader]]) -> None:
        """`readers` are those of this process: what they have received is known."""
        self._readers = readers
        self._read: set[str] = set()

    def reads(self, topic: str) -> None:
        """A reader of this process receives from a queue with this data topic, now or until it was closed."""
        self._read.add(topic)

    def look(self, dialog: SessionDialog, *, sends: bool = False) -> None:
        """The dialog is about to be ended without error; `sends`: the transaction that ends it sends on it, too.

        Nothing is said in doubt: replies may have come to a reader that was closed, or that has lost the partition.
        """
        over = dialog.state is DialogState.ENDED or dialog.waiting_end is not None
        sent = sends or dialog.sent or dialog.held or dialog.pending
        if sent and not over and not self._heard(dialog):
            _warn(dialog.begin)

    def _heard(self, dialog: SessionDialog) -> bool:
        """Whether something came on the dialog, or may have."""
        home = dialog.begin.home

        def received(state: Partition) -> bool:
            endpoint = state.endpoint(Role.INITIATOR, dialog.conversation)
            return endpoint is not None and (endpoint.received > 0 or endpoint.error is not None)

        answers = [
            reader.ask(home.partition, received)
            for reader in self._readers()
            if reader.queue.topic == home.topic and not reader.closed
        ]
        if not answers:
            return home.topic in self._read
        return True in answers or all(answer is None for answer in answers)


def look_at(transaction: Transaction) -> None:
    """The same for the dialogs that a handler begins, when it has returned."""
    said = {sends[0] for sends in transaction.sends}
    ended = {end.endpoint for end in transaction.ends if not end.code}
    for begun in transaction.begins:
        if begun.index in said & ended:
            _warn(begun.begin)


def _warn(begin: Begin) -> None:
    way = (begin.home.topic, begin.from_service, begin.to_service, begin.contract)
    if way in _told:
        return
    if len(_told) >= WAY_ENTRIES_MAX:
        _told.clear()
    _told.add(way)
    log.warning(
        "a dialog from service %r to service %r under contract %r is ended after it was sent on, and before anything "
        "was received (fire and forget). An Error with which the other side refuses what was sent will be lost without "
        "a trace, and the other side stays open until it is ended there. Let the other side end first, and end when "
        "its EndDialog is received. This is said once",
        *way[1:],
    )
