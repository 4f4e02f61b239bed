"""Kafka clients of one process: how each kind is configured, and reading a range of a log.

Configurations follow measurements: see the comments. All clients share one logger, so that a broker which is down does
not flood the terminal.

What Kafka's clients say of the way to it: kept for whoever has to tell why something waits.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from konverse.bridge.runtime.log_throttle import Repeated, Seldom
from konverse.bridge.runtime.settings import Settings
from konverse.bridge.runtime.shutdown import DEPARTING
from konverse.schemas.errors import InvalidSettings, KafkaUnavailable

from .misfits import too_small
from .refusals import Need, denied, is_refusal, unavailable, words

log: Final = logging.getLogger("konverse.kafka")
FETCH_RECORDS: Final = 1_000
"""Records taken from a consumer at a time; more of them leave the caches before they are folded."""
NO_GROUP: Final[int] = KafkaError.GROUP_AUTHORIZATION_FAILED
"""Means nothing to a consumer that needs no group: by itself it looks for the coordinator of one."""
PRODUCER_RECORDS_MAX: Final = 500_000
"""Records that wait in a producer of ours; above, it takes none."""
ACQUAINTANCE_S: Final = 0.25
"""How long a producer that is used at once may take to get to know its brokers."""
SETTING_S: Final = 2.0
"""So long an error waits for the setting that explains it."""
Client = TypeVar("Client")
Headers = dict[str, str | bytes | None]
"""What `produce` takes."""
SILENT_S: Final = 2.0
"""Whoever waits longer for Kafka says so."""
_BEHIND: Final = frozenset({KafkaError._FATAL, KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})  # noqa: SLF001
"""What a producer that has failed for good answers from then on: nothing of the reason."""


log.addHandler(logging.NullHandler())


log.addFilter(DEPARTING)


log.addFilter(Repeated())


class LogTruncated(Exception):
    """What was asked for is no longer in the log."""


class ConsumerFailed(KafkaUnavailable):
    """A client reads nothing any more, and another one does, for instance because Kafka has lost its group."""


class Kafka:
    """Makes clients for one cluster."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.health = Health()
        """Heard from producers alone: other clients may rest for long, and what they heard would pile up in them."""
        self.alarms = Seldom()
        """What was said of records of strangers, whichever reader has met them."""
        self._common: dict[str, Any] = {
            "bootstrap.servers": settings.bootstrap,
            "client.id": "konverse",
            "logger": log,
            "reconnect.backoff.max.ms": 1_000,
            **settings.client,
        }
        self.told_ms: tuple[int, int] | None = None
        """Kafka's time when it was asked last, and what `clock.now_ms` showed before (`kafka_time`)."""
        self.admin = _made(AdminClient, self._common)  # kept for life: short-lived ones cancel what they asked for

    def unavailable(self, what: str, error: KafkaException | KafkaError, need: Need) -> KafkaUnavailable:
        """A typed error for a call that Kafka did not answer, or refuses to the principal of this process."""
        cause = error.args[0] if isinstance(error, KafkaException) else error
        return unavailable(what, self.health.cause(cause), need, self.settings.client)

    def not_taken(self, topic: str, error: KafkaException | KafkaError) -> KafkaUnavailable:
        """A typed error for a record that the topic did not take."""
        return self.unavailable(f"{topic} takes no record", error, Need.topic("WRITE", topic))

    def check_taken(self, topic: str, outcomes: Iterable[object]) -> None:
        """Raise AccessDenied when one of these outcomes of records for the topic is a refusal."""
        for outcome in outcomes:
            if isinstance(outcome, KafkaError) and is_refusal(self.health.cause(outcome)):
                raise self.not_taken(topic, outcome)

    def words(self, error: object, need: Need) -> str:
        """The text of a log line about an error of the client: which right is missing, or the client's own words."""
        error = error.args[0] if isinstance(error, KafkaException) else error
        if not isinstance(error, KafkaError):
            return str(error)
        error = self.health.cause(error)
        if error.code() == KafkaError.MSG_SIZE_TOO_LARGE and need.name:
            why = too_small(need.name, self._max_message_bytes(need.name))
            return error.str() if why is None else f"{error.str()}: {why}"
        return words(error, need, self.settings.client)

    def _max_message_bytes(self, topic: str) -> str | None:
        """What an administrator has set; None when Kafka does not say."""
        resource = ConfigResource(ResourceType.TOPIC, topic)
        try:
            asked = self.admin.describe_configs([resource], request_timeout=SETTING_S)[resource]
            return str(asked.result(SETTING_S)["max.message.bytes"].value)
        except (KafkaException, TimeoutError, KeyError):
            return None

    def check_event(self, message: Message, group: str = "") -> None:
        """Raise what a consumer's event means, when it means something; it needs a group to take it in, if any."""
        error = message.error()
        assert error is not None
        if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):  # noqa: SLF001
            raise LogTruncated(error.str())
        if error.fatal() or error.code() == KafkaError._FATAL:  # noqa: SLF001
            raise ConsumerFailed(f"Kafka's client has failed for good: {error.str()}")
        topic = message.topic()
        of_group = error.code() == NO_GROUP
        if of_group and not group:  # the client asks for one by itself, and reads without it
            return
        need = Need.of_member(error, str(topic), group)
        refused = denied(f"{need.resource} cannot be read", error, need, self.settings.client)
        if refused is not None:
            raise refused
        if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise KafkaUnavailable(f"Kafka refuses to serve {topic}: {error.str()}")

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
        """For appends: at once, with an answer or an error within the time-out (else `append_timeout_s`)."""
        return self._producer({
            **self._common,
            "enable.idempotence": True,
            "error_cb": self.health.heard,
            "linger.ms": 0,
            "socket.nagle.disable": True,
            "message.timeout.ms": max(1, round((timeout_s or self.settings.append_timeout_s) * 1000)),
        })  # fmt: skip

    def plain_producer(self, timeout_s: float) -> Producer:
        """For one record that may be there twice: without an id of Kafka, it answers half a second sooner."""
        return self._producer({
            **self._common,
            "error_cb": self.health.heard,
            "linger.ms": 0,
            "message.timeout.ms": max(1, round(timeout_s * 1000)),
        })  # fmt: skip

    def data_producer(self, *, linger_ms: int) -> Producer:
        """For data records: idempotent, patient, and reporting every failure and nothing else.

        Building a Message per delivery costs a fifth of a send, so success is learnt from the queue running empty.
        """
        return self._producer({
            **self._common,
            "enable.idempotence": True,
            "error_cb": self.health.heard,
            "linger.ms": linger_ms,
            "queue.buffering.max.messages": PRODUCER_RECORDS_MAX,
            "delivery.report.only.error": True,
            "message.timeout.ms": 0,
            "topic.metadata.propagation.max.ms": 5_000,
        })  # fmt: skip

    def _producer(self, properties: dict[str, Any]) -> Producer:
        return _made(partial(Telling, self.health), properties)

    def consumer(self, **options: Any) -> Consumer:
        """For logs: positions are ours, no offset is ever the truth, nothing is ever reset."""
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
        """For the share of a topic that a consumer group suggests."""
        protocol = self.settings.group_protocol
        if protocol == "consumer":
            share = {"group.remote.assignor": "range"}
        else:
            share = {"partition.assignment.strategy": "cooperative-sticky"}
        return self.consumer(**{"group.id": group, "group.protocol": protocol, **share})


def _made(kind: Callable[[dict[str, Any]], Client], properties: dict[str, Any]) -> Client:
    """A client; InvalidSettings when librdkafka does not take what the user has set."""
    try:
        return kind(properties)
    except KafkaException as error:
        raise InvalidSettings(f"setting 'client' (KONVERSE_CLIENT): {error.args[0].str()}") from None


def has_joined(consumer: Consumer) -> bool:
    """Whether its group has taken it in, with or without partitions: it has a generation of the group then."""
    told: object = consumer.consumer_group_metadata()  # as librdkafka writes it: "CGMDv2:", the generation, names
    return isinstance(told, bytes) and int.from_bytes(told[7:11], sys.byteorder, signed=True) > 0


def acquaint(producer: Producer, topic: str) -> None:
    """Let a new idempotent producer get to know its brokers. `topic` exists.

    What is produced before that waits half a second: librdkafka 2.16 asks for an id, knows no broker that is up, and
    rests.
    """
    with suppress(KafkaException):  # whoever produces hears what is wrong
        producer.list_topics(topic, timeout=ACQUAINTANCE_S)


def discard(producer: Producer) -> None:
    """Let a producer go that may have failed for good; what it still has is reported as not delivered."""
    producer.purge()
    try:
        producer.flush(1)
    except KafkaException:
        log.debug("the failed producer is dropped", exc_info=True)


class Health:
    """The latest trouble of the clients of one connection."""

    def __init__(self) -> None:
        self._trouble: tuple[str, float] | None = None
        self._fatal: KafkaError | None = None

    def heard(self, error: KafkaError) -> None:
        """Librdkafka's error callback. It goes on by itself; one word of many brokers' means little."""
        if error.code() != KafkaError._ALL_BROKERS_DOWN or self._trouble is None:  # noqa: SLF001  # says less than it
            self._trouble = (error.str(), time.monotonic())

    def died(self, error: KafkaError) -> None:
        """A producer has failed for good, and this is why."""
        self._fatal = error

    def cause(self, error: KafkaError) -> KafkaError:
        """The reason for which a producer failed, where this error says no more than that one did."""
        return self._fatal if self._fatal is not None and error.code() in _BEHIND else error

    @property
    def troubled(self) -> bool:
        """Whether there was any."""
        return self._trouble is not None

    def __str__(self) -> str:
        """The last trouble and its age."""
        if self._trouble is None:
            return "none was reported"
        text, at = self._trouble
        return f"{text}, {time.monotonic() - at:.0f} s ago"


class Telling(Producer):
    """A producer that tells the reason when it fails for good.

    Librdkafka raises the reason once, from whichever call polls first. All later calls raise "Local: Fatal error", and
    records that wait are reported as purged.
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
            self._health.died(error.args[0])
        return error
