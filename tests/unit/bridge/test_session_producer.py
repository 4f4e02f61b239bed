"""An undelivered record is never forgotten."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from confluent_kafka import KafkaError

from konverse.bridge.client.session_ids import SessionRenewal
from konverse.bridge.client.session_producer import SessionProducer
from tests.unit.bridge.test_sending_close import Destinations, Ids, Producer


class Lane:
    """During its inspection, another thread begins a dialog."""

    next = 0

    def __init__(self, lanes: dict[str, Any]) -> None:
        self._lanes = lanes

    @property
    def place(self) -> tuple[str, int]:
        self._lanes["new"] = lane("another", 1)
        return ("another", 0)


def lane(topic: str, partition: int) -> Any:
    return SimpleNamespace(place=(topic, partition), next=0)


def test_a_failure_counts_although_another_thread_begins_a_dialog_meanwhile() -> None:
    kafka: Any = SimpleNamespace(
        words=lambda error, _need: error.str(), health="", data_producer=lambda **_: Producer(), settings=None
    )
    follow: Any = None
    there: Any = Destinations()
    renewing = SessionRenewal(Ids(), follow)
    producer: Any = SessionProducer(kafka, renewing, there)
    lanes: Any = renewing.session.lanes
    message = SimpleNamespace(topic=lambda: "topic", partition=lambda: 0)
    with producer._serving:  # so that the background thread does not begin again
        lanes |= {"first": Lane(lanes), "failing": lane("topic", 0)}
        producer._on_failure(KafkaError(KafkaError._MSG_TIMED_OUT), message)
        assert "topic/0" in str(producer._failure)
        assert producer._refused == "failing"
        lanes["first"] = lane("topic", 0)
        producer._on_failure(KafkaError(KafkaError._MSG_TIMED_OUT), message)
        assert producer._refused == "failing", "what fails behind it fails because of it"
        lanes.clear()
    producer.stop()
