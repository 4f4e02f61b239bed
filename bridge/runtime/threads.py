"""Background threads that log any exception that ends them, and what logs say of exceptions."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from confluent_kafka import KafkaException

from konverse.schemas.errors import InvalidState, KonverseError

log: Final = logging.getLogger("konverse.background")

AGAIN_S: Final = 1.0
"""Pause of a background thread after an error that may pass by itself."""

EXPECTED_ERRORS: Final = (KafkaException, KonverseError)
"""Errors that every background thread has to expect. `is_transient` tells which of them are worth a retry."""


def in_background(name: str, work: Callable[[], object]) -> threading.Thread:
    """Start a daemon thread that does the work."""
    thread = threading.Thread(target=log_exceptions, args=(name, work), name=name, daemon=True)
    thread.start()
    return thread


def log_exceptions(name: str, work: Callable[[], object]) -> None:
    """Do the work and log an unexpected exception, since no caller waits for the result."""
    try:
        work()
    except Exception:
        log.exception("thread %s ended with an unexpected exception", name)


class ThreadLock:
    """A lock that refuses the thread which holds it, where it would wait for ever: in a signal handler of that thread.

    `remedy` says what the handler has to do instead.
    """

    def __init__(self, remedy: str) -> None:
        self._lock = threading.Lock()
        self._remedy = remedy
        self._holder: int | None = None

    def acquire(self, *, blocking: bool = True) -> bool:
        """Take the lock. False when it is held and the call is not `blocking`. Raises InvalidState."""
        if blocking and self._holder == threading.get_ident():
            raise InvalidState(self._remedy)
        taken = self._lock.acquire(blocking=blocking)
        if taken:
            self._holder = threading.get_ident()
        return taken

    def release(self) -> None:
        """Release the lock."""
        self._holder = None
        self._lock.release()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


def text_of(error: BaseException) -> str:
    """The text of an exception of the application, whose `__str__` may itself fail."""
    try:
        return str(error)
    except Exception as failed:  # noqa: BLE001  # it must not keep the first error from being handled
        return f"(its text cannot be made: {type(failed).__name__})"


def notes_of(error: BaseException) -> list[str]:
    """The notes of an exception. An application may have put anything there."""
    notes = getattr(error, "__notes__", ())
    return [note for note in notes if isinstance(note, str)] if isinstance(notes, list | tuple) else []


def is_transient(error: Exception) -> bool:
    """Whether a retry may help."""
    if isinstance(error, KafkaException):
        return not error.args[0].fatal()
    return isinstance(error, KonverseError) and error.retriable
