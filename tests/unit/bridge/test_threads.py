"""Our background threads: temporary errors do not end them, and an error that does is logged."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from konverse.bridge.client import transmission
from konverse.bridge.client.transmission import Transmission
from konverse.bridge.runtime.log_throttle import LogThrottle
from konverse.bridge.runtime.threads import ThreadLock, in_background, repeating
from konverse.schemas.errors import InvalidState, KafkaUnavailable, PartitionHalted
from tests.kit import until
from tests.kit.interrupts import interrupted_at

DEADLINE_S = 30.0


class Reader:
    """Raises these errors, one in each turn, and ends after them."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = [*errors]
        self.closed = False

    def __iter__(self) -> Iterator[None]:
        if self.errors:
            raise self.errors.pop(0)
        return iter(())

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None:
        self.closed = True


def transmit(reader: Reader) -> None:
    transmitting: Any = Transmission.__new__(Transmission)
    transmitting._closed = threading.Event()
    transmitting._away = LogThrottle()
    transmitting._instance = "konverse"
    in_background("konverse-transmission", lambda: transmitting._transmit(reader)).join(DEADLINE_S)


def test_work_is_repeated_until_its_block_ends() -> None:
    turns = threading.Semaphore(0)
    with repeating("konverse-repeating", 0.001, turns.release):
        assert all(turns.acquire(timeout=DEADLINE_S) for _ in range(3))
    assert "konverse-repeating" not in {thread.name for thread in threading.enumerate()}


def test_transmission_continues_after_temporary_errors(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(transmission, "AGAIN_S", 0.0)
    reader = Reader(KafkaUnavailable("restarted just now"), KafkaException(KafkaError(KafkaError._TRANSPORT)))
    transmit(reader)
    assert (reader.errors, reader.closed) == ([], True)
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_the_arrival_of_transactions_is_checked_although_there_was_no_client_for_it_at_first(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Else `flush` and later sends on their dialogs would wait in vain, for as long as the broker lives."""
    listening: Any = Transmission.__new__(Transmission)
    listening._closed, listening._away = threading.Event(), LogThrottle()
    listening._instance, listening._kafka = "konverse", None
    awaits = threading.Event()
    awaits.set()
    session = SimpleNamespace(transactions=SimpleNamespace(flying=["a transaction"]))
    listening._sender = SimpleNamespace(
        session=session, awaits_arrival=awaits, decide=lambda _call: listening._closed.set()
    )
    clients: list[Any] = [KafkaUnavailable("too many open files"), nullcontext(SimpleNamespace(catch_up=lambda: None))]

    def follow(*_: object) -> Any:
        client = clients.pop(0)
        if isinstance(client, Exception):
            raise client
        return client

    monkeypatch.setattr(transmission, "AGAIN_S", 0.0)
    monkeypatch.setattr(transmission, "Follower", follow)
    in_background("konverse-transmission", lambda: listening._listen(None, 0)).join(DEADLINE_S)
    assert listening._closed.is_set()
    assert [record.levelname for record in caplog.records] == ["WARNING"]


@pytest.mark.parametrize("error", [PartitionHalted("the tail is gone"), LookupError("a bug")])
def test_a_transmission_thread_that_fails_for_good_releases_its_partitions_and_logs_the_error(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    reader = Reader(error, KafkaUnavailable("never met"))
    transmit(reader)
    assert (len(reader.errors), reader.closed) == (1, True)
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert str(error) in caplog.text


def test_a_signal_handler_of_the_thread_that_holds_a_lock_is_refused_and_another_thread_waits() -> None:
    lock = ThreadLock("call stop()")
    taken: list[str] = []

    def take() -> None:
        with (turn := threading.Lock()):
            lock.take(turn)
            taken.append("by another thread")

    with (turn := threading.Lock()):
        lock.take(turn)
        with pytest.raises(InvalidState, match=r"call stop\(\)"), (nested := threading.Lock()):
            lock.take(nested)
        with (nested := threading.Lock()):
            assert not lock.take(nested, blocking=False)
        with pytest.raises(InvalidState, match=r"call stop\(\)"):
            lock.check_thread()
        other = threading.Thread(target=take, daemon=True)
        other.start()
        until(lambda: len(lock._turns) == 2, DEADLINE_S)
        taken.append("by this thread")
    other.join(DEADLINE_S)
    assert taken == ["by this thread", "by another thread"]
    lock.check_thread()


def test_a_thread_that_waits_for_a_lock_is_not_passed_by_one_that_would_not_wait() -> None:
    """Else a thread that takes it again and again could keep the waiting one from its turn for ever."""
    lock = ThreadLock("")
    has_it = threading.Event()

    def take() -> None:
        with (turn := threading.Lock()):
            lock.take(turn)
            has_it.wait(DEADLINE_S)

    with (first := threading.Lock()):
        lock.take(first)
        other = threading.Thread(target=take, daemon=True)
        other.start()
        until(lambda: len(lock._turns) == 2, DEADLINE_S)
    with (second := threading.Lock()):
        assert not lock.take(second, blocking=False)
    has_it.set()
    other.join(DEADLINE_S)
    with (third := threading.Lock()):
        assert lock.take(third, blocking=False)


def test_threads_that_take_a_lock_again_and_again_have_their_turns_one_after_the_other() -> None:
    lock = ThreadLock("")
    inside, most = [0], [0]

    def take() -> None:
        for _ in range(100):
            with (turn := threading.Lock()):
                lock.take(turn)
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                threading.Event().wait(0.0001)  # so that another thread waits
                inside[0] -= 1

    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(take) for _ in range(3)]:
            done.result(DEADLINE_S)
    assert most == [1]


@pytest.mark.parametrize("blocking", [True, False])
def test_a_lock_that_was_interrupted_anywhere_is_free_again(*, blocking: bool) -> None:
    lock = ThreadLock("")
    place = 0

    def take() -> None:
        with (turn := threading.Lock()):
            lock.take(turn, blocking=blocking)

    while interrupted_at(place, {take.__code__, ThreadLock.take.__code__, ThreadLock.check_thread.__code__}, take):
        place += 1
        with (turn := threading.Lock()):
            assert lock.take(turn, blocking=False), place
    assert place > 3, "the whole of it was interrupted"
