"""Calls handlers for `Reader.run`, and runs their threads: a failure rolls back and is logged, and the work goes on."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from operator import itemgetter
from queue import SimpleQueue
from typing import Final, Protocol

from konverse.bridge.runtime.log_throttle import LogThrottle
from konverse.bridge.runtime.logs import FIELDS
from konverse.bridge.runtime.threads import notes_of, text_of
from konverse.dialog.transaction.transaction import Transaction
from konverse.schemas.counting import counted, listed
from konverse.schemas.errors import GroupLocked, TransactionTooLarge
from konverse.schemas.limits import ATTEMPTS_MAX, HANDLER_LEAVING_MS_MAX

from .fire_and_forget import examine
from .procedures import check_procedure

log: Final = logging.getLogger("konverse.reader")

PAUSE_S: Final = 0.002
PAUSE_MAX_S: Final = 0.5
"""Longest pause of a thread whose handler calls fail in a row."""

MESSAGES_SHOWN: Final = 5
"""Message ids in the log line of a failed handler call, at most."""

AT_WORK_SHOWN: Final = 5
"""Running calls that the log names when a thread has failed, at most."""

STOP_WITHIN_S: Final = 0.25
"""Threads that are not inside a handler stop within this time; nothing is logged about them."""


class _Failed(Exception):
    """Rolls back the transaction of a handler that failed. Its exception was logged."""


def failure() -> str | None:
    """Why the transaction of the `with` block that is ending is rolled back, in words.

    None when the block was abandoned and has not failed: by Ctrl-C, or by a generator that is not used further.
    """
    error = sys.exception()
    if isinstance(error, _Failed):
        error = error.__cause__
    if isinstance(error, KeyboardInterrupt | GeneratorExit):
        return None
    return "it was rolled back" if error is None else f"{type(error).__name__}: {text_of(error)}"


class HandlerRunner:
    """Calls a handler, and logs which messages it fails on."""

    def __init__(self, queue: str, handler: Callable[[Transaction], object]) -> None:
        """Raises InvalidProcedure for a handler that is async or cannot be called with a transaction alone (29)."""
        check_procedure(handler)
        self.name = f"queue {queue!r}"
        self._queue = queue
        self._handler = handler
        self._storms = LogThrottle()
        self._at_work: dict[int, tuple[float, Transaction]] = {}
        """Thread -> start and transaction of the handler call that runs in it."""
        self._left = False
        """The threads were abandoned: if the handler of one returns after all, it takes no further transaction."""

    def work(self, transactions: Iterable[Transaction], *, together: bool = False) -> None:
        """Call the handler for each transaction. Several threads may do so at once. Pauses after repeated failures.

        Transactions that were received `together` are all handled before one pause, so that a failure does not hold up
        the others.
        """
        failures = most = 0
        for transaction in transactions:
            worked = False
            try:
                worked = self._handle(transaction)
            except TransactionTooLarge as error:  # with several groups, only the end of the block detects it
                log.error(  # noqa: TRY400  # a traceback would show konverse's code alone
                    "a transaction of queue %r that began at conversation %s was rolled back: %s",
                    self._queue,
                    transaction.dialog.id,
                    error,
                )
            failures = 0 if worked else failures + 1
            most = max(most, failures)
            if failures > 1 and not together:  # the handler may need a service that is down, and attempts are few
                self._pause(failures)
            if self._left:
                return
        if together and most > 1:
            self._pause(most)

    def at_work(self) -> list[str]:
        """The handler calls that run now, in words, the longest first."""
        now = time.monotonic()
        return [
            f"conversation {transaction.dialog.id} of service {transaction.dialog.service!r}, for {now - since:.1f} s"
            for since, transaction in sorted(self._at_work.values(), key=itemgetter(0))
        ]

    def abandon(self) -> None:
        """Let each thread end after its current transaction."""
        self._left = True

    def _pause(self, failures: int) -> None:
        pause_s = min(PAUSE_MAX_S, PAUSE_S * 2.0 ** min(failures, 20))
        if pause_s == PAUSE_MAX_S and self._storms.due():
            log.warning(
                "handlers of queue %r have failed %d times in a row; they pause for %.1f s after each failure until "
                "one succeeds",
                self._queue,
                failures,
                pause_s,
            )
        time.sleep(pause_s)

    def _handle(self, transaction: Transaction) -> bool:
        """Handle one transaction; False when the handler failed. Stepping back (GroupLocked) is not a failure."""
        well, thread = True, threading.get_ident()
        with suppress(_Failed, GroupLocked), transaction:
            self._at_work[thread] = (time.monotonic(), transaction)
            try:
                self._handler(transaction)
            except GroupLocked:  # the transaction steps back and is redelivered
                raise
            except Exception as error:
                well = False
                self._log_failure(transaction, error)
                raise _Failed from error
            finally:
                del self._at_work[thread]
            if transaction.begins:
                examine(transaction)
        return well

    def _log_failure(self, transaction: Transaction, error: Exception) -> None:
        """Log a failed attempt: exception and notes in a line, with a traceback for the first and the last attempt."""
        messages = list(transaction)  # empty if the messages were taken away meanwhile
        attempt = 1 + max(member.attempts for member in (transaction.dialog, *transaction.members))
        conversation = transaction.dialog.id
        shown = listed((f"{message.id} (#{message.sequence})" for message in messages), MESSAGES_SHOWN)
        those = f"{'message' if len(messages) == 1 else 'messages'} {shown}" if messages else "no message left"
        what_next = "the messages are received again" if attempt < ATTEMPTS_MAX else "the conversation is suspended now"
        log.error(
            "a handler of queue %r failed (attempt %d of %d at conversation %s of service %r, %s): %s: %s",
            self._queue,
            attempt,
            ATTEMPTS_MAX,
            conversation,
            transaction.dialog.service,
            those,
            type(error).__name__,
            "; ".join([text_of(error), *notes_of(error), what_next]),
            exc_info=error if attempt in (1, ATTEMPTS_MAX) else None,
            extra={
                FIELDS: {
                    "queue": self._queue,
                    "conversation": conversation,
                    "messages": [message.id for message in messages],
                    "sequences": [message.sequence for message in messages],
                    "attempt": attempt,
                }
            },
        )


class CrewWork(Protocol):
    """The work that the threads of a crew do."""

    name: str
    """Describes the work in log lines."""

    def at_work(self) -> list[str]:
        """The calls that the threads run now, in words."""
        ...

    def abandon(self) -> None:
        """Called when threads that still run are abandoned."""
        ...


class Crew:
    """The threads in which handlers run. They are daemons: none keeps the program from ending."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._present: set[int] = set()
        """Identifiers of the threads, and of the threads that wait for them in `work`."""

    @property
    def busy(self) -> bool:
        """Whether any thread works, or waits for one in `work`."""
        return bool(self._present)

    def work(self, work: Callable[[], None], threads: int, stop: Callable[[], None], crew_work: CrewWork) -> None:
        """Call `work` in several threads until all return or one raises, which is raised here. `stop` ends the others.

        A failure is logged while other threads still run. They have HANDLER_LEAVING_MS_MAX to finish. Threads that hang
        longer are logged and abandoned, as a thread cannot be killed.
        """
        ends: SimpleQueue[BaseException | None] = SimpleQueue()

        def member() -> None:
            with self._here():
                try:
                    work()
                except BaseException as error:  # noqa: BLE001  # whatever it is, it is raised in the thread that waits
                    ends.put(error)
                else:
                    ends.put(None)

        failure = None
        crew: list[threading.Thread] = []
        with self._here():
            try:
                for number in range(threads):
                    thread = threading.Thread(target=member, name=f"konverse-handler_{number}", daemon=True)
                    thread.start()
                    crew.append(thread)
                for _ in crew:
                    failure = ends.get()
                    if failure is not None:
                        break
            finally:
                stop()  # also when the waiting thread is interrupted
                self._join_threads(crew, failure, crew_work)
        if failure is not None:
            raise failure

    def _join_threads(self, crew: list[threading.Thread], failure: BaseException | None, crew_work: CrewWork) -> None:
        """Wait for threads that were told to stop: without a limit, unless one of them has failed."""
        if failure is not None and _living(crew, STOP_WITHIN_S):
            log.error(
                "a thread of %s ended with %s: %s; other threads still run and have %.0f s to finish: %s",
                crew_work.name,
                type(failure).__name__,
                failure,
                HANDLER_LEAVING_MS_MAX / 1000,
                _shown(crew_work.at_work()),
            )
            left = _living(crew, HANDLER_LEAVING_MS_MAX / 1000)
            if left:
                log.error(
                    "abandoned %s of %s that did not finish; the messages there are received again: %s",
                    counted(len(left), "thread"),
                    crew_work.name,
                    _shown(crew_work.at_work()),
                )
                crew_work.abandon()
                with self._changed:
                    self._present.difference_update(thread.ident for thread in left if thread.ident is not None)
                    self._changed.notify_all()
                return
        for thread in crew:
            thread.join()

    def wait(self, timeout_s: float) -> None:
        """Return when no thread works any more, or after `timeout_s`; at once in a thread of the crew itself."""
        with self._changed:
            if threading.get_ident() not in self._present:
                self._changed.wait_for(lambda: not self._present, timeout_s)

    @contextmanager
    def _here(self) -> Iterator[None]:
        with self._changed:
            self._present.add(threading.get_ident())
        try:
            yield
        finally:
            with self._changed:
                self._present.discard(threading.get_ident())
                self._changed.notify_all()


def _living(crew: list[threading.Thread], timeout_s: float) -> list[threading.Thread]:
    """Threads that are still alive after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    for thread in crew:
        thread.join(max(0.0, deadline - time.monotonic()))
    return [thread for thread in crew if thread.is_alive()]


def _shown(texts: list[str]) -> str:
    more = f" and {len(texts) - AT_WORK_SHOWN} more" if len(texts) > AT_WORK_SHOWN else ""
    return ("; ".join(texts[:AT_WORK_SHOWN]) or "none of them in a handler") + more
