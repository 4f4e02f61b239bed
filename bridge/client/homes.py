"""Answers questions about homes of dialogs whose partitions other processes own, by reading their journals.

Each home is read by a thread of its own while there are questions for it. So a home that is slow to answer does not
delay questions to other homes, and a caller may stop waiting at any time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, Final

from konverse.bridge.owner.follower import Follower
from konverse.bridge.runtime.threads import in_background
from konverse.dialog.state.partition import Partition
from konverse.schemas.errors import BrokerClosed, KafkaUnavailable
from konverse.schemas.identifiers import Address

REST_S: Final = 30.0
"""A home that was not asked for this long is closed."""

Question = Callable[[Partition], Any]


class _Home:
    """One home, and the questions that wait for its answer."""

    __slots__ = ("following", "questions", "read", "used_at")

    def __init__(self) -> None:
        self.following: Follower | None = None
        """Used by the reading thread only."""
        self.questions: list[tuple[Question, Future[Any]]] = []
        self.read = False
        """Whether a reading thread runs."""
        self.used_at = 0.0


class Homes:
    """The homes that were asked recently. Thread-safe."""

    def __init__(self, follow: Callable[[Address], Follower]) -> None:
        self._follow = follow
        self._lock = threading.Lock()
        """Guards `_homes` and `_closed`; never held while waiting for Kafka."""
        self._homes: dict[Address, _Home] = {}
        self._closed = False

    @property
    def followed(self) -> list[Address]:
        """Homes for which a client and the state of the partition are kept in memory."""
        with self._lock:
            return list(self._homes)

    def ask(self, address: Address, question: Question) -> Future[Any]:
        """Ask a home: the reading thread reads its journal to the present end, then calls `question` with its state.

        Raises BrokerClosed, and KafkaUnavailable when no thread can be started. The future raises the errors of
        `follow`, of `Follower.catch_up` and of `question`.
        """
        answer: Future[Any] = Future()
        with self._lock:
            if self._closed:
                raise BrokerClosed("the broker was closed and no longer asks the homes of its dialogs; connect again")
            home = self._homes.setdefault(address, _Home())
            home.used_at = time.monotonic()
            home.questions.append((question, answer))
            if not home.read:
                self._start_reading(address, home)
        return answer

    def _start_reading(self, address: Address, home: _Home) -> None:
        """The caller holds the lock, so no other caller queues a question before the thread has started."""
        home.read = True
        try:
            in_background("konverse-home", partial(self._read, address, home))
        except RuntimeError as error:
            home.read, home.questions = False, []
            raise KafkaUnavailable(
                f"{address.topic}/{address.partition}, the home of a dialog, cannot be read, because this process "
                f"cannot start a thread ({error}). End some of its threads, or raise the limit (`ulimit -u`)"
            ) from None

    def _read(self, address: Address, home: _Home) -> None:
        while questions := self._taken(home):
            try:
                if home.following is None:
                    home.following = self._follow(address)
                state = home.following.catch_up()
            except Exception as error:  # noqa: BLE001  # the callers get it as their answer
                for _, answer in questions:
                    answer.set_exception(error)
                continue
            for question, answer in questions:
                try:
                    answer.set_result(question(state))
                except Exception as error:  # noqa: BLE001  # the caller gets it as its answer
                    answer.set_exception(error)

    def _taken(self, home: _Home) -> list[tuple[Question, Future[Any]]]:
        """Take the questions whose callers still wait; the reading thread ends when there are none."""
        with self._lock:
            taken = [(question, answer) for question, answer in home.questions if answer.set_running_or_notify_cancel()]
            home.questions = []
            home.read = bool(taken)
            ends = self._closed and not taken
        if ends:
            _close(home)
        return taken

    def close_rested(self) -> None:
        """Close the homes that were not asked for `REST_S`, since each keeps a client and a partition in memory."""
        now = time.monotonic()
        with self._lock:
            rested = [at for at, home in self._homes.items() if not home.read and now - home.used_at >= REST_S]
            closing = [self._homes.pop(at) for at in rested]
        for home in closing:
            _close(home)

    def close(self) -> None:
        """Answer no more questions. A home that is being read is closed by its reading thread."""
        with self._lock:
            self._closed = True
            closing = [home for home in self._homes.values() if not home.read]
            self._homes.clear()
        for home in closing:
            _close(home)

    def after_fork(self) -> None:
        """Mark as closed in a forked child (`bridge.runtime.forks`)."""
        self._lock = threading.Lock()
        self._closed = True


def _close(home: _Home) -> None:
    if home.following is not None:
        home.following.close()
