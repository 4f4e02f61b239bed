"""Watches the topics of a queue while it is read: deletion, re-creation, changed settings and added partitions.

The watch asks Kafka every few seconds and never waits for an answer. A topic that no longer belongs to the queue ends
the reader. A wrong setting is logged with the command that corrects it, and again every 30 s.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import ConfigResource, ResourceType, TopicDescription

from konverse.bridge.runtime.log_throttle import LogThrottle
from konverse.bridge.runtime.threads import in_background
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.errors import TopicMismatch

from .clients import Kafka
from .topic_faults import misfits
from .topics import AGAIN, id_of, lost_topic, replicas_of, topic_ids, topics_of

log: Final = logging.getLogger("konverse.reader")

WATCH_EVERY_S: Final = 3.0
LOOK_AFTER_S: Final = 5.0
"""Without an answer for this long, and then again at this interval, the admin client is asked for its brokers."""


class TopicWatch:
    """Checks whether the topics of a queue are still those recorded in the catalog."""

    def __init__(self, kafka: Kafka, queue: Queue) -> None:
        self._kafka = kafka
        self._bootstrap = kafka.settings.bootstrap
        self._queue = queue
        self._identifiers = topic_ids(queue)
        self._settings = topics_of(queue.topic, queue.subscription)
        self._asked: dict[str, Future[TopicDescription]] = {}
        self._admin = kafka.admin
        """The client that was asked."""
        self._look_at = 0.0
        self._asked_settings: dict[ConfigResource, Future[Any]] = {}
        self._ask_at = time.monotonic() + WATCH_EVERY_S
        self._missed = 0
        self._unheard_since: float | None = None
        self._replicas: dict[str, int] = {}
        self._changes = LogThrottle()
        self._grown: set[str] = set()
        """Topics whose additional partitions were reported."""

    @property
    def silent_s(self) -> float:
        """Seconds since the oldest unanswered request; 0 when none is pending. Answers are noticed by `poll`."""
        return time.monotonic() - self._unheard_since if self._unheard_since is not None else 0.0

    def poll(self) -> None:
        """Raise TopicMismatch when a topic was created again, or was missing twice in a row. Call it often."""
        self._look_at_settings()
        if not self._asked:
            if time.monotonic() >= self._ask_at:
                self._ask_at = time.monotonic() + WATCH_EVERY_S
                self._ask()
            return
        if not all(answer.done() for answer in self._asked.values()):
            self._look_for_brokers()
            return
        asked, self._asked = self._asked, {}
        if any(map(has_answered, asked.values())):
            self._unheard_since = None
        missing = [name for name, answer in asked.items() if self._is_missing(name, answer)]
        self._missed = self._missed + 1 if missing else 0
        if self._missed > 1:
            raise TopicMismatch(lost_topic(self._bootstrap, self._queue, missing[0], "was deleted while it was read"))

    def _look_for_brokers(self) -> None:
        """Have the admin client replaced if it has lost all its brokers for good, and ask the new one.

        Some processes, such as `konverse transmit`, have nothing else that asks for metadata regularly.
        """
        now = time.monotonic()
        if self._kafka.admin is not self._admin:
            self._asked_settings = {}
            self._ask()
        elif self.silent_s > LOOK_AFTER_S and now >= self._look_at:
            self._look_at = now + LOOK_AFTER_S
            in_background("konverse-admin", self._ask_for_brokers)

    def _ask_for_brokers(self) -> None:
        with suppress(KafkaException):  # Kafka is away
            self._kafka.metadata(LOOK_AFTER_S)

    def _ask(self) -> None:
        self._admin = self._kafka.admin
        self._asked = self._admin.describe_topics(TopicCollection([*self._settings]))
        if not self._asked_settings:
            self._asked_settings = self._admin.describe_configs(
                [ConfigResource(ResourceType.TOPIC, name) for name in self._settings]
            )
        if self._unheard_since is None:
            self._unheard_since = time.monotonic()

    def _is_missing(self, name: str, answer: Future[TopicDescription]) -> bool:
        try:
            described = answer.result()
        except KafkaException as error:
            return bool(error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART)  # other errors prove nothing
        if id_of(described) != self._identifiers.get(name, id_of(described)):
            raise TopicMismatch(lost_topic(self._bootstrap, self._queue, name, AGAIN))
        self._replicas[name] = replicas_of(described)
        known, found = self._queue.partitions, len(described.partitions)
        if found < known and self._changes.due(name):
            log.error(
                "topic %s has %d partitions, but queue %r has %d: it was created again with fewer. Readers of the "
                "others cannot start; add them: kafka-topics --alter --topic %s --partitions %d",
                name,
                found,
                self._queue.name,
                known,
                name,
                known,
            )
        if found > known and name not in self._grown:
            self._grown.add(name)
            log.warning(
                "topic %s has %d partitions, but queue %r has %d: the additional partitions are neither written nor "
                "read. Kafka cannot remove partitions; to use more, create another queue and move the services there "
                "(alter_service)",
                name,
                found,
                self._queue.name,
                known,
            )
        return False

    def _look_at_settings(self) -> None:
        if not self._asked_settings or not all(answer.done() for answer in self._asked_settings.values()):
            return
        asked, self._asked_settings = self._asked_settings, {}
        for resource, answer in asked.items():
            if answer.exception() is None:
                self._log_changes(resource.name, {key: str(one.value) for key, one in answer.result().items()})

    def _log_changes(self, name: str, actual: Mapping[str, str]) -> None:
        replicas = self._replicas.get(name)
        if replicas is None:
            return
        problems = [*misfits(self._bootstrap, name, actual, self._settings[name], replicas)]
        for problem in problems:
            if self._changes.due(problem):
                log.error("queue %r: %s", self._queue.name, problem)


def has_answered(answer: Future[TopicDescription]) -> bool:
    """Whether a broker has answered, even with an error."""
    error = answer.exception()
    return not isinstance(error, KafkaException) or error.args[0].code() >= 0  # the client's own errors are negative
