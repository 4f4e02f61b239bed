"""Reads a Kafka topic partition by partition, up to known ends."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from konverse.bridge.kafka.refusals import Need, denied
from konverse.schemas.errors import (
    InvalidSettings,
    KafkaUnavailable,
    KonverseError,
    QueueNotFound,
    TopicMismatch,
    UnknownObject,
)
from konverse.spark.connection.cached_clients import IdleClients
from konverse.spark.connection.settings import FIXED, ConnectionSettings

ANSWER_S_MAX: Final = 10.0
"""How long a broker may take to answer before it counts as unreachable."""

STALL_S_MAX: Final = 60.0
"""How long a read may get no record before the task gives up: longer than the election of a leader takes."""

CHUNK_RECORDS_MAX: Final = 8_192
"""Records handed over at once. The bytes are bounded by what the client fetches ahead."""

_PAUSE_S: Final = 0.1
"""Pause before a partition whose leader is being elected is asked again."""

_PASSING: Final = frozenset({
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.UNKNOWN_LEADER_EPOCH,
})  # fmt: skip
"""Transient errors of a broker during the election of a leader. A new topic has an election, too."""

_DEFAULTS: Final[dict[str, Any]] = {
    "group.id": "konverse-spark",  # the client requires one; nothing is committed under it
    "log_level": 2,  # errors are raised, with the client's own words in the text
    "fetch.wait.max.ms": 10,  # the end is known, so no fetch needs to wait for more records
    "fetch.queue.backoff.ms": 5,  # the default of a second halves the speed
    "fetch.message.max.bytes": 4_194_304,
    "queued.max.messages.kbytes": 16_384,  # bounds the memory of a task
}


class Bounds(NamedTuple):
    """Offsets of the records that a partition holds: `first` up to, not including, `end` (the last stable offset)."""

    first: int
    end: int


class _Client:
    """A consumer of a cluster, and the last error that it reported."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.trouble = ""
        self._servers = config["bootstrap.servers"]
        try:
            self.consumer = Consumer({**config, "error_cb": self._remember})
        except (KafkaException, TypeError, ValueError) as error:
            words = f"the Kafka client refuses its settings: {_words(error)}; check the kafka.* options"
            raise InvalidSettings(words) from error

    def __repr__(self) -> str:
        return f"<consumer of {self._servers}>"

    def _remember(self, error: KafkaError) -> None:
        self.trouble = error.str()


_RESTING: Final[IdleClients[_Client]] = IdleClients(lambda client: client.consumer.close())


class Topic:
    """Reads one topic. Close it, or use a `with` statement, which leaves the connection to the next `Topic`."""

    def __init__(self, settings: ConnectionSettings) -> None:
        self._settings = settings
        config = {**_DEFAULTS, **settings.client, **FIXED, "bootstrap.servers": settings.bootstrap}
        self._key = (*sorted(config.items()),)
        self._client = _rested(self._key) or _Client(config)
        self._consumer: Consumer = self._client.consumer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and not self._client.trouble:
            _RESTING.keep(self._key, self._client)
        else:  # after an error librdkafka may fail again
            self.close()

    def close(self) -> None:
        """Close the client."""
        self._consumer.close()

    def partitions(self) -> list[int]:
        """The topic's partitions; UnknownObject or QueueNotFound when it does not exist."""
        name = self._settings.topic
        try:
            found = self._consumer.list_topics(name, timeout=ANSWER_S_MAX).topics[name]
        except KafkaException as error:
            raise self._unavailable(error) from error
        if found.error is not None:
            raise self._failure(found.error)
        return sorted(found.partitions)

    def bounds(self, partitions: list[int]) -> dict[int, Bounds]:
        """First and end offset of each partition."""
        first, end = (self._offsets(partitions, logical) for logical in (OFFSET_BEGINNING, OFFSET_END))
        return {partition: Bounds(first[partition], end[partition]) for partition in partitions}

    def since(self, times_ms: Mapping[int, int]) -> dict[int, int]:
        """By partition: the offset of the first record of that time or later; the log's end when there is none."""
        asked = [TopicPartition(self._settings.topic, partition, time) for partition, time in times_ms.items()]
        found = {answer.partition: answer.offset for answer in self._found(asked)}
        late = self._offsets([partition for partition, offset in found.items() if offset < 0], OFFSET_END)
        return {**found, **late}

    def chunks(self, partition: int, start: int, end: int) -> Iterator[list[Message]]:
        """The records from `start` up to, not including, `end`, in log order and in lists of a few thousand."""
        if start >= end:
            return
        consumer = self._consumer
        consumer.assign([TopicPartition(self._settings.topic, partition, start)])
        try:
            position = start
            while position < end:
                first = consumer.poll(STALL_S_MAX)
                if first is None:
                    raise self._stalled(partition, position)
                messages = [first, *consumer.consume(CHUNK_RECORDS_MAX - 1, 0)]
                if KafkaError in set(map(type, map(Message.error, messages))):  # comparing an error with None fails
                    messages, position = self._without_events(messages, position)
                if messages:
                    position = max(position, _offset(messages[-1]) + 1)
                if position > end:
                    messages = [message for message in messages if _offset(message) < end]
                if messages:
                    yield messages
        finally:
            consumer.unassign()

    def _offsets(self, partitions: list[int], logical: int) -> dict[int, int]:
        if not partitions:
            return {}
        asked = [TopicPartition(self._settings.topic, partition, logical) for partition in partitions]
        return {answer.partition: answer.offset for answer in self._found(asked)}

    def _found(self, asked: list[TopicPartition]) -> list[TopicPartition]:
        answers = self._answers(asked, time.monotonic() + ANSWER_S_MAX)
        for answer in answers:
            if answer.error is not None:
                raise self._failure(answer.error)
        return answers

    def _answers(self, asked: list[TopicPartition], deadline_s: float) -> list[TopicPartition]:
        while True:
            try:
                answers = self._consumer.offsets_for_times(asked, timeout=ANSWER_S_MAX)
            except KafkaException as error:
                if error.args[0].code() not in _PASSING or time.monotonic() > deadline_s:
                    raise self._unavailable(error) from error
            else:
                if time.monotonic() > deadline_s or not any(_passes(answer.error) for answer in answers):
                    return answers
            time.sleep(_PAUSE_S)

    def _without_events(self, messages: list[Message], position: int) -> tuple[list[Message], int]:
        """The records alone, and the position, which an end-of-partition event may advance."""
        records = []
        for message in messages:
            error = message.error()
            if error is None:
                records.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001  # librdkafka's own codes are named so
                position = max(position, _offset(message))
            elif error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED:  # the group is not used
                raise self._failure(error)
        return records, position

    def _failure(self, error: KafkaError) -> KonverseError:
        where = self._where
        if error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):  # noqa: SLF001
            if self._settings.queue is None:
                return UnknownObject(f"{where} does not exist; check option 'topic' and the brokers in 'bootstrap'")
            return QueueNotFound(f"{where} does not exist; check options 'instance', 'database' and 'queue'")
        if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):  # noqa: SLF001
            return TopicMismatch(
                f"records of {where} were deleted while they were read ({error.str()}); "
                "load the frame again, since a frame or view keeps the offsets of its first use, or give later "
                "'startingOffsets'"
            )
        refused = denied(
            f"{where} cannot be read", error, Need.topic("READ", self._settings.topic), self._settings.client
        )
        if refused is not None:
            return refused
        return KafkaUnavailable(f"{where} cannot be read: {error.str()} ({error.name()}); check the kafka.* options")

    def _unavailable(self, error: KafkaException) -> KonverseError:
        cause = error.args[0]
        # librdkafka reports this, too, for a topic that this principal may not describe.
        if cause.code() == KafkaError._UNKNOWN_PARTITION:  # noqa: SLF001
            with suppress(KafkaException):
                name = self._settings.topic
                cause = self._consumer.list_topics(name, ANSWER_S_MAX).topics[name].error or cause
        if cause.code() in (KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN):  # noqa: SLF001
            trouble = f" ({self._client.trouble})" if self._client.trouble else ""
            return KafkaUnavailable(
                f"no broker at {self._settings.bootstrap} answered within {ANSWER_S_MAX:.0f} s{trouble}; "
                "check option 'bootstrap', and that Kafka runs"
            )
        return self._failure(cause)

    def _stalled(self, partition: int, position: int) -> KafkaUnavailable:
        trouble = f" ({self._client.trouble})" if self._client.trouble else ""
        return KafkaUnavailable(
            f"no record of partition {partition} of {self._where} could be read at offset {position} for "
            f"{STALL_S_MAX:.0f} s"
            f"{trouble}; check that its leader is alive"
        )

    @property
    def _where(self) -> str:
        settings = self._settings
        if settings.queue is None:
            return f"topic {settings.topic!r}"
        return f"queue {settings.queue!r} (topic {settings.topic!r})"


def _rested(key: tuple[Any, ...]) -> _Client | None:
    """An idle client that has reported no error, also while it was idle; None when there is none."""
    client = _RESTING.take(key)
    if client is None:
        return None
    client.consumer.poll(0)  # delivers errors from the idle time
    if client.trouble:
        client.consumer.close()
        return None
    return client


def _passes(error: KafkaError | None) -> bool:
    """Whether one partition's error in an answer is transient. Other partitions may have answered with offsets."""
    return error is not None and error.code() in _PASSING


def _offset(message: Message) -> int:
    offset = message.offset()
    assert offset is not None, "a consumed record has an offset"
    return offset


def _words(error: BaseException) -> str:
    cause = error.args[0] if error.args else error
    return cause.str() if isinstance(cause, KafkaError) else str(cause)
