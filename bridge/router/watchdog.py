"""Watches how long a classifier takes.

Python cannot end a thread. So a classifier that does not return is logged, once for each message, while other threads
go on. A reader process with one thread ends itself instead: its death counts as an attempt, and the conversation is
suspended after some attempts, as with every handler that kills its process.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from konverse.bridge.runtime.threads import repeating, text_of
from konverse.dialog.transaction.received import Message
from konverse.routing.decisions import Decision, decision_of
from konverse.schemas.errors import InvalidRoute

log: Final = logging.getLogger("konverse.router")

Classify = Callable[[Message], Any]
"""A classifier: takes the first message of a dialog; returns a Target or a service name, or Unclassifiable or None."""

LOOKS: Final = 4
"""Number of checks within the time that a classifier may take."""

_ENDS: Final = "this process exits, and the attempt counts as failed"
_WAITS: Final = (
    "its thread is blocked. Restart this process to retry the message; a reader process of "
    "`konverse run --readers processes` exits by itself"
)

HANGING: Final = 103
"""Exit code of a reader process whose classifier did not return."""


class Watched:
    """Calls a classifier, from several threads, and watches the calls."""

    def __init__(self, router: str, timeout_s: float | None, note: Callable[[Message, str], None]) -> None:
        """`router` names the service. Without `timeout_s` nothing is watched. `note` records a message and an error."""
        self._router = router
        self._note = note
        self._timeout_s = timeout_s
        self._at_work: dict[int, tuple[float, Message]] = {}
        """Thread -> start of its current call, and the message."""

    def ask(self, classify: Classify, message: Message) -> Decision:
        """The decision of the classifier. Raises InvalidRoute when the classifier raises or returns no valid answer."""
        thread = threading.get_ident()
        self._at_work[thread] = (time.monotonic(), message)
        try:
            answer = classify(message)
        except Exception as error:
            raise InvalidRoute(
                f"the classifier of router {self._router!r} failed on message {message.id} of type {message.type!r}, "
                f"the first one of conversation {message.dialog.id}: {type(error).__name__}: {text_of(error)}. Fix the "
                "classifier, then resume the conversation if it is suspended"
            ) from error
        finally:
            del self._at_work[thread]
        return decision_of(answer)

    @contextmanager
    def watching(self, *, alone: bool) -> Iterator[None]:
        """Watch while the block runs. `alone`: this process serves no other queue, and may end itself."""
        timeout_s = self._timeout_s
        if timeout_s is None:
            yield
            return
        look = partial(self._look, timeout_s, set[tuple[float, str]](), alone=alone)
        with repeating("konverse-classifier-watch", timeout_s / LOOKS, look):
            yield

    def _look(self, timeout_s: float, said: set[tuple[float, str]], *, alone: bool) -> None:
        now = time.monotonic()
        working = {(since, message.id): message for since, message in list(self._at_work.values())}
        said.intersection_update(working)
        for (since, identifier), message in working.items():
            if now - since < timeout_s or (since, identifier) in said:
                continue
            said.add((since, identifier))
            late = (
                f"the classifier of router {self._router!r} has run for {now - since:.1f} s on message {identifier} "
                f"of type {message.type!r}, the first one of conversation {message.dialog.id}; the limit is "
                f"{timeout_s:.1f} s (classify_timeout_s)"
            )
            log.error("%s: %s", late, _ENDS if alone else _WAITS)
            self._note(message, late)
            if alone:
                os._exit(HANGING)
