"""Homes of dialogs as their journals say: what a process asks that does not own their partitions.

Each home is read by a thread of its own, for as long as there are questions for it. So a home that is slow to answer
keeps nobody waiting who asks another one, and whoever asks waits no longer than he wants to.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, Final

from konverse.bridge.owner.follower import Following
from konverse.bridge.runtime.threads import in_background
from konverse.dialog.state.partition import Partition
from konverse.schemas.errors import BrokerClosed
from konverse.schemas.identifiers import Address

REST_S: Final = 30.0
"""A home that was not asked for so long is not followed any more."""

Question = Callable[[Partition], Any]


class _Home:
    """One home, and what is asked of it."""

    __slots__ = ("following", "questions", "read", "used_at")

    def __init__(self) -> None:
        self.following: Following | None = None
        """Used by the thread that reads."""
        self.questions: list[tuple[Question, Future[Any]]] = []
        self.read = False
        """A thread reads it."""
        self.used_at = 0.0


class Homes:
    """Those that were asked lately. Thread-safe."""

    def __init__(self, follow: Callable[[Address], Following]) -> None:
        self._follow = follow
        self._lock = threading.Lock()
        """Guards what follows; never held while Kafka is asked."""
        self._homes: dict[Address, _Home] = {}
        self._closed = False

    @property
    def followed(self) -> list[Address]:
        """Homes with a client and a partition in memory."""
        with self._lock:
            return list(self._homes)

    def ask(self, address: Address, question: Question) -> Future[Any]:
        """What a home answers when its journal was read to where it ends now; the reading thread calls `question`.

        Raises BrokerClosed. The answer raises what `follow` and `Following.catch_up` raise.
        """
        answer: Future[Any] = Future()
        with self._lock:
            if self._closed:
                raise BrokerClosed("the broker was closed, and asks the homes of its dialogs no more")
            home = self._homes.setdefault(address, _Home())
            home.used_at = time.monotonic()
            home.questions.append((question, answer))
            is_read, home.read = home.read, True
        if not is_read:
            in_background("konverse-home", partial(self._read, address, home))
        return answer

    def _read(self, address: Address, home: _Home) -> None:
        while questions := self._taken(home):
            try:
                if home.following is None:
                    home.following = self._follow(address)
                state = home.following.catch_up()
            except Exception as error:  # noqa: BLE001  # it is the answer
                for _, answer in questions:
                    answer.set_exception(error)
                continue
            for question, answer in questions:
                try:
                    answer.set_result(question(state))
                except Exception as error:  # noqa: BLE001  # likewise
                    answer.set_exception(error)

    def _taken(self, home: _Home) -> list[tuple[Question, Future[Any]]]:
        """What is asked of it now, and still awaited; the thread ends when there is nothing."""
        with self._lock:
            taken = [(question, answer) for question, answer in home.questions if answer.set_running_or_notify_cancel()]
            home.questions = []
            home.read = bool(taken)
            ends = self._closed and not taken
        if ends:
            _close(home)
        return taken

    def close_rested(self) -> None:
        """Let go of homes that nobody has asked for a while: each has clients, and a partition in memory."""
        now = time.monotonic()
        with self._lock:
            rested = [at for at, home in self._homes.items() if not home.read and now - home.used_at >= REST_S]
            closing = [self._homes.pop(at) for at in rested]
        for home in closing:
            _close(home)

    def close(self) -> None:
        """Answer no more. A home that is read just now is let go of by the thread that reads it."""
        with self._lock:
            self._closed = True
            closing = [home for home in self._homes.values() if not home.read]
            self._homes.clear()
        for home in closing:
            _close(home)

    def forked(self) -> None:
        """In a forked child: closed, see `bridge.runtime.forks`."""
        self._lock = threading.Lock()
        self._closed = True


def _close(home: _Home) -> None:
    if home.following is not None:
        home.following.close()
