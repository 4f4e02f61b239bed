"""Transactions that a reader has handed out, but whose `with` block was not entered.

A loop that runs into `continue` before `with transaction:` would keep the group locked for as long as the reader is
open. So a thread's transactions that it has not entered are handed out again when it asks for another one and none is
ready, and at the latest when it has asked REQUESTS_MAX times: in a busy queue something is always ready. The same
happens to transactions of threads that have ended.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from typing import Final, NamedTuple

from konverse.bridge.runtime.log_throttle import LogThrottle
from konverse.dialog.owner.owner import Owner
from konverse.dialog.transaction.transaction import Transaction

log: Final = logging.getLogger("konverse.reader")

REQUESTS_MAX: Final = 100
"""A transaction counts as skipped after this many further requests of its thread. So a thread may collect transactions
before it enters them; a list of `batches` is one request."""


class _Handed(NamedTuple):
    """A transaction that a thread was given."""

    owner: Owner
    transaction: Transaction
    request: int
    """Number of the thread's request that it answers."""


class _Thread:
    """The requests of one thread, and the transactions that it was given."""

    __slots__ = ("handed", "requests")

    def __init__(self) -> None:
        self.requests = 0
        self.handed = deque[_Handed]()
        """Oldest first. Entered ones stay in it until the next request."""

    def passed_over(self) -> list[_Handed]:
        """Remove and return the transactions that REQUESTS_MAX requests have passed over.

        Entered ones are removed from both ends too, and some of them are returned: `_reported` leaves them out.
        """
        handed, passed = self.handed, list[_Handed]()
        while handed and not handed[-1].transaction.fresh:
            handed.pop()
        while handed and (self.requests - handed[0].request >= REQUESTS_MAX or not handed[0].transaction.fresh):
            passed.append(handed.popleft())
        return passed


class SkippedTransactions:
    """Tracks the transactions of one reader. The caller holds the reader's lock."""

    def __init__(self, queue: str) -> None:
        self._queue = queue
        self._threads: dict[int, _Thread] = {}
        self._requests = 0
        """Requests of all threads."""
        self._reports = LogThrottle()

    def handed(self, owner: Owner, transaction: Transaction) -> None:
        """Note that this thread is given a transaction."""
        thread = self._threads.setdefault(threading.get_ident(), _Thread())
        thread.handed.append(_Handed(owner, transaction, thread.requests))

    def requested(self) -> list[tuple[Owner, Transaction]]:
        """Note a request of this thread. Returns the transactions to hand out again although others may be ready."""
        self._requests += 1
        passed = self._of_ended_threads() if self._requests % REQUESTS_MAX == 0 else []
        thread = self._threads.get(threading.get_ident())
        if thread is not None:
            thread.requests += 1
            passed += thread.passed_over()
        return self._reported(passed)

    def take_back(self) -> list[tuple[Owner, Transaction]]:
        """Transactions to hand out again: those that this thread, or a thread that has ended, has not entered.

        Called when this thread has asked for another transaction and none is ready.
        """
        mine = self._threads.pop(threading.get_ident(), None)
        return self._reported([*(() if mine is None else mine.handed), *self._of_ended_threads()])

    def _of_ended_threads(self) -> list[_Handed]:
        """Remove and return the transactions of threads that have ended."""
        alive = {thread.ident for thread in threading.enumerate()}
        return [one for ident in self._threads.keys() - alive for one in self._threads.pop(ident).handed]

    def _reported(self, passed: list[_Handed]) -> list[tuple[Owner, Transaction]]:
        """The transactions among them that were not entered, with their owners. They cannot be entered any more."""
        skipped = [(owner, transaction) for owner, transaction, _ in passed if transaction.fresh]
        for _, transaction in skipped:
            transaction.fresh = False
            if self._reports.due():
                log.warning(
                    "the transaction of conversation %s of queue %r was skipped: the reader was asked for the next one "
                    "before its block began. The group is delivered again. Enter `with transaction:` for each "
                    "transaction, even to do nothing",
                    transaction.dialog.id,
                    self._queue,
                )
        return skipped
