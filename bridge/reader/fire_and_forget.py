"""Warns when a client sends on a dialog and ends it without waiting for a reply (fire and forget).

If the target refuses such a message with an Error later, the Error finds a side that has ended and is discarded: the
message is lost without a trace. And a target that waits for more stays open for ever (service-broker.md section 9, and
R5 and R6 of section 11). There is one warning for each pair of services and contract: such a client treats every dialog
like this.
"""

from __future__ import annotations

import logging
from typing import Final

from konverse.dialog.transaction.transaction import Transaction
from konverse.schemas.limits import WAY_ENTRIES_MAX
from konverse.schemas.wire.records import Begin

log: Final = logging.getLogger("konverse.sender")

_warned: Final[set[tuple[str, str, str, str]]] = set()
"""Home topic, services and contract of each warning. For the whole process: a program may connect for each dialog."""


def examine(transaction: Transaction) -> None:
    """Examine the dialogs that a handler has begun and ended in its transaction, when the handler has returned."""
    said = {sends[0] for sends in transaction.sends}
    ended = {end.endpoint for end in transaction.ends if not end.code}
    for begun in transaction.begins:
        if begun.index in said & ended:
            warn(begun.begin)


def warn(begin: Begin) -> None:
    """Warn of a dialog, once for its pair of services and contract."""
    way = (begin.home.topic, begin.from_service, begin.to_service, begin.contract)
    if way in _warned:
        return
    if len(_warned) >= WAY_ENTRIES_MAX:
        _warned.clear()
    _warned.add(way)
    log.warning(
        "a dialog from service %r to service %r under contract %r was ended after messages were sent and before any "
        "was received (fire and forget). If the other side rejects the messages, its Error is lost without a trace, "
        "and the other side stays open until it is ended there. Let the other side end first, and end when its "
        "EndDialog is received. This warning is logged once",
        *way[1:],
    )
