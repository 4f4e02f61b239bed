"""Our background threads: temporary errors do not end them, and an error that does is logged."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from konverse.bridge.client import transmission
from konverse.bridge.client.transmission import Transmission
from konverse.bridge.runtime.log_throttle import LogThrottle
from konverse.bridge.runtime.threads import ThreadLock, in_background
from konverse.schemas.errors import InvalidState, KafkaUnavailable, PartitionHalted

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


def test_transmission_continues_after_temporary_errors(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(transmission, "AGAIN_S", 0.0)
    reader = Reader(KafkaUnavailable("restarted just now"), KafkaException(KafkaError(KafkaError._TRANSPORT)))
    transmit(reader)
    assert (reader.errors, reader.closed) == ([], True)
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
    with lock:
        with pytest.raises(InvalidState, match=r"call stop\(\)"):
            lock.acquire()
        assert not lock.acquire(blocking=False)
        taken: list[bool] = []
        other = threading.Thread(target=lambda: taken.append(lock.acquire()))
        other.start()
    other.join(DEADLINE_S)
    assert taken == [True]
