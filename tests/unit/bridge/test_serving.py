"""An undelivered record is never forgotten."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from confluent_kafka import KafkaError

from konverse.bridge.client.serving import SessionProducer
from konverse.dialog.session.rotation import Age


class Lane:
    """During its inspection, another thread begins a dialog."""

    def __init__(self, lanes: dict[str, Any]) -> None:
        self._lanes = lanes

    @property
    def place(self) -> tuple[str, int]:
        self._lanes["new"] = SimpleNamespace(place=("another", 1))
        return ("another", 0)


def test_a_failure_counts_although_another_thread_begins_a_dialog_meanwhile() -> None:
    serving: Any = SessionProducer.__new__(SessionProducer)
    serving._kafka = SimpleNamespace(words=lambda error, _need: error.str())
    lanes: dict[str, Any] = {}
    lanes |= {"first": Lane(lanes), "failing": SimpleNamespace(place=("topic", 0))}
    serving.session = SimpleNamespace(lanes=lanes, closing=False)
    serving._renewal = SimpleNamespace(age=Age.FRESH)
    serving._failure = serving._refused = None
    serving._pausing = serving._behind = serving.shut = serving.closed = False
    serving._destinations = SimpleNamespace(gone={})
    message = SimpleNamespace(topic=lambda: "topic", partition=lambda: 0)
    serving._on_failure(KafkaError(KafkaError._MSG_TIMED_OUT), message)
    assert "topic/0" in str(serving._failure)
    assert serving._refused == "failing"
    lanes["first"] = SimpleNamespace(place=("topic", 0))
    serving._on_failure(KafkaError(KafkaError._MSG_TIMED_OUT), message)
    assert serving._refused == "failing", "what fails behind it fails because of it"
