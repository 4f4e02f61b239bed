"""A client that has lost its brokers for good is replaced; one that waits for an absent Kafka is not.

librdkafka forgets all brokers when a response lists none, and does not always return to its bootstrap addresses.
"""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from konverse.bridge.client import session_producer
from konverse.bridge.kafka import clients, topic_watch
from konverse.bridge.kafka.clients import DesertionWatch, Kafka
from konverse.bridge.kafka.topic_watch import TopicWatch
from konverse.bridge.owner.journal import JournalAppender
from konverse.bridge.runtime.settings import Settings
from konverse.dialog.owner.events import Append, Appended
from konverse.schemas.catalog.objects import Queue
from tests.kit import until
from tests.kit.builders import identifier
from tests.unit.bridge.test_sending_close import Producer
from tests.unit.bridge.test_session_producer import started

QUEUE = Queue("Orders", "orders", "queue", 1, identifier("queue"), identifier("data"), identifier("journal"))


class Client:
    """Answers with `answer`, or raises it."""

    def __init__(self, answer: object) -> None:
        self.answer = answer
        self.asked = 0

    def list_topics(self, _topic: str | None = None, *, timeout: float) -> object:
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


class Probes:
    """A Kafka whose probes of clients end when the test allows it."""

    def __init__(self, *, deserted: bool) -> None:
        self.asked: list[Any] = []
        self.answers = threading.Event()
        self._deserted = deserted

    def is_deserted(self, client: Any, topic: str) -> bool:
        assert topic == "orders"
        self.asked.append(client)
        assert self.answers.wait(30)
        return self._deserted


def watched(probes: Any, monkeypatch: pytest.MonkeyPatch, quiet_s: float = 0.0) -> DesertionWatch:
    monkeypatch.setattr(clients, "QUIET_S", quiet_s)
    return DesertionWatch(probes)


def test_a_quiet_client_is_asked_while_its_user_goes_on_and_found_deserted_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client: Any = object()
    watch = watched(probes := Probes(deserted=True), monkeypatch)
    assert not watch.finds(client, "orders")
    until(lambda: probes.asked == [client], 60.0)
    assert not watch.finds(client, "orders"), "the answer is not waited for"
    monkeypatch.setattr(clients, "QUIET_S", 60.0)
    probes.answers.set()
    watch.wait()
    assert [watch.finds(client, "orders") for _ in range(2)] == [True, False]
    assert probes.asked == [client]


def test_the_answer_about_a_client_does_not_concern_the_one_that_replaced_it(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = watched(probes := Probes(deserted=True), monkeypatch)
    former, client = object(), object()
    assert not watch.finds(former, "orders")  # type: ignore[arg-type]
    probes.answers.set()
    watch.wait()
    assert not watch.finds(client, "orders")  # type: ignore[arg-type]


def test_a_client_that_brings_records_is_not_asked_and_one_that_brings_events_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Clients without a broker report lost connections."""
    client: Any = object()
    record, event = (SimpleNamespace(error=lambda error=error: error) for error in (None, "a connection was lost"))
    watch = watched(probes := Probes(deserted=False), monkeypatch)
    probes.answers.set()
    monkeypatch.setattr(clients, "QUIET_S", 60.0)
    watch.brought([event, record])  # type: ignore[list-item]
    assert not watch.finds(client, "orders")
    watch.wait()
    assert probes.asked == []
    watch = watched(probes, monkeypatch)
    monkeypatch.setattr(clients, "QUIET_S", 60.0)
    watch.brought([event])  # type: ignore[list-item]
    assert not watch.finds(client, "orders")
    watch.wait()
    assert probes.asked == [client]


class Deserted:
    """A Kafka whose first producer of journals reaches no broker, so that its records time out."""

    def __init__(self) -> None:
        self.settings = SimpleNamespace(append_timeout_s=15.0)
        self.made = 0
        self.waiting: deque[Any] = deque()

    def journal_producer(self) -> Deserted:
        self.made += 1
        return self

    def words(self, error: Any, _need: object) -> str:
        return str(error.str())

    def produce(self, _topic: str, _body: bytes, _key: None, _partition: int, report: Any, *_: Any) -> None:
        self.waiting.append(report)

    def poll(self, _wait_s: float) -> int:
        if self.waiting:
            error = KafkaError(KafkaError._MSG_TIMED_OUT) if self.made == 1 else None
            self.waiting.popleft()(error, SimpleNamespace(offset=lambda: 7, timestamp=lambda: (1, 0)))
        return 0

    def purge(self) -> None: ...

    def flush(self, _wait_s: float) -> int:
        return 0

    def __len__(self) -> int:
        return len(self.waiting)


def test_a_journal_producer_whose_records_time_out_is_replaced_once_nothing_is_in_flight() -> None:
    kafka: Any = Deserted()
    owners: list[Any] = [
        SimpleNamespace(
            staging=SimpleNamespace(overtaken=[]),
            identity=SimpleNamespace(partition=number),
            counters=SimpleNamespace(commit_waits_ms=[]),
        )
        for number in range(2)
    ]
    one, other = owners
    appending = JournalAppender(kafka, "journal")
    for owner in (one, other):
        appending.append(owner, Append([b"record"]))
    assert list(appending.poll(0)) == [(one, Appended(None))]
    appending.append(one, Append([b"claim"]))
    assert kafka.made == 1, "the other append may still succeed"
    appending.poll(0)
    appending.poll(0).clear()
    appending.append(one, Append([b"claim"]))
    assert kafka.made == 2
    assert list(appending.poll(0)) == [(one, Appended(7))]


def test_an_admin_client_that_stays_silent_is_replaced_and_the_new_one_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing else may look for brokers, for instance in a process that only transmits."""

    class Admin:
        def __init__(self) -> None:
            self.asked = 0

        def describe_topics(self, topics: Any) -> dict[str, Future[Any]]:
            self.asked += 1
            return {name: Future() for name in topics.topic_names}

        def describe_configs(self, resources: Any) -> dict[Any, Future[Any]]:
            return {resource: Future() for resource in resources}

    kafka: Any = SimpleNamespace(admin=(deserted := Admin()), settings=SimpleNamespace(bootstrap="nowhere:9092"))

    def metadata(_timeout_s: float) -> None:
        kafka.admin = fresh
        raise failing(KafkaError._TRANSPORT)

    fresh, kafka.metadata = Admin(), metadata
    monkeypatch.setattr(topic_watch, "WATCH_EVERY_S", 0.0)
    monkeypatch.setattr(topic_watch, "LOOK_AFTER_S", 0.0)
    watch = TopicWatch(kafka, QUEUE)
    watch.poll()
    assert (deserted.asked, fresh.asked) == (1, 0)

    def is_asked() -> bool:
        watch.poll()
        return fresh.asked == 1

    until(is_asked, 60.0)
