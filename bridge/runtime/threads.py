"""Background threads that log any exception that ends them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from confluent_kafka import KafkaException

from konverse.schemas.errors import KonverseError

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


def is_transient(error: Exception) -> bool:
    """Whether a retry may help."""
    if isinstance(error, KafkaException):
        return not error.args[0].fatal()
    return isinstance(error, KonverseError) and error.retriable
