"""Handlers that `Reader.run` calls: a failure rolls back and is logged, and the work goes on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

from konverse.dialog.transaction import Transaction

from .seldom import Seldom

log: Final = logging.getLogger("konverse.reader")

IDS_SHOWN: Final = 5
"""Of the messages of a handler that failed."""


class _Failed(Exception):
    """Rolls a transaction back whose handler failed; why was logged."""


class Handling:
    """Calls a handler, and remembers which messages it fails on."""

    def __init__(self, queue: str, handler: Callable[[Transaction], object]) -> None:
        self._queue = queue
        self._handler = handler
        self._failures = Seldom()

    def work(self, transactions: Iterable[Transaction]) -> None:
        """Handle them all. May run in several threads at once."""
        for transaction in transactions:
            with suppress(_Failed), transaction:
                try:
                    self._handler(transaction)
                except Exception as error:
                    self._say(transaction, error)
                    raise _Failed from error

    def _say(self, transaction: Transaction, error: Exception) -> None:
        """Log the exception, unless it is the same messages' again and again."""
        ids = [message.id for message in transaction] or [f"conversation {transaction.dialog.id}"]  # taken away by now
        times = self._failures.due(ids[0])
        if times:
            log.error(
                "a handler of queue %r failed (failure %d of %s%s); its messages come again after the others",
                self._queue,
                times,
                ", ".join(ids[:IDS_SHOWN]),
                f" and {len(ids) - IDS_SHOWN} more" if len(ids) > IDS_SHOWN else "",
                exc_info=error,
            )
