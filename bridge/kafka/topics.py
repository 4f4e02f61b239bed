"""Creates topics and checks existing ones: a queue on a topic with wrong settings would lose messages."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from typing import Any, Final
from uuid import UUID, uuid4

from confluent_kafka import KafkaError, KafkaException, Node, TopicCollection, TopicPartition
from confluent_kafka.admin import ConfigEntry, ConfigResource, NewTopic, ResourceType, TopicDescription

from konverse.schemas.catalog.objects import Queue
from konverse.schemas.counting import counted
from konverse.schemas.errors import AccessDenied, InvalidSettings, KafkaUnavailable, TopicMismatch
from konverse.schemas.identifiers import NATIVE_SUBSCRIPTION, escape, journal_topic, snapshot_topic

from .clients import RETRY_EVERY_S, Answer, Kafka
from .offsets import log_ends
from .refusals import Need, access_denied, is_refusal, principal_of
from .topic_faults import BYTES_MIN, misfits

_KEPT: Final = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}

DATA_CONFIG: Final = dict(_KEPT)
"""Settings that a data topic needs."""

_CREATED: Final = {"message.timestamp.type": "LogAppendTime"}
"""Settings of each topic that konverse creates. With the broker's time, a sender's wrong clock cannot shift a timer or
a lifetime. An existing data topic may carry the senders' time."""

JOURNAL_CONFIG: Final = {
    **_KEPT,
    "message.timestamp.type": "LogAppendTime",
    "max.message.bytes": BYTES_MIN,
}

SESSION_TIMEOUT_S: Final = 45.0
"""Default of `group.consumer.session.timeout.ms` in Kafka, and of `session.timeout.ms` in librdkafka."""

AGAIN: Final = "was deleted and created again since the queue was created"
_MISSING: Final = "does not exist any more"

_VISIBLE_WITHIN_S: Final = 15.0
_LAG_S: Final = 2.0
"""How long a broker may not know a topic that others know. Creation reaches the brokers of a cluster one after another,
and each request may go to another broker. A topic counts as missing only after this time."""
_ALL_FENCED: Final = "All brokers are currently fenced"
"""Kafka's error text when the controller has received no heartbeat from any broker for some seconds. A cluster with too
few brokers reports the same error code."""
_FENCED_AGAIN_S: Final = 0.2


def _is_fenced(error: KafkaException) -> bool:
    return _ALL_FENCED in error.args[0].str()


def topics_of(topic: str, subscription: str = NATIVE_SUBSCRIPTION) -> dict[str, dict[str, str]]:
    """All topics of a queue, and the settings that each needs."""
    return {
        topic: DATA_CONFIG,
        journal_topic(topic, subscription): JOURNAL_CONFIG,
        snapshot_topic(topic, subscription): JOURNAL_CONFIG,
    }


def topic_ids(queue: Queue) -> dict[str, bytes]:
    """Topic -> id in the catalog, for a queue's data topic and its journal."""
    return {
        queue.topic: queue.data_topic_id,
        journal_topic(queue.topic, queue.subscription): queue.journal_topic_id,
    }


class Topics:
    """Creates, checks and deletes topics of one cluster."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka

    def ensure(self, name: str, partitions: int, config: dict[str, str], *, may_grow: bool = False) -> bool:
        """Create the topic (True), or check that the existing one fits (False). Raises TopicMismatch."""
        return not self._ensure_all({name: config}, partitions, may_grow=may_grow)

    def _ensure_all(
        self, wanted: Mapping[str, dict[str, str]], partitions: int, *, may_grow: bool = False
    ) -> list[str]:
        """Create topics with one request, each with its settings. Returns those that existed before, which fit."""
        refused = {name: error for name, error in self._create(wanted, partitions).items() if error is not None}
        for name, error in refused.items():
            self._check_existing(name, error)
        self._wait_until_visible(wanted)
        for name in refused:
            self.check(name, partitions, wanted[name], may_grow=may_grow)
        return [*refused]

    def _check_existing(self, name: str, error: KafkaException) -> None:
        """Raise unless the topic was not created because it exists."""
        reason = error.args[0]
        if reason.code() == KafkaError.INVALID_REPLICATION_FACTOR and not _is_fenced(error):
            raise InvalidSettings(
                f"setting 'replication_factor': {reason.str()}. Start the missing brokers, or configure fewer replicas"
            ) from None
        if is_refusal(reason):
            self._check_there(name)
        elif reason.code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise self._unavailable(f"topic {name} cannot be created", error, "CREATE", name) from None

    def _create(self, wanted: Mapping[str, dict[str, str]], partitions: int) -> dict[str, KafkaException | None]:
        """Ask Kafka for topics: name -> its refusal, None for a new topic.

        Tries again while all brokers are fenced, as they briefly are after a pause.
        """
        deadline = time.monotonic() + self._kafka.settings.connect_timeout_s
        replicas = self._kafka.settings.replication_factor
        answers: dict[str, KafkaException | None] = dict.fromkeys(wanted)
        again = [*wanted]
        while again:
            topics = [
                NewTopic(name, partitions, replication_factor=replicas, config={**_CREATED, **wanted[name]})
                for name in again
            ]
            for name, answer in self._kafka.admin.create_topics(topics, operation_timeout=10).items():
                try:
                    answer.result()
                except KafkaException as error:
                    answers[name] = error
                else:
                    answers[name] = None
            again = [name for name, error in answers.items() if error is not None and _is_fenced(error)]
            if not again or time.monotonic() > deadline:
                break
            time.sleep(_FENCED_AGAIN_S)
        return answers

    def make_queue(self, name: str, topic: str, partitions: int, keep_ms: int) -> Queue:
        """Make a new queue on new topics, or on existing ones that fit and have never held a record.

        Raises TopicMismatch for other topics, before it creates any if this process may see them.
        """
        wanted = topics_of(topic)
        existing = self._seen(wanted)
        for each in existing:
            self.check(each, partitions, wanted[each])
        existing += self._ensure_all({each: wanted[each] for each in wanted if each not in existing}, partitions)
        self._check_unused(name, existing, partitions)
        ids = self.topic_id(topic), self.topic_id(journal_topic(topic))
        return Queue(name, topic, NATIVE_SUBSCRIPTION, partitions, uuid4().bytes, *ids, keep_ms)

    def _seen(self, names: Collection[str]) -> list[str]:
        """The topics that exist; an empty list if this process may not see one of them.

        Creating that one tells which right is missing.
        """
        try:
            return [name for name, found in self._described_all(names).items() if found is not None]
        except AccessDenied:
            return []

    def _check_unused(self, queue: str, names: list[str], partitions: int) -> None:
        """Raise TopicMismatch when one of these topics has held records.

        Senders of another queue may still write there, and their messages would be acknowledged but never received.
        """
        places = [TopicPartition(name, number) for name in names for number in range(partitions)]
        for (topic, _partition), end in log_ends(self._kafka, places, "DESCRIBE").items():
            if end:
                raise TopicMismatch(
                    f"topic {topic} holds records of another queue, which is not in the catalog (any more): "
                    f"a new queue would receive none of them. If {queue!r} was dropped, drop_queue({queue!r}) "
                    "deletes its remains. If the catalog was lost, restore it from a backup. To discard the "
                    f"records, delete the topic: kafka-topics --delete --topic {topic}"
                )

    def journals_without(self, name: str, instance: str) -> list[str]:
        """Journals of the instance's queues when the topic `name` does not exist; an empty list when it does."""
        topics = self._names()
        if name in topics:
            return []
        self._described(name)  # raises AccessDenied: a list of all topics omits those that this process may not see
        end = f".{escape(NATIVE_SUBSCRIPTION)}.journal"
        return sorted(one for one in topics if one.startswith(f"{escape(instance)}.") and one.endswith(end))

    def _names(self) -> set[str]:
        try:
            return {*self._kafka.metadata().topics}
        except KafkaException as error:
            raise self._kafka.unavailable("topics cannot be listed", error, Need.topic("DESCRIBE", "*")) from None

    def remain(self, queue: Queue) -> bool:
        """Whether topics of a dropped queue still exist, and are the original ones."""
        ids = topic_ids(queue)
        there = [name for name in topics_of(queue.topic, queue.subscription) if self.partitions(name) is not None]
        return bool(there) and all(self.topic_id(name) == ids[name] for name in there if name in ids)

    def delete(self, queue: Queue) -> None:
        """Delete the topics of a dropped queue that still exist. Raises KafkaUnavailable, TopicMismatch."""
        for name, gone in self._kafka.admin.delete_topics([*topics_of(queue.topic, queue.subscription)]).items():
            try:
                gone.result()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    what = f"topic {name} of a dropped queue cannot be deleted"
                    raise self._unavailable(what, error, "DELETE", name) from None
            if not _soon(lambda name=name: self._described(name) is None):  # type: ignore[misc]
                raise TopicMismatch(f"topic {name} was deleted but is still served after {_VISIBLE_WITHIN_S} s")

    def check_queue(self, queue: Queue) -> None:
        """Raise TopicMismatch unless the queue's topics have fitting settings and are those recorded in the catalog.

        Partitions that were added to a topic do not matter: konverse neither writes to them nor reads them.
        """
        self.same_queue(queue)
        for each, config in topics_of(queue.topic, queue.subscription).items():
            self.check(each, queue.partitions, config, may_grow=True)

    def check(self, name: str, partitions: int, config: Mapping[str, str], *, may_grow: bool = False) -> None:
        """Raise TopicMismatch, which names the fault and the command that corrects it, unless the topic fits.

        With `may_grow`, more than `partitions` partitions are accepted.
        """
        found = _soon(lambda: self.partitions(name), _LAG_S)
        if not found:
            raise TopicMismatch(
                f"topic {name} does not exist; create it with {counted(partitions, 'partition')} and {config}"
            )
        if found < partitions or (found > partitions and not may_grow):
            raise TopicMismatch(
                f"topic {name} has {counted(found, 'partition')}, not {partitions}; partitions are fixed when a queue "
                "is created"
            )
        for problem in misfits(self._kafka.settings.bootstrap, name, self.config(name), config, self._replicas(name)):
            raise TopicMismatch(problem)

    def config(self, name: str) -> dict[str, str]:
        """The settings of a topic. Raises TopicMismatch, KafkaUnavailable."""
        found = _soon(lambda: self._described_config(name), _LAG_S)
        if found is None:
            raise TopicMismatch(f"topic {name} {_MISSING}")
        return {key: str(entry.value) for key, entry in found.items()}

    def _described_config(self, name: str) -> dict[str, ConfigEntry] | None:
        """Entries by key; None when the contacted broker does not know the topic."""
        try:
            return self._config_of(ResourceType.TOPIC, name)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return None
            what = f"the settings of topic {name} cannot be read"
            raise self._unavailable(what, error, "DESCRIBE_CONFIGS", name) from None

    def _config_of(self, kind: ResourceType, name: str) -> dict[str, ConfigEntry]:
        """Entries by key. Raises KafkaException."""
        resource = ConfigResource(kind, name)
        found: dict[str, ConfigEntry] = self._kafka.answer(
            lambda timeout_s: self._kafka.admin.describe_configs([resource], request_timeout=timeout_s)[resource]
        )
        return found

    def session_timeout_s(self) -> float | None:
        """Seconds after which a silent member of a consumer group counts as dead; None when Kafka does not say.

        The brokers set this time; in the classic group protocol each member does.
        """
        settings = self._kafka.settings
        if settings.group_protocol == "classic":
            own = settings.client.get("session.timeout.ms")
            return SESSION_TIMEOUT_S if own is None else int(own) / 1000
        try:
            broker = min(self._kafka.metadata().brokers)
            found = self._config_of(ResourceType.BROKER, str(broker))
            return int(str(found["group.consumer.session.timeout.ms"].value)) / 1000
        except (KafkaException, KeyError, ValueError):  # no right to read it, or an older broker
            return None

    def partitions(self, name: str) -> int | None:
        """Number of partitions; None when the topic does not exist."""
        found = self._described(name)
        return None if found is None else len(found.partitions)

    def _replicas(self, name: str) -> int:
        return replicas_of(self._known(name))

    def _check_there(self, name: str) -> None:
        """Raise AccessDenied unless the topic exists: this process may not create it."""
        principal = principal_of(self._kafka.settings.client)
        try:
            there = self.partitions(name) is not None
        except AccessDenied:
            there = False
        if not there:
            raise access_denied(
                f"topic {name} does not exist, or this process may not see it: Kafka refuses {principal} DESCRIBE on "
                f"topic {name}, and CREATE. If it exists, grant DESCRIBE on topic {name} to {principal} (READ and "
                f"WRITE include it); else have an administrator create it, or grant CREATE on topic {name} to "
                f"{principal}",
                principal,
                Need.topic("DESCRIBE", name),
            )

    def _unavailable(self, what: str, error: KafkaException, operation: str, name: str) -> KafkaUnavailable:
        return self._kafka.unavailable(what, error, Need.topic(operation, name))

    def topic_id(self, name: str) -> bytes:
        """Kafka's own id of the topic, 16 bytes: it differs when a topic of the same name is created again."""
        return id_of(self._known(name))

    def _known(self, name: str) -> TopicDescription:
        """Description of a topic that exists. Raises TopicMismatch when it does not."""
        found = _soon(lambda: self._described(name), _LAG_S)
        if found is None:
            raise TopicMismatch(f"topic {name} {_MISSING}")
        return found

    def _described(self, name: str) -> TopicDescription | None:
        """Description of a topic; None when the contacted broker does not know it."""
        return self._described_all([name])[name]

    def _described_all(self, names: Collection[str]) -> dict[str, TopicDescription | None]:
        """Name -> description; None for topics that the contacted broker does not know."""
        within_s = min(self._kafka.settings.connect_timeout_s, RETRY_EVERY_S)
        asked = self._kafka.admin.describe_topics(TopicCollection([*names]), request_timeout=within_s)
        return {name: self._answered(name, answer) for name, answer in asked.items()}

    def _answered(self, name: str, asked: Future[TopicDescription]) -> TopicDescription | None:
        topics = TopicCollection([name])
        try:
            found: TopicDescription = self._kafka.answer(
                lambda timeout_s: self._kafka.admin.describe_topics(topics, request_timeout=timeout_s)[name], asked
            )
        except KafkaException as error:
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return None
            raise self._unavailable(f"topic {name} cannot be described", error, "DESCRIBE", name) from None
        return found

    def same_queue(self, queue: Queue) -> None:
        """Raise TopicMismatch when a topic of the queue is missing, or is not the one recorded in the catalog."""
        identifiers = topic_ids(queue)
        bootstrap = self._kafka.settings.bootstrap
        for name in topics_of(queue.topic, queue.subscription):
            try:
                found = self.topic_id(name)
            except TopicMismatch:
                raise TopicMismatch(lost_topic(bootstrap, queue, name, _MISSING)) from None
            if found != identifiers.get(name, found):
                raise TopicMismatch(lost_topic(bootstrap, queue, name, AGAIN))

    def _wait_until_visible(self, names: Collection[str]) -> None:
        """Wait until the contacted broker knows the topics and all their leaders: creation is asynchronous."""
        missing = [*names]

        def visible() -> bool:
            missing[:] = [name for name, found in self._described_all(missing).items() if not _is_led(found)]
            return not missing

        if missing and not _soon(visible):
            raise TopicMismatch(f"topic {missing[0]} was created but is still not served after {_VISIBLE_WITHIN_S} s")


def _is_led(found: TopicDescription | None) -> bool:
    """Whether the topic exists and each partition has a leader."""
    if found is None:
        return False
    leaders: list[Node | None] = [partition.leader for partition in found.partitions]  # its type forgets None
    return bool(leaders) and None not in leaders


def _soon(answer: Callable[[], Answer], within_s: float = _VISIBLE_WITHIN_S) -> Answer:
    """The first answer that is true, as soon as a change has reached the contacted broker; else the last answer."""
    deadline = time.monotonic() + within_s
    while not (found := answer()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return found


def replicas_of(described: TopicDescription) -> int:
    """Number of replicas of the partition with the fewest."""
    return min((len(partition.replicas) for partition in described.partitions), default=0)


def id_of(described: TopicDescription) -> bytes:
    """Kafka's own id of a topic, 16 bytes."""
    identifier: Any = described.topic_id  # the client's type stubs omit its methods
    mask = (1 << 64) - 1
    high, low = identifier.get_most_significant_bits() & mask, identifier.get_least_significant_bits() & mask
    return UUID(int=int(high) << 64 | int(low)).bytes


def lost_topic(bootstrap: str, queue: Queue, name: str, what: str) -> str:
    """Text for a topic of a queue that was deleted or replaced, with the remedy.

    The catalog holds the ids of the data topic and the journal, and Kafka gives each topic a new one. So neither a
    copy nor a backup can take their place. The id of the snapshot topic does not matter.
    """
    if name == snapshot_topic(queue.topic, queue.subscription):
        settings = " ".join(f"--config {key}={value}" for key, value in {**_CREATED, **JOURNAL_CONFIG}.items())
        return (
            f"topic {name} {what}. It holds snapshots alone: create it again, empty: kafka-topics --bootstrap-server "
            f"{bootstrap} --create --topic {name} --partitions {queue.partitions} {settings}"
        )
    return (
        f"topic {name} {what}: its records are gone. A topic restored from a backup has another id in Kafka, and is "
        f"refused too. Drop the queue, which gives up its messages: drop_queue({queue.name!r}, force=True). Then "
        "create it again"
    )
