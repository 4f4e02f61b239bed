"""Background threads that log any exception that ends them, and the texts of exceptions for the log."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from confluent_kafka import KafkaException

from konverse.schemas.errors import InvalidState, KonverseError

log: Final = logging.getLogger("konverse.background")

AGAIN_S: Final = 1.0
"""Pause of a background thread after an error that may pass by itself."""

TURN_POLL_S: Final = 0.001
"""Interval at which a thread that waits for its turn checks whether the earlier turns are over."""

EXPECTED_ERRORS: Final = (KafkaException, KonverseError)
"""Errors that every background thread has to expect. `is_transient` tells which of them are worth a retry."""


def in_background(name: str, work: Callable[[], object]) -> threading.Thread:
    """Start a daemon thread that does the work."""
    thread = threading.Thread(target=log_exceptions, args=(name, work), name=name, daemon=True)
    thread.start()
    return thread


@contextmanager
def repeating(name: str, every_s: float, work: Callable[[], object]) -> Iterator[None]:
    """Do the work every `every_s` seconds in a background thread, until the block ends."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(every_s):
            work()

    thread = in_background(name, run)
    try:
        yield
    finally:
        over.set()
        thread.join()


def log_exceptions(name: str, work: Callable[[], object]) -> None:
    """Do the work and log an unexpected exception, since no caller waits for the result."""
    try:
        work()
    except Exception:
        log.exception("thread %s ended with an unexpected exception", name)


class ThreadLock:
    """A lock that no exception from outside leaves locked, and that refuses a thread which already has its turn.

    Such a thread is running a signal handler, in which it would wait for ever. `remedy` is the error text for it. A
    turn lasts as long as a block:

        with (turn := threading.Lock()):
            lock.take(turn)
            ...

    An exception from outside, such as Ctrl-C, is raised where a function written in Python begins or where a call
    returns. So a call of `acquire` may take a lock and raise, and a `release` in Python may raise without releasing.
    `with` on a lock of the interpreter does neither.
    """

    def __init__(self, remedy: str) -> None:
        self._remedy = remedy
        self._guard = threading.RLock()  # reentrant, because a signal handler may call `take`
        self._turns: list[tuple[threading.Lock, int]] = []
        """Turns with their threads: the present one, those that wait for it, and some that are over (not locked)."""

    def take(self, turn: threading.Lock, *, blocking: bool = True) -> bool:
        """Wait for a turn. False when there is another one and the call is not `blocking`. Raises InvalidState."""
        with self._guard:
            turns = [(other, its) for other, its in self._turns if other.locked()]
            if turns and not blocking:
                return False
            self.check_thread()
            self._turns = [*turns, (turn, threading.get_ident())]
        for other, _ in turns:
            while other.locked():  # acquiring it would make a turn that is over look like a current one
                time.sleep(TURN_POLL_S)
        return True

    def check_thread(self) -> None:
        """Raise InvalidState in a thread that has its turn already."""
        thread = threading.get_ident()
        if any(its == thread and other.locked() for other, its in self._turns):
            raise InvalidState(self._remedy)


def text_of(error: BaseException) -> str:
    """The text of an exception of the application, whose `__str__` may itself fail."""
    try:
        return str(error)
    except Exception as failed:  # noqa: BLE001  # it must not keep the first error from being handled
        return f"(str() of this exception raised {type(failed).__name__})"


def notes_of(error: BaseException) -> list[str]:
    """The notes of an exception. An application may have put anything there."""
    notes = getattr(error, "__notes__", ())
    return [note for note in notes if isinstance(note, str)] if isinstance(notes, list | tuple) else []


def is_transient(error: Exception) -> bool:
    """Whether a retry may help."""
    if isinstance(error, KafkaException):
        return not error.args[0].fatal()
    return isinstance(error, KonverseError) and error.retriable
