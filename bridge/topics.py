"""Creating topics and checking those that exist: a queue on a topic with the wrong settings would lose messages."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final
from uuid import UUID, uuid4

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import ConfigResource, NewTopic, ResourceType, TopicDescription

from konverse.schemas.catalog import Queue
from konverse.schemas.errors import InvalidSettings, KafkaUnavailable, TopicMismatch
from konverse.schemas.identifiers import NATIVE_SUBSCRIPTION, journal_topic, snapshot_topic

from .kafka import Kafka, unavailable

_KEPT: Final = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}

DATA_CONFIG: Final = dict(_KEPT)
JOURNAL_CONFIG: Final = {
    **_KEPT,
    "message.timestamp.type": "LogAppendTime",
    "max.message.bytes": "1000000",  # the client's own default for what it sends; Kafka's is a little larger
}

WATCH_EVERY_S: Final = 3.0

SESSION_TIMEOUT_S: Final = 45.0
"""Kafka's default of `group.consumer.session.timeout.ms`, and librdkafka's of `session.timeout.ms`."""

_VISIBLE_WITHIN_S: Final = 15.0

_NOT_AUTHORIZED: Final = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED)


def _topics_of(topic: str, subscription: str = NATIVE_SUBSCRIPTION) -> dict[str, dict[str, str]]:
    """All topics of a queue, and what each needs."""
    return {
        topic: DATA_CONFIG,
        journal_topic(topic, subscription): JOURNAL_CONFIG,
        snapshot_topic(topic, subscription): JOURNAL_CONFIG,
    }


class Topics:
    """Topics of one cluster."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka

    def ensure(self, name: str, partitions: int, config: dict[str, str]) -> None:
        """Create the topic, or check that the one which exists has these settings (TopicMismatch)."""
        topic = NewTopic(name, partitions, replication_factor=self._kafka.settings.replication_factor, config=config)
        try:
            self._kafka.admin.create_topics([topic], operation_timeout=10)[name].result()
        except KafkaException as error:
            if error.args[0].code() == KafkaError.INVALID_REPLICATION_FACTOR:
                raise InvalidSettings(f"setting 'replication_factor': {error.args[0].str()}") from None
            if error.args[0].code() in _NOT_AUTHORIZED:
                if self.partitions(name) is None:
                    raise KafkaUnavailable(
                        f"topic {name} does not exist, or this process may not see it, and it may not create it. If it "
                        f"exists, grant DESCRIBE on topic {name} to the principal of this process; else have an "
                        f"administrator create it, or grant CREATE on topic {name}"
                    ) from None
            elif error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise unavailable(f"topic {name} cannot be created", error) from None
            self._wait_until_visible(name)
            self.check(name, partitions, config)
        else:
            self._wait_until_visible(name)

    def make_queue(self, name: str, topic: str, partitions: int, keep_ms: int) -> Queue:
        """A new queue, with topics that are created or fit (TopicMismatch)."""
        for each, config in _topics_of(topic).items():
            self.ensure(each, partitions, config)
        ids = self.topic_id(topic), self.topic_id(journal_topic(topic))
        return Queue(name, topic, NATIVE_SUBSCRIPTION, partitions, uuid4().bytes, *ids, keep_ms)

    def remain(self, queue: Queue) -> bool:
        """Whether some topics of a queue that was dropped are still there, and nobody has made them again since."""
        ids = {
            queue.topic: queue.data_topic_id,
            journal_topic(queue.topic, queue.subscription): queue.journal_topic_id,
        }
        there = [name for name in _topics_of(queue.topic, queue.subscription) if self.partitions(name) is not None]
        return bool(there) and all(self.topic_id(name) == ids[name] for name in there if name in ids)

    def delete(self, queue: Queue) -> None:
        """Delete the topics of a queue that was dropped, as far as they are there."""
        for name, gone in self._kafka.admin.delete_topics([*_topics_of(queue.topic, queue.subscription)]).items():
            try:
                gone.result()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise unavailable(f"topic {name} of a queue that was dropped cannot be deleted", error) from None
            if not _soon(lambda name=name: self._leaders(name) is None):  # type: ignore[misc]
                raise TopicMismatch(f"topic {name} was deleted and is still served after {_VISIBLE_WITHIN_S} s")

    def check_queue(self, queue: Queue) -> None:
        """Raise TopicMismatch unless the topics of the queue fit and are those that the catalog means."""
        for each, config in _topics_of(queue.topic, queue.subscription).items():
            self.check(each, queue.partitions, config)
        self.same_queue(queue)

    def check(self, name: str, partitions: int, config: dict[str, str]) -> None:
        """Raise TopicMismatch, with what is wrong and the command that mends it, unless the topic fits."""
        found = self.partitions(name)
        if found is None:
            raise TopicMismatch(f"topic {name} does not exist; create it with {partitions} partitions and {config}")
        if found != partitions:
            raise TopicMismatch(
                f"topic {name} has {found} partitions, not {partitions}; partitions are fixed when a queue is created"
            )
        actual = self.config(name)
        for key, wanted in config.items():
            value = actual[key]
            fits = int(value) >= int(wanted) if key == "max.message.bytes" else value == wanted
            if not fits:
                raise TopicMismatch(
                    f"topic {name} has {key}={value}; konverse needs {wanted}. "
                    f"Change it with: kafka-configs --alter --topic {name} --add-config {key}={wanted}"
                )

    def config(self, name: str) -> dict[str, str]:
        """The settings of a topic. Raises KafkaUnavailable."""
        resource = ConfigResource(ResourceType.TOPIC, name)
        try:
            found = self._kafka.admin.describe_configs([resource])[resource].result()
        except KafkaException as error:
            if error.args[0].code() in _NOT_AUTHORIZED:
                raise KafkaUnavailable(
                    f"the settings of topic {name} cannot be read: grant DESCRIBE_CONFIGS on topic {name} to the "
                    "principal of this process"
                ) from None
            raise unavailable(f"the settings of topic {name} cannot be read", error) from None
        return {key: str(entry.value) for key, entry in found.items()}

    def session_timeout_s(self) -> float:
        """After so long Kafka takes a silent member of a consumer group for dead; its default where it does not say.

        The brokers decide that, save in the classic protocol, where each member does.
        """
        settings, admin = self._kafka.settings, self._kafka.admin
        if settings.group_protocol == "classic":
            own = settings.client.get("session.timeout.ms")
            return SESSION_TIMEOUT_S if own is None else int(own) / 1000
        try:
            broker = min(admin.list_topics(timeout=settings.connect_timeout_s).brokers)
            resource = ConfigResource(ResourceType.BROKER, str(broker))
            found = admin.describe_configs([resource])[resource].result()
            return int(str(found["group.consumer.session.timeout.ms"].value)) / 1000
        except (KafkaException, KeyError, ValueError):  # who may not read it, or an older broker
            return SESSION_TIMEOUT_S

    def partitions(self, name: str) -> int | None:
        """Number of partitions; None when the topic does not exist."""
        leaders = self._leaders(name)
        return None if leaders is None else len(leaders)

    def _leaders(self, name: str) -> list[int] | None:
        """The leader of each partition, -1 for none at present; None when the topic does not exist."""
        try:
            metadata = self._kafka.admin.list_topics(timeout=self._kafka.settings.connect_timeout_s)
        except KafkaException as error:
            raise unavailable("topics cannot be listed", error) from None
        topic = metadata.topics.get(name)
        if topic is None or topic.error is not None:
            return None
        return [partition.leader for partition in topic.partitions.values()]

    def topic_id(self, name: str) -> bytes:
        """Kafka's own id of the topic, 16 bytes: tells a topic from its namesake of yesterday."""
        timeout_s = self._kafka.settings.connect_timeout_s
        try:
            asked = self._kafka.admin.describe_topics(TopicCollection([name]), request_timeout=timeout_s)
            described = asked[name].result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise unavailable(f"topic {name} cannot be described", error) from None
            raise TopicMismatch(f"topic {name} does not exist any more; restore it from a backup") from None
        return _id_of(described)

    def same(self, name: str, identifier: bytes) -> None:
        """Raise TopicMismatch when the topic is not the one that the catalog means."""
        if self.topic_id(name) != identifier:
            raise _made_again(name)

    def same_queue(self, queue: Queue) -> None:
        """Raise TopicMismatch when a topic of the queue is not the one that the catalog means."""
        self.same(queue.topic, queue.data_topic_id)
        self.same(journal_topic(queue.topic, queue.subscription), queue.journal_topic_id)

    def _wait_until_visible(self, name: str) -> None:
        """Creation is asynchronous: return when the broker that we ask knows the topic and all leaders."""
        if not _soon(lambda: min(self._leaders(name) or [-1]) >= 0):
            raise TopicMismatch(f"topic {name} was created and is still not served after {_VISIBLE_WITHIN_S} s")


def _soon(condition: Callable[[], bool]) -> bool:
    """Wait until the broker that we ask has heard of a change; False when it takes too long."""
    deadline = time.monotonic() + _VISIBLE_WITHIN_S
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


class TopicWatch:
    """Asks now and then, without waiting for the answer, whether a queue's topics are still what the catalog means."""

    def __init__(self, kafka: Kafka, queue: Queue) -> None:
        self._admin = kafka.admin
        self._identifiers = {
            queue.topic: queue.data_topic_id,
            journal_topic(queue.topic, queue.subscription): queue.journal_topic_id,
        }
        self._asked: dict[str, Future[TopicDescription]] = {}
        self._ask_at = time.monotonic() + WATCH_EVERY_S
        self._missed = 0
        self._unheard_since: float | None = None

    @property
    def silent_s(self) -> float:
        """How long Kafka has left us without an answer, as of the last `look`; 0 when it owes none."""
        return time.monotonic() - self._unheard_since if self._unheard_since is not None else 0.0

    def look(self) -> None:
        """Raise TopicMismatch when a topic was made again, or has not been there twice in a row."""
        if not self._asked:
            if time.monotonic() >= self._ask_at:
                self._ask_at = time.monotonic() + WATCH_EVERY_S
                self._asked = self._admin.describe_topics(TopicCollection([*self._identifiers]))
                if self._unheard_since is None:
                    self._unheard_since = time.monotonic()
            return
        if not all(answer.done() for answer in self._asked.values()):
            return
        asked, self._asked = self._asked, {}
        if any(map(_heard, asked.values())):
            self._unheard_since = None
        missing = [name for name, answer in asked.items() if self._is_missing(name, answer)]
        self._missed = self._missed + 1 if missing else 0
        if self._missed > 1:
            raise TopicMismatch(f"topic {missing[0]} was deleted while its queue was read; restore it from a backup")

    def _is_missing(self, name: str, answer: Future[TopicDescription]) -> bool:
        try:
            described = answer.result()
        except KafkaException as error:
            return bool(error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART)  # else nobody knows
        if _id_of(described) != self._identifiers[name]:
            raise _made_again(name)
        return False


def _heard(answer: Future[TopicDescription]) -> bool:
    """Whether a broker has answered, whatever it said."""
    error = answer.exception()
    return not isinstance(error, KafkaException) or error.args[0].code() >= 0  # the client's own errors are below


def _id_of(described: TopicDescription) -> bytes:
    identifier: Any = described.topic_id  # the client's types leave its methods out
    mask = (1 << 64) - 1
    high, low = identifier.get_most_significant_bits() & mask, identifier.get_least_significant_bits() & mask
    return UUID(int=int(high) << 64 | int(low)).bytes


def _made_again(name: str) -> TopicMismatch:
    return TopicMismatch(
        f"topic {name} was deleted and created again since the queue was created: what it held is gone. "
        "Restore it from a backup, or go on with a queue of another name"
    )
