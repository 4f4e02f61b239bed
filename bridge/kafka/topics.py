"""Creating topics and checking those that exist: a queue on a topic with the wrong settings would lose messages."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final, TypeVar
from uuid import UUID, uuid4

from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import ConfigResource, NewTopic, OffsetSpec, ResourceType, TopicDescription

from konverse.schemas.catalog.objects import Queue
from konverse.schemas.errors import AccessDenied, InvalidSettings, KafkaUnavailable, TopicMismatch
from konverse.schemas.identifiers import NATIVE_SUBSCRIPTION, escape, journal_topic, snapshot_topic

from .clients import Kafka
from .misfits import BYTES_MIN, misfits
from .refusals import Need, access_denied, is_refusal, principal_of

Answer = TypeVar("Answer")

_KEPT: Final = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}

DATA_CONFIG: Final = dict(_KEPT)
"""What a data topic is created with."""

JOURNAL_CONFIG: Final = {
    **_KEPT,
    "message.timestamp.type": "LogAppendTime",
    "max.message.bytes": BYTES_MIN,
}

SESSION_TIMEOUT_S: Final = 45.0
"""Kafka's default of `group.consumer.session.timeout.ms`, and librdkafka's of `session.timeout.ms`."""

_VISIBLE_WITHIN_S: Final = 15.0
_END: Final[OffsetSpec] = OffsetSpec.latest()  # type: ignore[no-untyped-call]


def topics_of(topic: str, subscription: str = NATIVE_SUBSCRIPTION) -> dict[str, dict[str, str]]:
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

    def ensure(self, name: str, partitions: int, config: dict[str, str], *, may_grow: bool = False) -> bool:
        """Create the topic (True), or check that the one which exists has these settings (TopicMismatch)."""
        topic = NewTopic(name, partitions, replication_factor=self._kafka.settings.replication_factor, config=config)
        try:
            self._kafka.admin.create_topics([topic], operation_timeout=10)[name].result()
        except KafkaException as error:
            if error.args[0].code() == KafkaError.INVALID_REPLICATION_FACTOR:
                raise InvalidSettings(
                    f"setting 'replication_factor': {error.args[0].str()}. Start the brokers that are missing, or give "
                    "fewer replicas"
                ) from None
            if is_refusal(error.args[0]):
                self._check_there(name)
            elif error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise self._unavailable(f"topic {name} cannot be created", error, "CREATE", name) from None
            self._wait_until_visible(name)
            self.check(name, partitions, config, may_grow=may_grow)
            return False
        self._wait_until_visible(name)
        return True

    def make_queue(self, name: str, topic: str, partitions: int, keep_ms: int) -> Queue:
        """A new queue, with topics that are created, or fit and have never held anything (TopicMismatch)."""
        found = [each for each, config in topics_of(topic).items() if not self.ensure(each, partitions, config)]
        self._check_unused(name, found, partitions)
        ids = self.topic_id(topic), self.topic_id(journal_topic(topic))
        return Queue(name, topic, NATIVE_SUBSCRIPTION, partitions, uuid4().bytes, *ids, keep_ms)

    def _check_unused(self, queue: str, names: list[str], partitions: int) -> None:
        """Raise TopicMismatch when one of these topics has held records: another queue's senders may still write there.

        What they send would be acknowledged and never received.
        """
        places = [TopicPartition(name, number) for name in names for number in range(partitions)]
        ends = self._kafka.admin.list_offsets(dict.fromkeys(places, _END)) if places else {}
        for place, answer in ends.items():
            try:
                end = answer.result().offset
            except KafkaException as error:
                what = f"the end of {place.topic}/{place.partition} cannot be read"
                raise self._unavailable(what, error, "DESCRIBE", place.topic) from None
            if end:
                raise TopicMismatch(
                    f"topic {place.topic} holds records of another queue, which the catalog does not have (any more): "
                    f"a new queue would receive nothing of them. If {queue!r} was dropped, drop_queue({queue!r}) "
                    "deletes what is left of it. If the catalog was lost, restore it from a backup; or give up what "
                    f"the topic holds: kafka-topics --delete --topic {place.topic}"
                )

    def journals_without(self, name: str, instance: str) -> list[str]:
        """Journals of queues of an instance that lacks the topic of this name; none when it has that topic."""
        topics = self._names()
        if name in topics:
            return []
        self._check_visible(name)
        end = f".{escape(NATIVE_SUBSCRIPTION)}.journal"
        return sorted(one for one in topics if one.startswith(f"{escape(instance)}.") and one.endswith(end))

    def _names(self) -> set[str]:
        try:
            return {*self._kafka.admin.list_topics(timeout=self._kafka.settings.connect_timeout_s).topics}
        except KafkaException as error:
            raise self._kafka.unavailable("topics cannot be listed", error, Need.topic("DESCRIBE", "*")) from None

    def remain(self, queue: Queue) -> bool:
        """Whether some topics of a queue that was dropped are still there, and nobody has made them again since."""
        ids = {
            queue.topic: queue.data_topic_id,
            journal_topic(queue.topic, queue.subscription): queue.journal_topic_id,
        }
        there = [name for name in topics_of(queue.topic, queue.subscription) if self.partitions(name) is not None]
        return bool(there) and all(self.topic_id(name) == ids[name] for name in there if name in ids)

    def delete(self, queue: Queue) -> None:
        """Delete the topics of a queue that was dropped, as far as they are there."""
        for name, gone in self._kafka.admin.delete_topics([*topics_of(queue.topic, queue.subscription)]).items():
            try:
                gone.result()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    what = f"topic {name} of a queue that was dropped cannot be deleted"
                    raise self._unavailable(what, error, "DELETE", name) from None
            if not _soon(lambda name=name: self._leaders(name) is None):  # type: ignore[misc]
                raise TopicMismatch(f"topic {name} was deleted and is still served after {_VISIBLE_WITHIN_S} s")

    def check_queue(self, queue: Queue) -> None:
        """Raise TopicMismatch unless the topics of the queue fit and are those that the catalog means.

        Partitions that were added to a topic do not matter: nobody writes to them or reads them.
        """
        for each, config in topics_of(queue.topic, queue.subscription).items():
            self.check(each, queue.partitions, config, may_grow=True)
        self.same_queue(queue)

    def check(self, name: str, partitions: int, config: Mapping[str, str], *, may_grow: bool = False) -> None:
        """Raise TopicMismatch, with what is wrong and the command that mends it, unless the topic fits."""
        found = self.partitions(name)
        if found is None:
            raise TopicMismatch(f"topic {name} does not exist; create it with {partitions} partitions and {config}")
        if found < partitions or (found > partitions and not may_grow):
            raise TopicMismatch(
                f"topic {name} has {found} partitions, not {partitions}; partitions are fixed when a queue is created"
            )
        for problem in misfits(name, self.config(name), config, self._replicas(name)):
            raise TopicMismatch(problem)

    def config(self, name: str) -> dict[str, str]:
        """The settings of a topic. Raises KafkaUnavailable."""
        resource = ConfigResource(ResourceType.TOPIC, name)
        try:
            found = _answer(lambda: self._kafka.admin.describe_configs([resource])[resource])
        except KafkaException as error:
            what = f"the settings of topic {name} cannot be read"
            raise self._unavailable(what, error, "DESCRIBE_CONFIGS", name) from None
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

    def _replicas(self, name: str) -> int:
        """How many replicas the partition with the fewest has."""
        return replicas_of(self._described(name))

    def _leaders(self, name: str) -> list[int] | None:
        """The leader of each partition, -1 for none at present; None when the topic does not exist."""
        try:
            metadata = self._kafka.admin.list_topics(timeout=self._kafka.settings.connect_timeout_s)
        except KafkaException as error:
            raise self._unavailable("topics cannot be listed", error, "DESCRIBE", name) from None
        topic = metadata.topics.get(name)
        if topic is None:
            self._check_visible(name)
        if topic is None or topic.error is not None:
            return None
        return [partition.leader for partition in topic.partitions.values()]

    def _check_visible(self, name: str) -> None:
        """A list of all topics leaves out those that this process may not see: raise AccessDenied for such a one."""
        with suppress(TopicMismatch):
            self._described(name)

    def _check_there(self, name: str) -> None:
        """Raise AccessDenied for a topic that this process may not create, unless it is there."""
        principal = principal_of(self._kafka.settings.client)
        try:
            there = self.partitions(name) is not None
        except AccessDenied:
            there = False
        if not there:
            raise access_denied(
                f"topic {name} does not exist, or this process may not see it: Kafka refuses {principal} DESCRIBE on "
                f"topic {name}, and CREATE. If it exists, grant DESCRIBE on topic {name} to {principal}, which READ "
                f"and WRITE hold too; else have an administrator create it, or grant CREATE on topic {name} to "
                f"{principal}",
                principal,
                Need.topic("DESCRIBE", name),
            )

    def _unavailable(self, what: str, error: KafkaException, operation: str, name: str) -> KafkaUnavailable:
        return self._kafka.unavailable(what, error, Need.topic(operation, name))

    def topic_id(self, name: str) -> bytes:
        """Kafka's own id of the topic, 16 bytes: tells a topic from its namesake of yesterday."""
        return id_of(self._described(name))

    def _described(self, name: str) -> TopicDescription:
        timeout_s = self._kafka.settings.connect_timeout_s
        try:
            topics = TopicCollection([name])
            found: TopicDescription = _answer(
                lambda: self._kafka.admin.describe_topics(topics, request_timeout=timeout_s)[name]
            )
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise self._unavailable(f"topic {name} cannot be described", error, "DESCRIBE", name) from None
            raise TopicMismatch(f"topic {name} does not exist any more; restore it from a backup") from None
        return found

    def same(self, name: str, identifier: bytes) -> None:
        """Raise TopicMismatch when the topic is not the one that the catalog means."""
        if self.topic_id(name) != identifier:
            raise made_again(name)

    def same_queue(self, queue: Queue) -> None:
        """Raise TopicMismatch when a topic of the queue is not the one that the catalog means, or is not there."""
        self.same(queue.topic, queue.data_topic_id)
        self.same(journal_topic(queue.topic, queue.subscription), queue.journal_topic_id)
        self.topic_id(snapshot_topic(queue.topic, queue.subscription))

    def _wait_until_visible(self, name: str) -> None:
        """Creation is asynchronous: return when the broker that we ask knows the topic and all leaders."""
        if not _soon(lambda: min(self._leaders(name) or [-1]) >= 0):
            raise TopicMismatch(f"topic {name} was created and is still not served after {_VISIBLE_WITHIN_S} s")


def _answer(ask: Callable[[], Future[Answer]]) -> Answer:
    """What Kafka answers.

    The client drops what it has asked when it exchanges the connection that it began with for one to the same broker
    by its number: that is asked once more.
    """
    try:
        return ask().result()
    except KafkaException as error:
        if error.args[0].code() != KafkaError._DESTROY_BROKER:  # noqa: SLF001  # a public code in all but name
            raise
        return ask().result()


def _soon(condition: Callable[[], bool]) -> bool:
    """Wait until the broker that we ask has heard of a change; False when it takes too long."""
    deadline = time.monotonic() + _VISIBLE_WITHIN_S
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def replicas_of(described: TopicDescription) -> int:
    """How many replicas the partition with the fewest has."""
    return min((len(partition.replicas) for partition in described.partitions), default=0)


def id_of(described: TopicDescription) -> bytes:
    """Kafka's own id of a topic, 16 bytes."""
    identifier: Any = described.topic_id  # the client's types leave its methods out
    mask = (1 << 64) - 1
    high, low = identifier.get_most_significant_bits() & mask, identifier.get_least_significant_bits() & mask
    return UUID(int=int(high) << 64 | int(low)).bytes


def made_again(name: str) -> TopicMismatch:
    """The error for a topic that another one of its name has taken the place of."""
    return TopicMismatch(
        f"topic {name} was deleted and created again since the queue was created: what it held is gone. "
        "Restore it from a backup, or go on with a queue of another name; drop_queue with force=True frees this one"
    )
