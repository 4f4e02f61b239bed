"""A driver whose batch is not decided runs an owner of the transmission queue itself, repeatedly if necessary."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import Any, Final, Self

import pytest

from konverse.schemas.errors import KafkaUnavailable
from konverse.spark.write import decision as deciding
from konverse.spark.write.decision import _Helper
from tests.kit import until

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
