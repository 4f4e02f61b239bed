"""Kafka clients of one process: how each kind is configured, and reading a range of a log.

Configurations follow measurements: see the comments. All clients share one logger, so that a broker which is down does
not flood the terminal.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from konverse.schemas.errors import InvalidSettings, KafkaUnavailable

from .departing import DEPARTING
from .health import Health, Telling
from .misfits import too_small
from .refusals import Need, denied, is_refusal, unavailable, words
from .seldom import Repeated, Seldom
from .settings import Settings

log: Final = logging.getLogger("konverse.kafka")
log.addHandler(logging.NullHandler())
log.addFilter(DEPARTING)
log.addFilter(Repeated())

FETCH_RECORDS: Final = 1_000
"""Records taken from a consumer at a time; more of them leave the caches before they are folded."""


NO_GROUP: Final[int] = KafkaError.GROUP_AUTHORIZATION_FAILED
"""Means nothing to a consumer that needs no group: by itself it looks for the coordinator of one."""


PRODUCER_RECORDS_MAX: Final = 500_000
"""Records that wait in a producer of ours; above, it takes none."""


ACQUAINTANCE_S: Final = 0.25
"""How long a producer that is used at once may take to get to know its brokers."""

READ_WAIT_MS: Final = 10
"""What ranges are read of is there already: a fetch behind it would only keep the next question waiting."""

_SETTLING: Final = frozenset({
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001  # one of several has no leader yet
})  # fmt: skip
"""What a broker says of a topic that it does not serve yet."""


SETTING_S: Final = 2.0
"""So long an error waits for the setting that explains it."""

Client = TypeVar("Client")


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


class LogReader:
    """Reads ranges of partitions, one at a time.

    A client that failed once is not used again: after a broker hung, librdkafka 2.16 may answer "unknown partition"
    for as long as it lives.
    """

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        self._timeout_s = kafka.settings.connect_timeout_s
        self._known: set[str] = set()
        self._failed = False
        self._consumer = self._fresh()

    def _fresh(self) -> Consumer:
        return self._kafka.consumer(**{"enable.partition.eof": True, "fetch.wait.max.ms": READ_WAIT_MS})

    def _client(self) -> Consumer:
        if self._failed:
            self._consumer.close()
            self._consumer = self._fresh()
            self._known.clear()
            self._failed = False
        return self._consumer

    def _unavailable(self, what: str, error: KafkaException, topic: str) -> KafkaUnavailable:
        self._failed = True
        return self._kafka.unavailable(what, error, Need.topic("READ", topic))

    def ends(self, topic: str, partition: int) -> tuple[int, int]:
        """First offset of the log and its end. A topic that was created just now may need a moment."""
        deadline = time.monotonic() + self._timeout_s
        consumer = self._client()
        self._make_known(topic)
        while True:
            try:
                return consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=self._timeout_s)
            except KafkaException as error:
                if error.args[0].code() not in _SETTLING or time.monotonic() > deadline:
                    raise self._unavailable(f"the ends of {topic}/{partition} cannot be read", error, topic) from None
            time.sleep(0.05)

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int:
        """Offset of the first record that is not older; the end of the log when all are."""
        asked = TopicPartition(topic, partition, timestamp_ms)
        try:
            (found,) = self._client().offsets_for_times([asked], timeout=self._timeout_s)
        except KafkaException as error:
            raise self._unavailable(f"times in {topic}/{partition} cannot be looked up", error, topic) from None
        return found.offset if found.offset >= 0 else self.ends(topic, partition)[1]

    def read(self, topic: str, partition: int, start: int, end: int) -> Generator[tuple[list[Message], int]]:
        """Chunks of records from `start` up to before `end`, each with the offset where the log goes on."""
        if start >= end:
            return
        consumer = self._client()
        self._make_known(topic)
        consumer.assign([TopicPartition(topic, partition, start)])
        try:
            at, progress = start, time.monotonic()
            while at < end:
                message = consumer.poll(max(0.0, progress + self._timeout_s - time.monotonic()))
                before, found = at, [message, *consumer.consume(FETCH_RECORDS, 0)] if message is not None else []
                messages, at = self._usable(found, at)
                if at > before:
                    yield [m for m in messages if (m.offset() or 0) < end], min(at, end)
                    progress = time.monotonic()  # whoever reads may have taken long with it
                elif message is None or time.monotonic() > progress + self._timeout_s:  # whatever else the client says
                    self._failed = True
                    raise KafkaUnavailable(
                        f"{topic}/{partition} gave nothing at {at} of {end} for {self._timeout_s} s{_said(message)}"
                    )
        finally:
            consumer.unassign()

    def _usable(self, messages: list[Message], at: int) -> tuple[list[Message], int]:
        try:
            return self._records(messages, at)
        except KafkaUnavailable:
            self._failed = True
            raise

    def _records(self, messages: list[Message], at: int) -> tuple[list[Message], int]:
        """Records without the events between them, and where the log goes on."""
        records = []
        for message in messages:
            error = message.error()
            if error is None:
                records.append(message)
                at = (message.offset() or 0) + 1
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001  # the client's public name for it
                at = max(at, message.offset() or 0)
            else:
                self._kafka.check_event(message)
        return records, at

    def _make_known(self, topic: str) -> None:
        """Ask for the topic's leaders: by itself the client looks for those of a further topic once a second only."""
        if topic not in self._known:
            try:
                self._consumer.list_topics(topic, self._timeout_s)
            except KafkaException as error:
                raise self._unavailable(f"the leaders of {topic} cannot be learnt", error, topic) from None
            self._known.add(topic)

    def close(self) -> None:
        """Close the client."""
        self._consumer.close()


def _said(event: Message | None) -> str:
    error = event.error() if event is not None else None
    return f": {error.str()}" if error is not None else ""


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


Headers = dict[str, str | bytes | None]
"""What `produce` takes."""
