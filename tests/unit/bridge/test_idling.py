"""When iteration over an idle reader ends, by a clock that moves only while the reader polls Kafka."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from konverse.bridge.reader import reader as module
from konverse.bridge.reader.reader import WAIT_S, Reader
from konverse.bridge.reader.skipped_transactions import SkippedTransactions
from konverse.bridge.runtime.settings import ReaderOptions
from konverse.bridge.runtime.threads import ThreadLock

ROUNDING_S = 1e-9


class IdleQueue:
    """The clock, and Kafka's answers to the polls of a reader: nothing, or a record at some times."""

    def __init__(self, *records_at_s: float, messages: bool = False) -> None:
        """`messages`: each record is a message of a group that another thread holds."""
        self.now = 100.0
        self.polls = 0
        self.unread = 0
        self.at = 0
        self._messages = messages
        self._records_at = [100.0 + at for at in records_at_s]

    def ends(self) -> dict[int, int]:
        """One log, with the records that have come by now."""
        return {0: self.at + sum(at <= self.now for at in self._records_at)}

    def read_to(self, _partition: int) -> int:
        """The records that were fetched."""
        return self.at

    def monotonic(self) -> float:
        return self.now

    def fetch(self, wait_s: float) -> bool:
        """Wait for a record: it comes within the wait, or the whole wait passes. It makes no message ready."""
        if self._records_at and self._records_at[0] <= self.now + wait_s:
            self.now = max(self.now, self._records_at.pop(0))
            self.at += 1
            self.unread += self._messages
            return True
        self.polls += wait_s > 0
        self.now += wait_s
        return False


class HandingOut(SimpleNamespace):
    """Hands out nothing."""

    queue: IdleQueue

    @property
    def unread(self) -> int:
        """Messages that wait."""
        return self.queue.unread


def idle_reader(queue: IdleQueue, timeout: float | None) -> Reader:
    """A reader at rest that owns no partition, between a driver without work and the answers of `queue`."""
    reader: Any = Reader.__new__(Reader)
    reader.options = ReaderOptions(timeout=timeout)
    reader._lock, reader._pumping = threading.RLock(), ThreadLock("")
    reader._closed = reader._stopping = False
    reader._advance_at, reader._unread_max = 0.0, 1
    reader._skipped = SkippedTransactions("Orders")
    reader._driver = SimpleNamespace(
        owners={},
        settled=True,
        commit=None,
        pump=lambda *_: None,
        catalog_changes=SimpleNamespace(read=lambda: None, check_enabled=lambda: None),
    )
    reader._handing_out = HandingOut(
        next_group=lambda _: None,
        hand_out_again=lambda _: None,
        scarce=lambda _: True,
        ready=False,
        resting=(),
        queue=queue,
    )
    reader._assignment = SimpleNamespace(
        check=lambda: None,
        maintain=lambda: None,
        poll_when_due=lambda: False,
        fetch=queue.fetch,
        ends=queue.ends,
        read_to=queue.read_to,
        may_be_idle=True,
        waiting=False,
        lost=0,
    )
    made: Reader = reader
    return made


@pytest.mark.parametrize("timeout", [0.0, 0.12, 1.0])
def test_iteration_ends_at_the_timeout_and_one_poll_later_at_most(
    timeout: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = IdleQueue()
    monkeypatch.setattr(module, "time", queue)
    assert list(idle_reader(queue, timeout)) == []
    assert timeout <= queue.now - 100.0 + ROUNDING_S
    assert queue.now - 100.0 <= timeout + WAIT_S + ROUNDING_S
    assert queue.polls <= timeout / WAIT_S + 1 + ROUNDING_S


def test_a_message_begins_the_timeout_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = IdleQueue(0.62, messages=True)
    monkeypatch.setattr(module, "time", queue)
    assert list(idle_reader(queue, 1.0)) == []
    assert 1.62 - ROUNDING_S <= queue.now - 100.0 <= 1.62 + WAIT_S + ROUNDING_S


@pytest.mark.parametrize("every_s", [0.62, 0.01], ids=["one", "an endless stream"])
def test_a_record_that_is_no_message_does_not_begin_the_timeout_anew(
    every_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = IdleQueue(*(number * every_s for number in range(1, round(60 / every_s))))
    monkeypatch.setattr(module, "time", queue)
    assert list(idle_reader(queue, 1.0)) == []
    assert 1.0 - ROUNDING_S <= queue.now - 100.0 <= 1.0 + WAIT_S + ROUNDING_S


def test_the_records_that_are_in_the_log_when_the_timeout_has_passed_are_read_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queue = IdleQueue(*[0.0] * 500)
    monkeypatch.setattr(module, "time", queue)
    assert list(idle_reader(queue, 0.0)) == []
    assert queue.at == 500


def test_iteration_ends_when_another_thread_closes_the_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """A closed consumer cannot be asked whether its group has admitted it."""

    class Closed(SimpleNamespace):
        @property
        def may_be_idle(self) -> bool:
            raise RuntimeError("Consumer closed")

    queue = IdleQueue()
    monkeypatch.setattr(module, "time", queue)
    reader: Any = idle_reader(queue, None)

    def fetch(_wait_s: float) -> bool:
        reader._closed = True
        return False

    reader._assignment = Closed(check=lambda: None, maintain=lambda: None, poll_when_due=lambda: False, fetch=fetch)
    assert list(reader) == []
