"""A client that has lost its brokers for good is replaced; one that waits for an absent Kafka is not.

librdkafka forgets all brokers when a response lists none, and does not always return to its bootstrap addresses.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from konverse.bridge.client import session_producer
from konverse.bridge.kafka import clients
from konverse.bridge.kafka.clients import Kafka
from konverse.bridge.runtime.settings import Settings
from tests.kit import until
from tests.unit.bridge.test_sending_close import Producer
from tests.unit.bridge.test_session_producer import started


class Client:
    """Answers with `answer`, or raises it."""

    def __init__(self, answer: object) -> None:
        self.answer = answer
        self.asked = 0

    def list_topics(self, *, timeout: float) -> object:
        assert timeout > 0
        self.asked += 1
        if isinstance(self.answer, KafkaException):
            raise self.answer
        return self.answer


def failing(code: int) -> KafkaException:
    return KafkaException(KafkaError(code))


def kafka_with(monkeypatch: pytest.MonkeyPatch, *admins: Client) -> Any:
    """A Kafka whose admin clients are these, one after the other."""
    made = iter(admins)
    monkeypatch.setattr(clients, "_made", lambda *_: next(made))
    return Kafka(Settings.load(kafka="kafka://nowhere:9092", redis=None))


def test_an_admin_client_without_a_broker_is_replaced_and_kept_until_its_requests_have_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    deserted, fresh = Client(failing(KafkaError._TRANSPORT)), Client("metadata")
    kafka = kafka_with(monkeypatch, deserted, fresh)
    assert kafka.admin is deserted
    assert kafka.metadata() == "metadata"
    assert (kafka.admin, deserted.asked) == (fresh, 1)
    assert kafka._former_admin is deserted, "it would cancel its requests"
    fresh.answer = failing(KafkaError._TRANSPORT)
    with pytest.raises(KafkaException):
        kafka.metadata(0.2)
    assert kafka.admin is fresh, "it was replaced just now"


@pytest.mark.parametrize("code", [KafkaError._TIMED_OUT, KafkaError.CLUSTER_AUTHORIZATION_FAILED])
def test_an_admin_client_with_a_broker_is_not_replaced(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    kafka = kafka_with(monkeypatch, slow := Client(failing(code)))
    with pytest.raises(KafkaException):
        kafka.metadata(0.2)
    assert kafka.admin is slow


@pytest.mark.parametrize(
    ("client", "admin", "deserted"),
    [
        ("metadata", "metadata", False),
        (failing(KafkaError._TIMED_OUT), "metadata", False),
        (failing(KafkaError._TRANSPORT), "metadata", True),
        (failing(KafkaError._TRANSPORT), failing(KafkaError._TIMED_OUT), False),
    ],
)
def test_a_client_is_deserted_when_it_alone_has_no_broker(
    monkeypatch: pytest.MonkeyPatch, client: object, admin: object, *, deserted: bool
) -> None:
    monkeypatch.setattr(clients, "PROBE_S", 0.1)
    kafka = kafka_with(monkeypatch, Client(admin))
    assert kafka.is_deserted(Client(client)) is deserted


@pytest.mark.parametrize("deserted", [True, False])
def test_the_producer_of_a_session_is_replaced_only_when_it_is_deserted(
    monkeypatch: pytest.MonkeyPatch, *, deserted: bool
) -> None:
    class Stuck(Producer):
        def __len__(self) -> int:
            return 1

    made: list[Any] = []

    def new(**_: Any) -> Any:
        made.append(Producer() if made else Stuck())
        return made[-1]

    asked: list[Any] = []

    def is_deserted(client: Any) -> bool:
        asked.append(client)
        return deserted

    monkeypatch.setattr(session_producer, "DESERTED_AFTER_S", 0.05)
    monkeypatch.setattr(session_producer, "RETRY_S", 0.01)
    producer, _ = started(SimpleNamespace(data_producer=new, is_deserted=is_deserted))
    if deserted:
        until(lambda: len(made) == 2)
        assert asked == made[:1]
    else:
        until(lambda: len(asked) >= 2)
        assert len(made) == 1
    producer.stop()
