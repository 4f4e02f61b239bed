"""Creates Kafka clients: the configuration of each kind, and the exceptions that its events and failures become.

Configurations were chosen by measurement: see the comments. All clients share one throttled logger, so that a broker
that is down does not flood the terminal.

`DesertionWatch` finds clients that have lost all brokers for good.

`Health` keeps the latest error that producers reported, for log lines that say why something waits.
"""

from __future__ import annotations

import gc
import logging
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, ClusterMetadata, ConfigResource, ResourceType

from konverse.bridge.runtime.log_throttle import LogThrottle, RepeatedLines
from konverse.bridge.runtime.settings import Settings
from konverse.bridge.runtime.shutdown import SHUTDOWN_FILTER
from konverse.bridge.runtime.threads import in_background
from konverse.schemas.errors import InvalidSettings, KafkaUnavailable

from .refusals import Need, denied, is_refusal, unavailable, words
from .topic_faults import too_small

log: Final = logging.getLogger("konverse.kafka")
FETCH_RECORDS: Final = 1_000
"""Records taken from a consumer at a time. A larger batch would leave the CPU's caches before it is folded."""
NO_GROUP: Final[int] = KafkaError.GROUP_AUTHORIZATION_FAILED
"""Error to ignore for a consumer that needs no group: the client looks for a group coordinator nevertheless."""
PRODUCER_RECORDS_MAX: Final = 500_000
"""Number of records that may wait in a producer; it refuses further ones."""
CONNECT_WAIT_S: Final = 0.25
"""How long a new producer may take to connect to its brokers before it is used."""
SETTING_LOOKUP_S: Final = 2.0
"""How long to wait for Kafka to report the topic setting that explains an error."""
RETRY_EVERY_S: Final = 2.5
"""How long an admin request may wait for its answer before it is sent again."""
ANSWER_S_MIN: Final = 0.1
"""Shortest time allowed for an answer."""
_LOST: Final = frozenset({KafkaError._DESTROY, KafkaError._DESTROY_BROKER, KafkaError._TIMED_OUT})  # noqa: SLF001
"""Client errors for a request that no broker has answered, for instance because its client was replaced."""
_UNHEARD: Final = frozenset({KafkaError._TRANSPORT, KafkaError._TIMED_OUT})  # noqa: SLF001
"""Client errors of a list of topics: no broker is connected, and none has answered in time."""
ADMIN_KEPT_S: Final = 10.0
"""An admin client is replaced at most this often, so that requests of the former one can end."""
QUIET_S: Final = 10.0
"""A client that has delivered nothing for this long is asked for its brokers, and then again at this interval."""
PROBE_S: Final = 2.0
"""How long a client may take to reach a broker while others do. It pauses at most 1 s between two attempts."""
ELECTING: Final = frozenset({
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_LEADER_EPOCH,  # the client knows of an election before the broker does
    KafkaError.FENCED_LEADER_EPOCH,
})  # fmt: skip
"""Errors for a partition that is being created or is electing a leader: a broker will serve it soon."""
_CUT: Final = KafkaError(KafkaError._LOG_TRUNCATION).str()  # noqa: SLF001
"""Part of the client's text when a new leader's log ends before the client's position. The error's code does not say
so."""
_CUT_AT: Final = re.compile(r"broker end offset is (\d+)")
_AGAIN_S: Final = 0.05
"""Pause before a request about a partition without a leader is sent again."""
Answer = TypeVar("Answer")
Client = TypeVar("Client")
Headers = dict[str, str | bytes | None]
"""Headers as `produce` takes them."""
SILENT_S: Final = 2.0
"""A call that has to wait longer than this for Kafka logs it."""
_FOLLOW_UP_ERRORS: Final = frozenset({KafkaError._FATAL, KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})  # noqa: SLF001
"""Errors that a producer reports after a fatal error. They do not say the reason."""


log.addHandler(logging.NullHandler())


log.addFilter(SHUTDOWN_FILTER)


log.addFilter(RepeatedLines())


class LogTruncated(Exception):
    """The requested offset is not in the log."""


class EndCut(LogTruncated):
    """The log lost its end: its leader lacks records that were read (unclean election). It may have others instead."""

    def __init__(self, text: str, at: int) -> None:
        super().__init__(text)
        self.at = at
        """Offset of the first lost record; 0 when it is unknown."""

    @classmethod
    def of_client(cls, text: str) -> EndCut:
        """Make the exception from the client's error text, which may name the end of the new leader's log."""
        found = _CUT_AT.search(text)
        return cls(text, int(found[1]) if found else 0)


class ConsumerFailed(KafkaUnavailable):
    """A consumer has failed for good and must be replaced, for instance because Kafka has lost its group."""


class Kafka:
    """Creates clients for one cluster."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.health = Health()
        """Fed by producers only: other clients may go unpolled for a long time, and their reports would pile up."""
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
        """Kafka's time as last requested, and `runtime.clock.now_ms` just before the request (see `kafka_time_ms`)."""
        self._admin = _made(AdminClient, self._common)
        self._former_admin: AdminClient | None = None
        """Kept until the next one is replaced, because a discarded client cancels its requests."""
        self._replace_admin_at = 0.0
        self._replacing = threading.Lock()

    @property
    def admin(self) -> AdminClient:
        """For requests to Kafka. Do not keep it: `metadata` replaces a client that has no broker."""
        return self._admin

    def unavailable(self, what: str, error: KafkaException | KafkaError, need: Need) -> KafkaUnavailable:
        """Error for a call that Kafka did not answer, or AccessDenied when this process's principal lacks `need`."""
        cause = error.args[0] if isinstance(error, KafkaException) else error
        return unavailable(what, self.health.cause(cause), need, self.settings.client)

    def write_refused(self, topic: str, error: KafkaException | KafkaError) -> KafkaUnavailable:
        """Error for a record that could not be written to a topic."""
        return self.unavailable(f"no record can be written to {topic}", error, Need.topic("WRITE", topic))

    def check_written(self, topic: str, outcomes: Iterable[object]) -> None:
        """Raise AccessDenied when the outcome of a record for the topic is an authorization error."""
        for outcome in outcomes:
            if isinstance(outcome, KafkaError) and is_refusal(self.health.cause(outcome)):
                raise self.write_refused(topic, outcome)

    def words(self, error: object, need: Need) -> str:
        """Text for a log line about an error: the missing right or wrong topic setting, else the client's own text."""
        error = error.args[0] if isinstance(error, KafkaException) else error
        if not isinstance(error, KafkaError):
            return str(error)
        error = self.health.cause(error)
        if error.code() == KafkaError.MSG_SIZE_TOO_LARGE and need.name:
            why = too_small(self.settings.bootstrap, need.name, self._max_message_bytes(need.name))
            return error.str() if why is None else f"{error.str()}: {why}"
        return words(error, need, self.settings.client)

    def _max_message_bytes(self, topic: str) -> str | None:
        """The topic's `max.message.bytes`; None when Kafka does not answer."""
        resource = ConfigResource(ResourceType.TOPIC, topic)
        try:
            asked = self.admin.describe_configs([resource], request_timeout=SETTING_LOOKUP_S)[resource]
            return str(asked.result(SETTING_LOOKUP_S)["max.message.bytes"].value)
        except (KafkaException, TimeoutError, KeyError):
            return None

    def check_event(self, message: Message, group: str = "") -> None:
        """Raise the exception for a consumer's error event, if needed. `group`: the group that the consumer joins.

        Raises LogTruncated, EndCut, ConsumerFailed, AccessDenied, KafkaUnavailable.
        """
        error = message.error()
        assert error is not None
        if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):  # noqa: SLF001
            raise EndCut.of_client(error.str()) if _CUT in error.str() else LogTruncated(error.str())
        if error.fatal() or error.code() == KafkaError._FATAL:  # noqa: SLF001
            raise ConsumerFailed(f"Kafka's client has failed for good: {error.str()}")
        topic = message.topic()
        of_group = error.code() == NO_GROUP
        if of_group and not group:  # the client looks for a group by itself, and reads without one
            return
        need = Need.of_member(error, str(topic), group)
        refused = denied(f"{need.resource} cannot be read", error, need, self.settings.client)
        if refused is not None:
            raise refused
        if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise KafkaUnavailable(f"Kafka refuses to serve {topic}: {error.str()}")

    def answer(self, ask: Callable[[float], Future[Answer]], asked: Future[Answer] | None = None) -> Answer:
        """Kafka's answer to an admin request, which is repeated until `connect_timeout_s` has passed.

        The client loses requests: it drops them when it replaces its bootstrap connection by one to the same broker
        under the broker's id, and it can wait for a controller that only fresh metadata would reveal. A broker refuses
        requests about a partition that was just created and has no leader yet.

        `ask` sends the request, given its time-out in seconds; sending it twice must be harmless. `asked` is the
        pending answer if the request was already sent once. Raises KafkaException when Kafka refuses the request, or
        does not answer in time.
        """
        deadline = time.monotonic() + self.settings.connect_timeout_s
        left = self.settings.connect_timeout_s
        while True:
            try:
                return (asked or ask(min(left, RETRY_EVERY_S))).result()
            except KafkaException as error:
                left, code = deadline - time.monotonic(), error.args[0].code()
                if left <= 0 or code not in _LOST | ELECTING:
                    raise
                if code in ELECTING:
                    time.sleep(_AGAIN_S)
            asked = None
            self.metadata(left)
            left = max(ANSWER_S_MIN, deadline - time.monotonic())

    def metadata(self, timeout_s: float | None = None) -> ClusterMetadata:
        """Kafka's list of its brokers and topics, within `timeout_s` (default: `connect_timeout_s`).

        Replaces an admin client that has no broker. Kafka lists no broker while all are fenced, as happens for a moment
        after a pause. A client that gets such a list forgets every broker, and librdkafka 2.16 does not always return
        to the bootstrap addresses. Raises KafkaException when Kafka does not answer in time.
        """
        deadline = time.monotonic() + (self.settings.connect_timeout_s if timeout_s is None else timeout_s)
        wait_s = RETRY_EVERY_S
        while True:
            client, left = self._admin, max(ANSWER_S_MIN, deadline - time.monotonic())
            try:
                return client.list_topics(timeout=min(left, wait_s))
            except KafkaException as error:
                code = error.args[0].code()
                if code == KafkaError._TRANSPORT:  # noqa: SLF001
                    self._replace_admin(client)
                if code not in _UNHEARD or time.monotonic() >= deadline:
                    raise
            wait_s *= 2

    def _replace_admin(self, client: AdminClient) -> None:
        with self._replacing:
            if self._admin is client and time.monotonic() >= self._replace_admin_at:
                self._former_admin, self._admin = client, _made(AdminClient, self._common)
                self._replace_admin_at = time.monotonic() + ADMIN_KEPT_S

    def is_deserted(self, client: Producer | Consumer, topic: str | None = None) -> bool:
        """Whether a client has no broker although Kafka answers others (see `metadata`). Takes up to 3 x PROBE_S.

        The client asks for all topics, or for `topic` alone, which costs Kafka less.
        """
        try:
            client.list_topics(topic, timeout=PROBE_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._TRANSPORT:  # noqa: SLF001
                return False
            with suppress(KafkaException):
                self.metadata(2 * PROBE_S)  # the admin client may have to be replaced first
                return True
        return False

    def check(self) -> None:
        """Raise KafkaUnavailable when no broker answers."""
        try:
            self.metadata()
        except KafkaException as error:
            raise KafkaUnavailable(
                f"no Kafka broker answers at {self.settings.bootstrap} ({error.args[0].name()}). "
                "Start one (`konverse stack up`), or correct the address"
            ) from None

    def journal_producer(self, timeout_s: float | None = None) -> Producer:
        """For appends: sent at once, with an answer or an error within `timeout_s` (default: `append_timeout_s`)."""
        return self._producer({
            **self._common,
            "enable.idempotence": True,
            "error_cb": self.health.note_error,
            "linger.ms": 0,
            "socket.nagle.disable": True,
            "message.timeout.ms": max(1, round((timeout_s or self.settings.append_timeout_s) * 1000)),
        })  # fmt: skip

    def plain_producer(self, timeout_s: float) -> Producer:
        """For records that may be duplicated: a new producer without idempotence answers half a second sooner."""
        return self._producer({
            **self._common,
            "error_cb": self.health.note_error,
            "linger.ms": 0,
            "message.timeout.ms": max(1, round(timeout_s * 1000)),
        })  # fmt: skip

    def data_producer(self, *, linger_ms: int) -> Producer:
        """For data records: idempotent, without a time-out, and with reports of failures only.

        A delivery report for each record would cost a fifth of a send. Instead, a producer that has run empty proves
        success.
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
        """For reading logs: konverse sets all positions; the client commits no offsets and never resets a position."""
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
        """For the share of a topic's partitions that a consumer group suggests."""
        protocol = self.settings.group_protocol
        if protocol == "consumer":
            share = {"group.remote.assignor": "range"}
        else:
            share = {"partition.assignment.strategy": "cooperative-sticky"}
        return self.consumer(**{"group.id": group, "group.protocol": protocol, **share})


_REFUSED_PROPERTIES: Final = {KafkaError._INVALID_ARG, KafkaError._CONFLICT}  # noqa: SLF001  # librdkafka's own codes


def _made(kind: Callable[[dict[str, Any]], Client], properties: dict[str, Any]) -> Client:
    """Create a client.

    Raises InvalidSettings when librdkafka refuses the user's properties, KafkaUnavailable when this process has no
    thread, thread-local key, file or memory for the client.
    """
    try:
        return _created(kind, properties)
    except RuntimeError as error:
        raise KafkaUnavailable(
            f"cannot create a Kafka client: {error}. This process has too many clients: close some, or use fewer "
            "brokers and readers"
        ) from None
    except KafkaException as error:
        cause = error.args[0]
        if cause.code() in _REFUSED_PROPERTIES:
            raise InvalidSettings(f"setting 'client' (KONVERSE_CLIENT): {cause.str()}") from None
        raise KafkaUnavailable(
            f"cannot create a Kafka client: {cause.str()}. Free threads, files or memory of this process, or raise its "
            "limits (`ulimit`, or those of the container)"
        ) from None


def _created(kind: Callable[[dict[str, Any]], Client], properties: dict[str, Any]) -> Client:
    """Create a client; if no thread-local key is left, run Python's garbage collector and try once more.

    A process has 1,024 of these keys. A closed client keeps its key until the collector removes the client.
    """
    try:
        return kind(properties)
    except RuntimeError:
        gc.collect()
        return kind(properties)


class DesertionWatch:
    """Finds out whether a client has lost all brokers for good.

    Such a client reports no error. So a client that delivers nothing for a while is asked for metadata, in a separate
    thread, because that takes seconds.
    """

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        self._ask_at = time.monotonic() + QUIET_S
        self._asked: Consumer | Producer | None = None
        self._thread: threading.Thread | None = None
        self._deserted = False

    def heard(self) -> None:
        """Note that the client has a broker, or nothing to do."""
        self._ask_at = time.monotonic() + QUIET_S

    def brought(self, messages: Iterable[Message]) -> None:
        """Note messages of a consumer. Events about lost connections prove nothing."""
        if any(message.error() is None for message in messages):
            self.heard()

    def finds(self, client: Consumer | Producer, topic: str) -> bool:
        """Whether the client was found deserted. Call it often. It asks for the metadata of `topic`, and never waits.

        Returns True once; the caller then replaces the client.
        """
        if self._thread is not None:
            if self._thread.is_alive():
                return False
            asked, self._asked, self._thread = self._asked, None, None
            self.heard()
            return self._deserted and asked is client
        if time.monotonic() >= self._ask_at:
            self._asked, self._deserted = client, False
            self._thread = in_background("konverse-desertion", lambda: self._ask(client, topic))
        return False

    def wait(self) -> None:
        """Wait until no client is being asked. Closing a consumer earlier would free a client that is still in use."""
        thread = self._thread
        if thread is not None:
            thread.join()

    def _ask(self, client: Consumer | Producer, topic: str) -> None:
        self._deserted = self._kafka.is_deserted(client, topic)


def has_joined(consumer: Consumer) -> bool:
    """Whether the group has admitted the consumer, with or without partitions: then it knows the group's generation.

    Call it without a lock that a callback of the consumer takes: librdkafka answers when its callbacks have returned.
    """
    try:
        told: object = consumer.consumer_group_metadata()  # as librdkafka writes it: "CGMDv2:", the generation, names
    except RuntimeError:  # another thread has closed the consumer
        return False
    return isinstance(told, bytes) and int.from_bytes(told[7:11], sys.byteorder, signed=True) > 0


def connect_producer(producer: Producer, topic: str) -> None:
    """Let a new idempotent producer connect to its brokers. `topic` has to exist.

    A record that is produced earlier waits half a second: librdkafka 2.16 needs a producer id, finds no broker that is
    up, and pauses.
    """
    with suppress(KafkaException):  # the next `produce` reports the error
        producer.list_topics(topic, timeout=CONNECT_WAIT_S)


def discard(producer: Producer) -> None:
    """Discard a producer that may have failed for good. Its remaining records are reported as not delivered."""
    producer.purge()
    try:
        producer.flush(1)
    except KafkaException:
        log.debug("the failed producer is discarded", exc_info=True)


class NoProducer(Producer):
    """Takes the place of a discarded producer, so that the real one is released with its threads and sockets at once.

    It has no records and takes none.
    """

    def __init__(self) -> None:
        """Create no client."""

    def __len__(self) -> int:
        return 0

    def produce(self, *_: Any, **__: Any) -> None:
        """Raises BufferError."""
        raise BufferError("the producer was closed")

    def poll(self, timeout: float = -1) -> int:  # noqa: ARG002  # as `Producer.poll`
        """No event."""
        return 0

    def flush(self, timeout: float = -1) -> int:  # noqa: ARG002  # as `Producer.flush`
        """No record remains."""
        return 0

    def purge(self, *_: Any, **__: Any) -> None:
        """Nothing to purge."""


class Health:
    """The latest error of one connection's producers."""

    def __init__(self) -> None:
        self._trouble: tuple[str, float] | None = None
        self._fatal: KafkaError | None = None

    def note_error(self, error: KafkaError) -> None:
        """Error callback of librdkafka, which recovers from these errors by itself."""
        if error.code() != KafkaError._ALL_BROKERS_DOWN or self._trouble is None:  # noqa: SLF001  # the least specific
            self._trouble = (error.str(), time.monotonic())

    def note_death(self, error: KafkaError) -> None:
        """Keep the reason of a producer's fatal error."""
        self._fatal = error

    def cause(self, error: KafkaError) -> KafkaError:
        """The reason of a producer's fatal error when `error` only says that it failed; else `error` itself."""
        return self._fatal if self._fatal is not None and error.code() in _FOLLOW_UP_ERRORS else error

    @property
    def troubled(self) -> bool:
        """Whether any error was reported."""
        return self._trouble is not None

    def __str__(self) -> str:
        """The latest error and its age."""
        if self._trouble is None:
            return "none was reported"
        text, at = self._trouble
        return f"{text}, {time.monotonic() - at:.0f} s ago"


class ReportingProducer(Producer):
    """A producer that saves the reason of its fatal error in `Health`.

    The client raises the reason only once, from the first call that polls. All later calls raise "Local: Fatal error",
    and waiting records are reported as purged.
    """

    def __init__(self, health: Health, properties: dict[str, Any]) -> None:
        super().__init__(properties)
        self._health = health

    def poll(self, timeout: float = -1) -> int:
        """As `Producer.poll`, and save the reason of a fatal error. Raises KafkaException."""
        try:
            return super().poll(timeout)
        except KafkaException as error:
            raise self._told(error) from None

    def flush(self, timeout: float = -1) -> int:
        """As `Producer.flush`, and save the reason of a fatal error. Raises KafkaException."""
        try:
            return super().flush(timeout)
        except KafkaException as error:
            raise self._told(error) from None

    def _told(self, error: KafkaException) -> KafkaException:
        if error.args[0].fatal():
            self._health.note_death(error.args[0])
        return error
