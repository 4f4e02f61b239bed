"""A classifier at work, and who watches how long it takes.

A thread cannot be ended. So a classifier that does not come back is said to whoever operates the router, once for each
message, while the other threads go on; a reader process, which has one thread, ends itself, so that the attempt counts
and the conversation is suspended after some of them, as with every handler that kills its process.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from konverse.bridge.runtime.threads import in_background
from konverse.dialog.transaction.received import Message
from konverse.routing.decisions import Decision, decision_of
from konverse.schemas.errors import InvalidRoute

log: Final = logging.getLogger("konverse.router")

Classify = Callable[[Message], Any]
"""Says for which service a message is: a Target or its name, Unclassifiable, or None for what is unclassifiable."""

LOOKS: Final = 4
"""So often is looked within the time that a classifier may take."""

_ENDS: Final = "this process ends, and the attempt counts"
_WAITS: Final = (
    "its thread waits for it. End this process to have the message tried again; a reader process of "
    "`konverse run --readers processes` ends itself"
)

HANGING: Final = 103
"""Exit code of a reader process whose classifier did not come back."""


class Watched:
    """Calls of a classifier, from several threads."""

    def __init__(self, router: str, timeout_s: float | None, note: Callable[[Message, str], None]) -> None:
        """`router` is its service; without `timeout_s` nobody watches. `note` keeps what is to be said of a message."""
        self._router = router
        self._note = note
        self._timeout_s = timeout_s
        self._at_work: dict[int, tuple[float, Message]] = {}
        """Thread -> since when it classifies which message."""

    def ask(self, classify: Classify, message: Message) -> Decision:
        """What the classifier decides. Raises InvalidRoute when it raises, and for what is no answer."""
        thread = threading.get_ident()
        self._at_work[thread] = (time.monotonic(), message)
        try:
            answer = classify(message)
        except Exception as error:
            raise InvalidRoute(
                f"the classifier of router {self._router!r} failed on message {message.id} of type {message.type!r}, "
                f"the first one of conversation {message.dialog.id}: {type(error).__name__}: {error}. Mend it, then "
                "resume the conversation if it is suspended"
            ) from error
        finally:
            del self._at_work[thread]
        return decision_of(answer)

    @contextmanager
    def watching(self, *, alone: bool) -> Iterator[None]:
        """Watch while the block runs. `alone`: this process does nothing else, and may be ended."""
        timeout_s = self._timeout_s
        if timeout_s is None:
            yield
            return
        over = threading.Event()
        said: set[tuple[float, str]] = set()

        def watch() -> None:
            while not over.wait(timeout_s / LOOKS):
                self._look(timeout_s, said, alone=alone)

        thread = in_background("konverse-classifier-watch", watch)
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _look(self, timeout_s: float, said: set[tuple[float, str]], *, alone: bool) -> None:
        now = time.monotonic()
        working = {(since, message.id): message for since, message in list(self._at_work.values())}
        said.intersection_update(working)
        for (since, identifier), message in working.items():
            if now - since < timeout_s or (since, identifier) in said:
                continue
            said.add((since, identifier))
            late = (
                f"the classifier of router {self._router!r} has worked for {now - since:.1f} s on message {identifier} "
                f"of type {message.type!r}, the first one of conversation {message.dialog.id}, and may take "
                f"{timeout_s:.1f} s (classify_timeout_s)"
            )
            log.error("%s: %s", late, _ENDS if alone else _WAITS)
            self._note(message, late)
            if alone:
                os._exit(HANGING)
