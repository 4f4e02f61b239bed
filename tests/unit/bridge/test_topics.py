"""Requests about topics while the client replaces its connection, and while brokers are fenced."""

from __future__ import annotations

from concurrent.futures import Future
from functools import partial
from itertools import chain, repeat
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import NewTopic

from konverse.bridge.kafka import topics as module
from konverse.bridge.kafka.clients import Kafka
from konverse.bridge.kafka.topics import Topics
from konverse.schemas.errors import InvalidSettings, KafkaUnavailable, TopicMismatch

DROPPED = KafkaError._DESTROY_BROKER
REPLACED = KafkaError._DESTROY
TIMED_OUT = KafkaError._TIMED_OUT
NOT_SERVED = KafkaError.NOT_LEADER_FOR_PARTITION
"""A partition that was created just now."""
UNKNOWN = KafkaError.UNKNOWN_TOPIC_OR_PART
WAIT_S = 0.2
"""`connect_timeout_s` of these tests."""


class Admin:
    """Returns the given answers one after another, the last one again and again."""

    def __init__(self, *answers: Any) -> None:
        self._answers = chain(answers, repeat(answers[-1]))
        self.refreshed = 0

    def list_topics(self, timeout: float) -> None:
        """Fresh metadata."""
        assert 0 < timeout <= WAIT_S
        self.refreshed += 1

    def _next(self) -> Future[Any]:
        return _done(next(self._answers))

    def describe_topics(self, topics: Any, request_timeout: float) -> dict[str, Future[Any]]:
        """Describe one topic."""
        assert 0 < request_timeout <= WAIT_S
        return dict.fromkeys(["orders"], self._next())

    def describe_configs(self, resources: list[Any], request_timeout: float) -> dict[Any, Future[Any]]:
        """Describe the settings of one topic."""
        assert 0 < request_timeout <= WAIT_S
        return {resources[0]: self._next()}


DESCRIBED = SimpleNamespace(
    topic_id=SimpleNamespace(get_most_significant_bits=lambda: 1, get_least_significant_bits=lambda: 2)
)
IDENTIFIER = (1).to_bytes(8) + (2).to_bytes(8)


def topics(*answers: Any) -> Topics:
    def unavailable(what: str, error: KafkaException, _need: object) -> KafkaUnavailable:
        return KafkaUnavailable(f"{what}: {error}")

    kafka: Any = SimpleNamespace(settings=SimpleNamespace(connect_timeout_s=WAIT_S), admin=Admin(*answers))
    kafka.unavailable, kafka.answer = unavailable, partial(Kafka.answer, kafka)
    kafka.metadata = kafka.admin.list_topics
    return Topics(kafka)


@pytest.mark.parametrize(
    "lost", [(DROPPED,), (TIMED_OUT,), (REPLACED,), (DROPPED, TIMED_OUT, DROPPED), (NOT_SERVED, DROPPED)]
)
def test_a_request_lost_by_the_client_is_repeated_with_fresh_metadata(lost: tuple[int, ...]) -> None:
    entry = SimpleNamespace(value="delete")
    asking = topics(*lost, {"cleanup.policy": entry})
    assert asking.config("orders") == {"cleanup.policy": "delete"}
    assert asking._kafka.admin.refreshed == len(lost)  # type: ignore[attr-defined]
    assert topics(*lost, DESCRIBED).topic_id("orders") == IDENTIFIER


@pytest.mark.parametrize("answer", [DROPPED, TIMED_OUT, KafkaError._TRANSPORT])
def test_a_topic_whose_settings_cannot_be_read_is_named_in_the_error(answer: int) -> None:
    with pytest.raises(KafkaUnavailable, match="settings of topic orders cannot be read"):
        topics(answer).config("orders")


def test_a_question_that_was_refused_is_not_asked_again() -> None:
    with pytest.raises(KafkaUnavailable, match="topic orders cannot be described"):
        topics(KafkaError.TOPIC_AUTHORIZATION_FAILED, DESCRIBED).topic_id("orders")


def test_a_topic_that_one_broker_of_the_cluster_does_not_know_yet_is_asked_for_again() -> None:
    assert topics(UNKNOWN, UNKNOWN, DESCRIBED).topic_id("orders") == IDENTIFIER
    entries = {"cleanup.policy": SimpleNamespace(value="delete")}
    assert topics(UNKNOWN, UNKNOWN, entries).config("orders") == {"cleanup.policy": "delete"}


def test_a_topic_that_no_broker_knows_in_time_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LAG_S", 0.1)
    for ask in (topics(UNKNOWN).topic_id, topics(UNKNOWN).config):
        with pytest.raises(TopicMismatch, match="topic orders does not exist any more"):
            ask("orders")


FENCED = (
    "Unable to replicate the partition 1 time(s): All brokers are currently fenced, or have all their log directories "
    "cordoned."
)
TOO_FEW = "Unable to replicate the partition 3 time(s): The target replication factor of 3 cannot be reached"


class Controller:
    """Refuses to create topics with these texts, one after another, and then creates them."""

    def __init__(self, *texts: str) -> None:
        self.texts = [*texts]

    def create_topics(self, topics: list[NewTopic], **_: Any) -> dict[str, Future[None]]:
        """Refuse or create one topic."""
        future: Future[None] = Future()
        if self.texts:
            refusal = KafkaError(KafkaError.INVALID_REPLICATION_FACTOR, self.texts.pop(0))
            future.set_exception(KafkaException(refusal))
        else:
            future.set_result(None)
        return {topics[0].topic: future}


def created(controller: Controller, monkeypatch: pytest.MonkeyPatch, timeout_s: float = 60.0) -> bool:
    """Whether `ensure` made the topic, without pauses between its attempts."""
    made = topics(None)
    made._kafka = cast(
        "Kafka",
        SimpleNamespace(
            settings=SimpleNamespace(connect_timeout_s=timeout_s, replication_factor=1),
            admin=controller,
            unavailable=lambda what, error, _need: KafkaUnavailable(f"{what}: {error}"),
        ),
    )
    monkeypatch.setattr(module, "_FENCED_AGAIN_S", 0.0)
    monkeypatch.setattr(made, "_wait_until_visible", lambda _: None)
    return made.ensure("orders", 1, {})


def test_a_topic_is_created_when_the_brokers_are_no_longer_fenced(monkeypatch: pytest.MonkeyPatch) -> None:
    controller = Controller(FENCED, FENCED)
    assert created(controller, monkeypatch)
    assert controller.texts == []


def test_brokers_that_stay_fenced_are_away_and_no_wrong_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KafkaUnavailable, match=r"topic orders cannot be created.*fenced"):
        created(Controller(*[FENCED] * 5), monkeypatch, timeout_s=-1.0)


def test_too_few_brokers_for_the_replicas_are_a_wrong_setting_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    controller = Controller(TOO_FEW, TOO_FEW)
    with pytest.raises(InvalidSettings, match="setting 'replication_factor'"):
        created(controller, monkeypatch)
    assert len(controller.texts) == 1, "asked once"


LED = SimpleNamespace(leader=SimpleNamespace(id=1))
ORDERS = ["sales.Orders", "sales.Orders.queue.journal", "sales.Orders.queue.snapshot"]


class Cluster:
    """Creates and describes topics."""

    def __init__(self, *existing: str, partitions: int = 1) -> None:
        self.requests: list[list[str]] = []
        """Names in each request to create topics."""
        self._known = {name: SimpleNamespace(**vars(DESCRIBED), partitions=[LED] * partitions) for name in existing}

    def create_topics(self, topics: list[NewTopic], **_: Any) -> dict[str, Future[None]]:
        """Create all of them."""
        self.requests.append([topic.topic for topic in topics])
        self._known.update({topic.topic: SimpleNamespace(**vars(DESCRIBED), partitions=[LED]) for topic in topics})
        return {topic.topic: _done(None) for topic in topics}

    def describe_topics(self, topics: Any, **_: Any) -> dict[str, Future[Any]]:
        """Describe them; an unknown one is an error."""
        return {name: _done(self._known.get(name, UNKNOWN)) for name in topics.topic_names}

    def topics(self) -> Topics:
        """Access to this cluster."""
        settings = SimpleNamespace(connect_timeout_s=WAIT_S, replication_factor=-1)
        kafka: Any = SimpleNamespace(settings=settings, admin=self, answer=lambda _ask, asked: asked.result())
        return Topics(kafka)


def test_the_topics_of_a_queue_are_created_by_one_request() -> None:
    cluster = Cluster()
    queue = cluster.topics().make_queue("Orders", "sales.Orders", 1, 0)
    assert cluster.requests == [ORDERS]
    assert (queue.data_topic_id, queue.journal_topic_id) == (IDENTIFIER, IDENTIFIER)


def test_beside_an_existing_topic_that_does_not_fit_none_is_created() -> None:
    cluster = Cluster(ORDERS[-1], partitions=2)
    with pytest.raises(TopicMismatch, match="snapshot has 2 partitions, not 1"):
        cluster.topics().make_queue("Orders", "sales.Orders", 1, 0)
    assert cluster.requests == []


def test_a_partition_without_a_leader_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """confluent-kafka gives such a partition no leader, although its types say that there is one."""
    monkeypatch.setattr(module, "_VISIBLE_WITHIN_S", 5.0)
    without = SimpleNamespace(**vars(DESCRIBED), partitions=[SimpleNamespace(leader=None)])
    led = SimpleNamespace(**vars(DESCRIBED), partitions=[SimpleNamespace(leader=SimpleNamespace(id=0))])
    asking = topics(UNKNOWN, without, led)
    asking._wait_until_visible(["orders"])
    assert next(asking._kafka.admin._answers) is led  # type: ignore[attr-defined]


def _done(answer: Any) -> Future[Any]:
    future: Future[Any] = Future()
    if isinstance(answer, int):
        future.set_exception(KafkaException(KafkaError(answer)))
    else:
        future.set_result(answer)
    return future
