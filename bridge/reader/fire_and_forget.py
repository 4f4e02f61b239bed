"""Warns when a client sends on a dialog and ends it without waiting for a reply (fire and forget).

If the target refuses such a message with an Error later, the Error finds a side that has ended and is discarded: the
message is lost without a trace. And a target that waits for more stays open for ever (service-broker.md section 9, R5
and R6). Each pair of services under a contract is warned of once: such a client treats every dialog like this.
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
"""Home topic, services and contract of each warning. For the whole process: a program may connect for each dialog."""


class FireAndForget:
    """Examines dialogs when a broker's clients end them; sending a message costs nothing."""

    def __init__(self, readers: Callable[[], Sequence[Reader]]) -> None:
        """`readers` gives the readers of this process, which know what they have received."""
        self._readers = readers
        self._read: set[str] = set()

    def reads(self, topic: str) -> None:
        """A reader of this process receives from the queue with this data topic, now or until it was closed."""
        self._read.add(topic)

    def look(self, dialog: SessionDialog, *, sends: bool = False) -> None:
        """Examine a dialog that is about to be ended without error; `sends`: the same transaction sends on it, too.

        In doubt there is no warning: replies may have come to a reader that was closed or has lost the partition.
        """
        over = dialog.state is DialogState.ENDED or dialog.waiting_end is not None
        sent = sends or dialog.sent or dialog.held or dialog.pending
        if sent and not over and not self._heard(dialog):
            _warn(dialog.begin)

    def _heard(self, dialog: SessionDialog) -> bool:
        """Whether something was received on the dialog, or may have been."""
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
    """Examine the dialogs that a handler has begun and ended in its transaction, when the handler has returned."""
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
