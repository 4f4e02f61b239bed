"""Makes Kafka's clients: how each kind is configured, and which errors its events and failures become.

Configurations follow measurements: see the comments. All clients share one logger, so that a broker that is down does
not flood the terminal.

`Health` keeps the last trouble that producers have reported, for log lines that tell why something waits.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from konverse.bridge.runtime.log_throttle import LogThrottle, Repeated
from konverse.bridge.runtime.settings import Settings
from konverse.bridge.runtime.shutdown import SHUTDOWN_FILTER
from konverse.schemas.errors import InvalidSettings, KafkaUnavailable

from .misfits import too_small
from .refusals import Need, denied, is_refusal, unavailable, words

log: Final = logging.getLogger("konverse.kafka")
FETCH_RECORDS: Final = 1_000
"""Records taken from a consumer at a time; more of them would leave the processor's caches before they are folded."""
NO_GROUP: Final[int] = KafkaError.GROUP_AUTHORIZATION_FAILED
"""Irrelevant to a consumer that needs no group: the client looks for a group's coordinator unasked."""
PRODUCER_RECORDS_MAX: Final = 500_000
"""Records that may wait in a producer; it refuses more."""
ACQUAINTANCE_S: Final = 0.25
"""How long a new producer may take to connect to its brokers before it is used."""
SETTING_S: Final = 2.0
"""How long the text of an error waits for the topic setting that explains it."""
ASKED_AGAIN_S: Final = 2.5
"""How long one question to the cluster waits for its answer before it is asked again."""
SOON_S: Final = 0.1
"""The least time for an answer."""
_LOST: Final = frozenset({KafkaError._DESTROY_BROKER, KafkaError._TIMED_OUT})  # noqa: SLF001
"""Errors of the client for a question that no broker has answered."""
ELECTING: Final = frozenset({
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_LEADER_EPOCH,  # the client knows of an election before the broker does
    KafkaError.FENCED_LEADER_EPOCH,
})  # fmt: skip
"""Errors for a partition that is being created, or gets another leader: soon a broker serves it."""
_AGAIN_S: Final = 0.05
"""The pause before a question about such a partition is asked again."""
Answer = TypeVar("Answer")
Client = TypeVar("Client")
Headers = dict[str, str | bytes | None]
"""Headers as `produce` takes them."""
SILENT_S: Final = 2.0
"""A call that waits longer for Kafka logs it."""
_BEHIND: Final = frozenset({KafkaError._FATAL, KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})  # noqa: SLF001
"""Errors of a producer after it has failed for good: they hide the reason."""


log.addHandler(logging.NullHandler())


log.addFilter(SHUTDOWN_FILTER)


log.addFilter(Repeated())


class LogTruncated(Exception):
    """The wanted offset is not in the log."""


class ConsumerFailed(KafkaUnavailable):
    """A consumer has failed for good and has to be replaced, for instance because Kafka has lost its group."""


class Kafka:
    """Makes clients for one cluster."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.health = Health()
        """Reported by producers only: other clients may not be polled for long, and would pile up reports."""
        self.alarms = LogThrottle()
        """Throttles alarms about records of foreign producers, for all readers together."""
        self._common: dict[str, Any] = {
            "bootstrap.servers": settings.bootstrap,
            "client.id": "konverse",
            "logger": log,
            "reconnect.backoff.max.ms": 1_000,
            **settings.client,
        }
        self.told_ms: tuple[int, int] | None = None
        """Kafka's time when it was last asked for, and `runtime.clock.now_ms` just before (`kafka_time_ms`)."""
        self.admin = _made(AdminClient, self._common)  # kept for life: one that goes away cancels its requests

    def unavailable(self, what: str, error: KafkaException | KafkaError, need: Need) -> KafkaUnavailable:
        """Error for a call that Kafka did not answer, or AccessDenied when this process's principal lacks `need`."""
        cause = error.args[0] if isinstance(error, KafkaException) else error
        return unavailable(what, self.health.cause(cause), need, self.settings.client)

    def not_taken(self, topic: str, error: KafkaException | KafkaError) -> KafkaUnavailable:
        """Error for a record that a topic did not take."""
        return self.unavailable(f"no record can be written to {topic}", error, Need.topic("WRITE", topic))

    def check_taken(self, topic: str, outcomes: Iterable[object]) -> None:
        """Raise AccessDenied when one of these outcomes of records for the topic is an authorization error."""
        for outcome in outcomes:
            if isinstance(outcome, KafkaError) and is_refusal(self.health.cause(outcome)):
                raise self.not_taken(topic, outcome)

    def words(self, error: object, need: Need) -> str:
        """Text for a log line about an error: the missing right or unfit setting, else the client's own words."""
        error = error.args[0] if isinstance(error, KafkaException) else error
        if not isinstance(error, KafkaError):
            return str(error)
        error = self.health.cause(error)
        if error.code() == KafkaError.MSG_SIZE_TOO_LARGE and need.name:
            why = too_small(need.name, self._max_message_bytes(need.name))
            return error.str() if why is None else f"{error.str()}: {why}"
        return words(error, need, self.settings.client)

    def _max_message_bytes(self, topic: str) -> str | None:
        """The topic's `max.message.bytes`; None when Kafka does not answer."""
        resource = ConfigResource(ResourceType.TOPIC, topic)
        try:
            asked = self.admin.describe_configs([resource], request_timeout=SETTING_S)[resource]
            return str(asked.result(SETTING_S)["max.message.bytes"].value)
        except (KafkaException, TimeoutError, KeyError):
            return None

    def check_event(self, message: Message, group: str = "") -> None:
        """Raise the error that a consumer's event stands for, if any. `group`: the group that the consumer has to join.

        Raises LogTruncated, ConsumerFailed, AccessDenied, KafkaUnavailable.
        """
        error = message.error()
        assert error is not None
        if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):  # noqa: SLF001
            raise LogTruncated(error.str())
        if error.fatal() or error.code() == KafkaError._FATAL:  # noqa: SLF001
            raise ConsumerFailed(f"Kafka's client has failed for good: {error.str()}")
        topic = message.topic()
        of_group = error.code() == NO_GROUP
        if of_group and not group:  # the client asks for a group unasked, and reads without it
            return
        need = Need.of_member(error, str(topic), group)
        refused = denied(f"{need.resource} cannot be read", error, need, self.settings.client)
        if refused is not None:
            raise refused
        if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise KafkaUnavailable(f"Kafka refuses to serve {topic}: {error.str()}")

    def answer(self, ask: Callable[[float], Future[Answer]], asked: Future[Answer] | None = None) -> Answer:
        """Kafka's answer to a question, which is asked again until `connect_timeout_s` has passed.

        The client loses questions: it drops them when it replaces its first connection by one to the same broker under
        the broker's id, and it can wait for a controller that only fresh metadata would name. A broker refuses
        questions about a partition that was created just now and has no leader yet.

        `ask` takes the time-out of one request in seconds; it must be harmless to ask twice. `asked` is the question if
        it has been asked once already. Raises KafkaException when Kafka refuses it, or does not answer in time.
        """
        deadline = time.monotonic() + self.settings.connect_timeout_s
        left = self.settings.connect_timeout_s
        while True:
            try:
                return (asked or ask(min(left, ASKED_AGAIN_S))).result()
            except KafkaException as error:
                left, code = deadline - time.monotonic(), error.args[0].code()
                if left <= 0 or code not in _LOST | ELECTING:
                    raise
                if code in ELECTING:
                    time.sleep(_AGAIN_S)
            asked = None
            self.admin.list_topics(timeout=left)
            left = max(SOON_S, deadline - time.monotonic())

    def check(self) -> None:
        """Raise KafkaUnavailable when no broker answers."""
        try:
            self.admin.list_topics(timeout=self.settings.connect_timeout_s)
        except KafkaException as error:
            raise KafkaUnavailable(
                f"no Kafka broker answers at {self.settings.bootstrap} ({error.args[0].name()}). "
                "Start one (`konverse stack up`), or correct the address"
            ) from None

    def journal_producer(self, timeout_s: float | None = None) -> Producer:
        """For appends: sent at once; an answer or an error within `timeout_s` (default: `append_timeout_s`)."""
        return self._producer({
            **self._common,
            "enable.idempotence": True,
            "error_cb": self.health.note_error,
            "linger.ms": 0,
            "socket.nagle.disable": True,
            "message.timeout.ms": max(1, round((timeout_s or self.settings.append_timeout_s) * 1000)),
        })  # fmt: skip

    def plain_producer(self, timeout_s: float) -> Producer:
        """For one record that may be duplicated: a producer without an idempotence id answers half a second sooner."""
        return self._producer({
            **self._common,
            "error_cb": self.health.note_error,
            "linger.ms": 0,
            "message.timeout.ms": max(1, round(timeout_s * 1000)),
        })  # fmt: skip

    def data_producer(self, *, linger_ms: int) -> Producer:
        """For data records: idempotent, without a time-out, and with reports of failures only.

        A delivery report for each record would cost a fifth of a send, so success is learnt from the queue running
        empty.
        """
        return self._producer({
            **self._common,
            "enable.idempotence": True,
            "error_cb": self.health.note_error,
            "linger.ms": linger_ms,
            "queue.buffering.max.messages": PRODUCER_RECORDS_MAX,
            "delivery.report.only.error": True,
            "message.timeout.ms": 0,
            "topic.metadata.propagation.max.ms": 5_000,
        })  # fmt: skip

    def _producer(self, properties: dict[str, Any]) -> Producer:
        return _made(partial(ReportingProducer, self.health), properties)

    def consumer(self, **options: Any) -> Consumer:
        """For logs: konverse sets all positions; the client commits no offsets and never resets one."""
        return _made(Consumer, {
            **self._common,
            "group.id": "konverse.unused",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "fetch.queue.backoff.ms": 5,  # the default of 1 s makes a fast reader wait for the fetcher
            "fetch.wait.max.ms": 50,
            "queued.max.messages.kbytes": 131_072,
            **options,
        })  # fmt: skip

    def group_consumer(self, group: str) -> Consumer:
        """For a share of a topic's partitions, suggested by a consumer group."""
        protocol = self.settings.group_protocol
        if protocol == "consumer":
            share = {"group.remote.assignor": "range"}
        else:
            share = {"partition.assignment.strategy": "cooperative-sticky"}
        return self.consumer(**{"group.id": group, "group.protocol": protocol, **share})


def _made(kind: Callable[[dict[str, Any]], Client], properties: dict[str, Any]) -> Client:
    """Make a client. Raises InvalidSettings when librdkafka refuses the user's properties."""
    try:
        return kind(properties)
    except KafkaException as error:
        raise InvalidSettings(f"setting 'client' (KONVERSE_CLIENT): {error.args[0].str()}") from None


def has_joined(consumer: Consumer) -> bool:
    """Whether its group has admitted the consumer, with or without partitions: it knows the group's generation then."""
    told: object = consumer.consumer_group_metadata()  # as librdkafka writes it: "CGMDv2:", the generation, names
    return isinstance(told, bytes) and int.from_bytes(told[7:11], sys.byteorder, signed=True) > 0


def connect_producer(producer: Producer, topic: str) -> None:
    """Let a new idempotent producer connect to its brokers. `topic` has to exist.

    A record that is produced before that waits half a second: librdkafka 2.16 wants a producer id, knows no broker that
    is up, and pauses.
    """
    with suppress(KafkaException):  # the next `produce` reports what is wrong
        producer.list_topics(topic, timeout=ACQUAINTANCE_S)


def discard(producer: Producer) -> None:
    """Discard a producer that may have failed for good. Its remaining records are reported as not delivered."""
    producer.purge()
    try:
        producer.flush(1)
    except KafkaException:
        log.debug("the failed producer is discarded", exc_info=True)


class Health:
    """The latest trouble of one connection's producers."""

    def __init__(self) -> None:
        self._trouble: tuple[str, float] | None = None
        self._fatal: KafkaError | None = None

    def note_error(self, error: KafkaError) -> None:
        """Librdkafka's error callback. Librdkafka goes on by itself after these errors."""
        if error.code() != KafkaError._ALL_BROKERS_DOWN or self._trouble is None:  # noqa: SLF001  # the least specific
            self._trouble = (error.str(), time.monotonic())

    def note_death(self, error: KafkaError) -> None:
        """A producer has failed for good for this reason."""
        self._fatal = error

    def cause(self, error: KafkaError) -> KafkaError:
        """The reason why a producer failed for good, when `error` only says that it has; else `error` itself."""
        return self._fatal if self._fatal is not None and error.code() in _BEHIND else error

    @property
    def troubled(self) -> bool:
        """Whether any trouble was reported."""
        return self._trouble is not None

    def __str__(self) -> str:
        """The last trouble and its age."""
        if self._trouble is None:
            return "none was reported"
        text, at = self._trouble
        return f"{text}, {time.monotonic() - at:.0f} s ago"


class ReportingProducer(Producer):
    """A producer that keeps the reason when it fails for good.

    The client raises the reason once, from the call that polls first. All later calls raise "Local: Fatal error", and
    waiting records are reported as purged.
    """

    def __init__(self, health: Health, properties: dict[str, Any]) -> None:
        super().__init__(properties)
        self._health = health

    def poll(self, timeout: float = -1) -> int:
        """As the client's. Raises KafkaException."""
        try:
            return super().poll(timeout)
        except KafkaException as error:
            raise self._told(error) from None

    def flush(self, timeout: float = -1) -> int:
        """As the client's. Raises KafkaException."""
        try:
            return super().flush(timeout)
        except KafkaException as error:
            raise self._told(error) from None

    def _told(self, error: KafkaException) -> KafkaException:
        if error.args[0].fatal():
            self._health.note_death(error.args[0])
        return error
