"""Transactions that a reader has handed out, but whose `with` block was not entered.

A loop that runs into `continue` before `with transaction:` would keep the group locked for as long as the reader is
open. So when a thread asks for another transaction and none is ready, the transactions that it has not entered are
handed out again. The same is done with those of threads that have ended.
"""

from __future__ import annotations

import logging
import threading
from typing import Final

from konverse.bridge.runtime.log_throttle import LogThrottle
from konverse.dialog.owner.owner import Owner
from konverse.dialog.transaction.transaction import Transaction

log: Final = logging.getLogger("konverse.reader")


class SkippedTransactions:
    """Tracks the transactions of one reader. The caller holds the reader's lock."""

    def __init__(self, queue: str) -> None:
        self._queue = queue
        self._handed: dict[int, list[tuple[Owner, Transaction]]] = {}
        """Thread -> transactions it was given, oldest first. Entered ones stay in it until the next call."""
        self._reports = LogThrottle()

    def handed(self, owner: Owner, transaction: Transaction) -> None:
        """Note that this thread is given a transaction."""
        mine = self._handed.setdefault(threading.get_ident(), [])
        while mine and not mine[-1][1].fresh:
            mine.pop()
        mine.append((owner, transaction))

    def take_back(self) -> list[tuple[Owner, Transaction]]:
        """Transactions to hand out again: those that this thread, or a thread that has ended, has not entered.

        Called when this thread asks for another transaction and none is ready.
        """
        alive = {thread.ident for thread in threading.enumerate()} - {threading.get_ident()}
        passed: list[tuple[Owner, Transaction]] = []
        for thread in self._handed.keys() - alive:
            passed += [one for one in self._handed.pop(thread) if one[1].fresh]
        for _, transaction in passed:
            transaction.fresh = False
            if self._reports.due():
                log.warning(
                    "the transaction of conversation %s of queue %r was skipped: the reader was asked for the next one "
                    "before its block began. The group is delivered again. Enter `with transaction:` for each "
                    "transaction, even to do nothing",
                    transaction.dialog.id,
                    self._queue,
                )
        return passed
