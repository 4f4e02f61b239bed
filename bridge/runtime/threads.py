"""Threads of ours: one that ends before its time says so, whatever it has met."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from confluent_kafka import KafkaException

from konverse.schemas.errors import KonverseError

log: Final = logging.getLogger("konverse.background")

AGAIN_S: Final = 1.0
"""After something that may pass by itself a thread goes on this much later."""

FORESEEN: Final = (KafkaException, KonverseError)
"""What every thread may meet. Some of it `passes`."""


def in_background(name: str, work: Callable[[], object]) -> threading.Thread:
    """Do the work in a thread of its own, which does not keep the program from ending."""
    thread = threading.Thread(target=said, args=(name, work), name=name, daemon=True)
    thread.start()
    return thread


def said(name: str, work: Callable[[], object]) -> None:
    """Do the work; log what nobody foresaw, for nobody waits for the result."""
    try:
        work()
    except Exception:
        log.exception("%s has ended with what nobody foresaw", name)


def passes(error: Exception) -> bool:
    """Whether trying again may help."""
    if isinstance(error, KafkaException):
        return not error.args[0].fatal()
    return isinstance(error, KonverseError) and error.retriable
