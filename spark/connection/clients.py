"""The bridge's clients in Spark's processes: the catalog and topics in the driver, folds of partitions in tasks.

Importing the bridge takes a third of a second; `spark.daemon` imports it once for all Python workers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import closing
from typing import Any, Final, Protocol

from konverse.bridge.catalog.catalog import Catalog
from konverse.bridge.catalog.destinations import Destinations
from konverse.bridge.catalog.judge import CatalogJudge, rule_of
from konverse.bridge.kafka.clients import Kafka
from konverse.bridge.kafka.clock import kafka_time_ms
from konverse.bridge.kafka.topics import Topics, topic_ids
from konverse.bridge.owner.follower import Follower
from konverse.bridge.runtime.settings import OWN_PROPERTIES
from konverse.bridge.runtime.settings import Settings as BridgeSettings
from konverse.bridge.validation.rules import SchemaRule
from konverse.bridge.validation.validator import EncodedRule, Validator
from konverse.dialog.state.partition import Partition
from konverse.schemas.catalog.objects import MessageType, Queue
from konverse.schemas.errors import InvalidSchema, InvalidSettings, QueueNotFound, TopicMismatch

from .settings import ConnectionSettings

FOLD_S_MAX: Final = 600.0
"""Longest time for the fold of a partition."""
_KAFKAS: Final[dict[tuple[Any, ...], Kafka]] = {}
"""One for each cluster and set of client settings, each with an admin client; the oldest goes when there are many."""
KAFKAS_MAX: Final = 8


class Reachable(Protocol):
    """Options that say where Kafka is."""

    @property
    def bootstrap(self) -> str:
        """Brokers, `host:port,host:port`."""
        ...

    @property
    def client(self) -> Mapping[str, str]:
        """Settings for librdkafka."""
        ...


def kafka_of(settings: Reachable) -> Kafka:
    """The factory of the bridge's clients for these options."""
    key = (settings.bootstrap, *sorted(settings.client.items()))
    if key not in _KAFKAS:
        if len(_KAFKAS) >= KAFKAS_MAX:  # a long-lived process may see many passwords
            del _KAFKAS[next(iter(_KAFKAS))]
        url = f"kafka://{settings.bootstrap}"
        client = {name: value for name, value in settings.client.items() if name not in OWN_PROPERTIES}
        _KAFKAS[key] = Kafka(BridgeSettings.load(kafka=url, client=client))
    return _KAFKAS[key]


def topic_id(settings: ConnectionSettings) -> str:
    """Kafka's own id of the topic, in hexadecimal digits. Raises TopicMismatch when there is none, KafkaUnavailable."""
    return Topics(kafka_of(settings)).topic_id(settings.topic).hex()


def check_topics(settings: Reachable, topics: Iterable[tuple[str, bytes]]) -> None:
    """Raise TopicMismatch when one of these topics (name and id) was deleted, or deleted and created again.

    A topic that this principal may not describe, or about which Kafka does not answer, counts as unchanged.
    """
    wrong = Destinations(kafka_of(settings)).changed(dict(topics))
    if wrong:
        raise TopicMismatch(next(iter(wrong.values())))


def check_queue(settings: ConnectionSettings) -> Queue | None:
    """The queue that is read; TopicMismatch when a topic of it was deleted, or deleted and created again.

    A bare topic and a queue that was dropped are in no catalog, and are not checked: None.
    """
    queue = _found(settings) if settings.queue is not None else None
    if queue is not None:
        check_topics(settings, topic_ids(queue).items())
    return queue


def queue_of(settings: ConnectionSettings) -> Queue:
    """The queue from the catalog. Raises QueueNotFound, KafkaUnavailable."""
    found = _found(settings)
    if found is None:
        raise QueueNotFound(
            f"database {settings.database!r} has no queue {settings.queue!r}; check options 'instance', 'database' and "
            "'queue'"
        )
    return found


def _found(settings: ConnectionSettings) -> Queue | None:
    assert settings.queue is not None
    kafka_of(settings).check()
    with closing(_catalog(settings)) as catalog:
        return catalog.find(Queue, settings.queue)


def schema_of(settings: ConnectionSettings, message_type: str) -> SchemaRule:
    """The rule by which bodies of a message type are validated, as the catalog has it now.

    Raises InvalidSettings for a type without a schema, InvalidSchema for a schema that cannot be read here,
    MessageTypeNotFound, KafkaUnavailable, ValidatorUnavailable when the package that reads such a schema is missing.
    """
    kafka_of(settings).check()
    with closing(_catalog(settings)) as catalog:
        found = catalog.get(MessageType, message_type)
        rule = rule_of(catalog, found)
    if rule is None:
        raise InvalidSettings(
            f"message type {message_type!r} has no schema to parse bodies by, as its validation is {found.validation}; "
            "give it VALID_XML, JSON_SCHEMA or AVRO with broker.admin.alter_message_type(…)"
        )
    try:
        with closing(Validator()) as validator:
            validator.check(EncodedRule.of(rule))
    except InvalidSchema as error:
        raise InvalidSchema(
            f"message type {message_type!r} has a schema that cannot be read here: {error}. Give it another one with "
            "broker.admin.alter_message_type(…), or run the library versions that created it"
        ) from None
    return rule


def fold(settings: ConnectionSettings, queue: Queue, partition: int) -> Partition:
    """The state of a partition as an owner that began now would have it.

    Data that no commit has ingested yet is folded up to the bounds of a view, VIEW_AHEAD_RECORDS_MAX and
    VIEW_AHEAD_BYTES_MAX. Raises KafkaUnavailable when Kafka is silent or the fold takes longer than FOLD_S_MAX,
    PartitionHalted when the logs contradict themselves.
    """
    with (
        closing(_catalog(settings)) as catalog,
        closing(Validator()) as validator,
        Follower(kafka_of(settings), queue, partition) as following,
    ):
        now_ms = kafka_time_ms(kafka_of(settings))
        return following.fold_uncommitted(CatalogJudge(catalog, validator, predicts=True), now_ms, FOLD_S_MAX).state


def _catalog(settings: ConnectionSettings) -> Catalog:
    return Catalog(kafka_of(settings), settings.instance, settings.database)
