"""A driver whose batch is not decided runs an owner of the transmission queue itself, repeatedly if necessary."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, Final, Self, cast

import pytest

from konverse.bridge.kafka.clients import Kafka
from konverse.dialog.batch.driver import Driver, Put
from konverse.schemas.errors import AccessDenied, KafkaUnavailable
from konverse.spark.write import decision as deciding
from konverse.spark.write.decision import BatchDecision, _Helper
from tests.kit import until
from tests.kit.builders import address_of, identifier

NOBODY: Final[Any] = None


class Transmitter:
    """An owner of the transmission queue that runs until it is stopped, or Kafka goes away."""

    def __init__(self, *, fails: bool) -> None:
        self._fails = fails
        self.stopped = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to do."""

    def __iter__(self) -> Iterator[None]:
        if self._fails:
            raise KafkaUnavailable("no broker answers")
        self.stopped.wait(60.0)
        return iter(())

    def stop(self) -> None:
        self.stopped.set()


def test_a_helper_whose_work_has_ended_can_be_asked_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made: list[Transmitter] = []

    def transmitter(*_: object) -> Transmitter:
        if len(made) < 2:
            made.append(Transmitter(fails=True))
            if len(made) == 1:
                raise KafkaUnavailable("no broker answers")
        else:
            made.append(Transmitter(fails=False))
        return made[-1]

    monkeypatch.setattr(deciding, "transmitter", transmitter)
    monkeypatch.setattr(deciding, "HELP_AGAIN_S", 0.0)
    helper = _Helper(NOBODY, NOBODY, "query one")

    def works() -> bool:
        helper.help()
        return len(made) > 2

    with caplog.at_level(logging.WARNING):
        until(works, 30.0)
    for _ in range(3):
        helper.help()
    helper.close()
    assert len(made) == 3, "who helps already is not asked again"
    assert made[-1].stopped.is_set()
    assert "cannot own the transmission queue for query one: no broker" in caplog.text
    assert "no longer owns the transmission queue for query one: no broker" in caplog.text


def test_a_helper_that_has_failed_rests_before_it_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def transmitter(*_: object) -> Transmitter:
        asked.append(1)
        raise KafkaUnavailable("no broker answers")

    monkeypatch.setattr(deciding, "transmitter", transmitter)
    helper = _Helper(NOBODY, NOBODY, "query one")
    for _ in range(3):
        helper.help()
    helper.close()
    assert len(asked) == 1


class LateKafka:
    """Acknowledges the first record late, and refuses the second one."""

    settings = SimpleNamespace(instance="konverse")

    def __init__(self) -> None:
        self._told: list[Any] = []

    def journal_producer(self) -> Self:
        return self

    def produce(self, _topic: str, _body: bytes, _key: bytes, _partition: int, on_delivery: Any, **_: Any) -> None:
        self._told.append(on_delivery)

    def flush(self, _timeout_s: float) -> None:
        if len(self._told) == 2:
            self._told[0](None, None)
            self._told[1]("refused", None)

    def check_written(self, _topic: str, failures: list[object]) -> None:
        if failures:
            raise AccessDenied("this principal may not write")

    def words(self, error: object, _need: object) -> str:
        return str(error)


def test_a_batch_that_was_acknowledged_late_is_not_reported_as_refused(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(deciding, "_PRODUCERS", {})
    made, kafka = BatchDecision.__new__(BatchDecision), cast("Kafka", LateKafka())
    made._kafka, made._left = kafka, False
    made._driver = Driver(identifier("query"), identifier("run"), address_of("transmission"), (), ())
    put = Put(address_of("transmission"), [(b"header", b"key", b"body")])
    made._put(put)
    made._put(put)
    assert made._left
    assert "cannot be submitted for decision, retrying: refused" in caplog.text
