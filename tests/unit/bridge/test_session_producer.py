"""An undelivered record is never forgotten."""

from __future__ import annotations

import threading
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


class NoisyProducer(Producer):
    """Holds one record, and three reports that Kafka cannot be reached; two more arrive during the first poll."""

    def __init__(self) -> None:
        super().__init__()
        self.reports = 3
        self.later = 2

    def __len__(self) -> int:
        return 1 + self.reports

    def poll(self, _wait_s: float) -> int:  # type: ignore[override]
        served, self.reports, self.later = self.reports, self.later, 0
        return served


def started(parts: Any) -> tuple[Any, SessionRenewal]:
    """The driver of a new session, with these parts of a Kafka."""
    kafka: Any = SimpleNamespace(
        words=lambda error, _need: error.str(), health="", settings=SimpleNamespace(database="shop"), **vars(parts)
    )
    follow: Any = None
    there: Any = Destinations()
    renewing = SessionRenewal(Ids(), follow)
    return SessionProducer(kafka, renewing, there), renewing


def test_reports_that_kafka_is_away_are_not_taken_for_records_that_it_accepts() -> None:
    """Else `flush` would not say that Kafka is away, as records seem to go out while it serves the reports."""
    producer, _ = started(SimpleNamespace(data_producer=lambda **_: Producer()))
    producer.stop()  # so that no other thread polls
    producer._client = NoisyProducer()
    mark = producer.mark()
    assert mark.records == 1
    assert not producer.moved_since(mark)


def test_a_failure_counts_although_another_thread_begins_a_dialog_meanwhile() -> None:
    producer, renewing = started(SimpleNamespace(data_producer=lambda **_: Producer()))
    lanes: Any = renewing.session.lanes
    message = SimpleNamespace(topic=lambda: "topic", partition=lambda: 0)
    with (turn := threading.Lock()):  # so that the background thread does not begin again
        producer._serving.take(turn)
        lanes |= {"first": Lane(lanes), "failing": lane("topic", 0)}
        producer._on_failure(KafkaError(KafkaError._MSG_TIMED_OUT), message)
        assert "topic/0" in str(producer._failure)
        assert producer._refused == "failing"
        lanes["first"] = lane("topic", 0)
        producer._on_failure(KafkaError(KafkaError._MSG_TIMED_OUT), message)
        assert producer._refused == "failing", "what fails behind it fails because of it"
        lanes.clear()
    producer.stop()
