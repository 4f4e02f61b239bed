"""Handlers that `Reader.run` calls, and their threads: a failure rolls back and is logged, and the work goes on."""

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

from konverse.bridge.runtime.log_throttle import Seldom
from konverse.bridge.runtime.logs import FIELDS
from konverse.dialog.transaction.transaction import Transaction
from konverse.schemas.errors import GroupLocked, TransactionTooLarge
from konverse.schemas.limits import ATTEMPTS_MAX, HANDLER_LEAVING_MS_MAX

from .fire_and_forget import look_at
from .procedures import check_procedure

log: Final = logging.getLogger("konverse.reader")

PAUSE_S: Final = 0.002
PAUSE_MAX_S: Final = 0.5
"""A thread whose handlers fail one after the other pauses this long at most."""

MESSAGES_SHOWN: Final = 5
"""Of the messages of a handler that failed."""

AT_WORK_SHOWN: Final = 5
"""Of what is at work still when a thread has failed."""

PROMPT_S: Final = 0.25
"""Who is not in a handler ends within it: no word is lost about him."""


class _Failed(Exception):
    """Rolls a transaction back whose handler failed; why was logged."""


def failure() -> str:
    """In words, with what the `with` block fails whose transaction is rolled back just now."""
    error = sys.exception()
    if isinstance(error, _Failed):
        error = error.__cause__
    return "it was rolled back" if error is None else f"{type(error).__name__}: {error}"


class Handling:
    """Calls a handler, and says which messages it fails on."""

    def __init__(self, queue: str, handler: Callable[[Transaction], object]) -> None:
        """Raises InvalidProcedure for a handler that needs something else than a transaction, or is async (29)."""
        check_procedure(handler)
        self.name = f"queue {queue!r}"
        self._queue = queue
        self._handler = handler
        self._storms = Seldom()
        self._at_work: dict[int, tuple[float, Transaction]] = {}
        """Thread -> since when it handles what."""
        self._left = False
        """Nobody waits for its threads any more: one that comes back takes nothing further."""

    def work(self, transactions: Iterable[Transaction], *, together: bool = False) -> None:
        """Handle them all. May run in several threads at once. Who fails again and again pauses in between.

        Those that were received `together` are looked at first and paused behind once: one that fails does not hold up
        the others.
        """
        failures = most = 0
        for transaction in transactions:
            worked = False
            try:
                worked = self._handle(transaction)
            except TransactionTooLarge as error:  # of several groups together, which is known at the end of the block
                log.error(  # noqa: TRY400  # the traceback is ours
                    "a transaction of queue %r that began at conversation %s was rolled back: %s",
                    self._queue,
                    transaction.dialog.id,
                    error,
                )
            failures = 0 if worked else failures + 1
            most = max(most, failures)
            if failures > 1 and not together:  # what the handler needs may be away: a group has a few attempts only
                self._pause(failures)
            if self._left:
                return
        if together and most > 1:
            self._pause(most)

    def at_work(self) -> list[str]:
        """What its threads are at now, in words, the one that takes longest first."""
        now = time.monotonic()
        return [
            f"conversation {transaction.dialog.id} of service {transaction.dialog.service!r}, for {now - since:.1f} s"
            for since, transaction in sorted(self._at_work.values(), key=itemgetter(0))
        ]

    def leave(self) -> None:
        """Let threads that are at work end behind what they are at."""
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
        """Whether the handler did not fail; it may have stepped back."""
        well, thread = True, threading.get_ident()
        with suppress(_Failed, GroupLocked), transaction:
            self._at_work[thread] = (time.monotonic(), transaction)
            try:
                self._handler(transaction)
            except GroupLocked:  # it comes again when whoever has that group is done
                raise
            except Exception as error:
                well = False
                self._say(transaction, error)
                raise _Failed from error
            finally:
                del self._at_work[thread]
            if transaction.begins:
                look_at(transaction)
        return well

    def _say(self, transaction: Transaction, error: Exception) -> None:
        """Log each attempt: its exception and notes in a line, with the traceback of the first and of the last one."""
        messages = list(transaction)  # none: what was received was taken away meanwhile
        attempt = 1 + max(member.attempts for member in (transaction.dialog, *transaction.members))
        conversation = transaction.dialog.id
        shown = ", ".join(f"{message.id} (#{message.sequence})" for message in messages[:MESSAGES_SHOWN])
        more = f" and {len(messages) - MESSAGES_SHOWN} more" if len(messages) > MESSAGES_SHOWN else ""
        what_next = "they come again" if attempt < ATTEMPTS_MAX else "konverse suspended lists it from now on"
        log.error(
            "a handler of queue %r failed (attempt %d of %d at conversation %s, message %s%s): %s: %s",
            self._queue,
            attempt,
            ATTEMPTS_MAX,
            conversation,
            shown or "-",
            more,
            type(error).__name__,
            "; ".join([str(error), *getattr(error, "__notes__", ()), what_next]),
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


class Worked(Protocol):
    """What the threads of a crew are at."""

    name: str
    """Whose threads they are, in words."""

    def at_work(self) -> list[str]:
        """What is at work now, in words."""
        ...

    def leave(self) -> None:
        """Nobody waits for the threads any more."""
        ...


class Crew:
    """The threads in which the handlers of one reader run. None of them keeps the program from ending."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._present: set[int] = set()
        """Identifiers of the threads, and of those that wait for them in `work`."""

    @property
    def busy(self) -> bool:
        """Somebody works."""
        return bool(self._present)

    def work(self, work: Callable[[], None], threads: int, stop: Callable[[], None], worked: Worked) -> None:
        """Do it in so many threads until all are done, or one raises, which is raised here; `stop` ends the others.

        A failure is logged at once, with what is at work still, and raised when that is done; or after
        HANDLER_LEAVING_MS_MAX, when what hangs is logged and left: a thread cannot be ended.
        """
        ends: SimpleQueue[BaseException | None] = SimpleQueue()

        def member() -> None:
            with self._here():
                try:
                    work()
                except BaseException as error:  # noqa: BLE001  # whatever it is, raised where somebody waits for it
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
                stop()  # also when the one who waits is interrupted
                self._see_off(crew, failure, worked)
        if failure is not None:
            raise failure

    def _see_off(self, crew: list[threading.Thread], failure: BaseException | None, worked: Worked) -> None:
        """Wait for threads that were told to end: for as long as it takes, if none of them has failed."""
        if failure is not None and _living(crew, PROMPT_S):
            log.error(
                "a thread of %s has ended with %s: %s; others are at work still, and have %.0f s to finish: %s",
                worked.name,
                type(failure).__name__,
                failure,
                HANDLER_LEAVING_MS_MAX / 1000,
                _shown(worked.at_work()),
            )
            left = _living(crew, HANDLER_LEAVING_MS_MAX / 1000)
            if left:
                log.error(
                    "%d thread(s) of %s have not come back and are left behind; what they are at is received again: %s",
                    len(left),
                    worked.name,
                    _shown(worked.at_work()),
                )
                worked.leave()
                with self._changed:
                    self._present.difference_update(thread.ident for thread in left if thread.ident is not None)
                    self._changed.notify_all()
                return
        for thread in crew:
            thread.join()

    def wait(self, timeout_s: float) -> None:
        """Return when nobody works any more, or the time is over; at once for whoever works here."""
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
    """Those that are at work still when the time is over."""
    deadline = time.monotonic() + timeout_s
    for thread in crew:
        thread.join(max(0.0, deadline - time.monotonic()))
    return [thread for thread in crew if thread.is_alive()]


def _shown(texts: list[str]) -> str:
    more = f" and {len(texts) - AT_WORK_SHOWN} more" if len(texts) > AT_WORK_SHOWN else ""
    return ("; ".join(texts[:AT_WORK_SHOWN]) or "none of them in a handler") + more
