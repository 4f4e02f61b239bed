"""The catalog of an instance: message types, contracts, queues and services, kept in a journal of its own.

A change carries the offset that it expects to get and is valid iff it got it (protocol.md section 2.1). Two
administrators at once therefore never lose a change: the later one reads, checks again and appends again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, TypeVar

from confluent_kafka import KafkaException

from konverse.schemas.catalog import (
    DEFAULT,
    DIALOG_TIMER,
    END_DIALOG,
    ERROR,
    CatalogObject,
    Change,
    Contract,
    MessageType,
    Queue,
    SentBy,
    Service,
    decode_change,
    encode_change,
)
from konverse.schemas.errors import (
    ContractNotFound,
    MalformedRecord,
    MessageTypeNotFound,
    NotInContract,
    OutcomeUnknown,
    QueueNotFound,
    ServiceNotFound,
    TopicMismatch,
    UnknownObject,
    WrongDirection,
)
from konverse.schemas.identifiers import catalog_topic
from konverse.schemas.records import Role

from .kafka import Kafka, LogReader, LogTruncated, unavailable
from .topics import JOURNAL_CONFIG, Topics

Object = TypeVar("Object", bound=CatalogObject)

_MISSING: Final[dict[type, type[UnknownObject]]] = {
    MessageType: MessageTypeNotFound,
    Contract: ContractNotFound,
    Queue: QueueNotFound,
    Service: ServiceNotFound,
}

_KINDS: Final[dict[type[object], str]] = {
    MessageType: "message type",
    Contract: "contract",
    Queue: "queue",
    Service: "service",
}

_DEFINITION: Final[dict[type[object], tuple[str, ...]]] = {
    MessageType: ("validation",),
    Contract: ("sent_by",),
    Queue: ("partitions", "keep_ms"),
    Service: ("queue", "contracts"),
}
"""What whoever creates an object has said of it."""

SYSTEM_TYPES: Final = frozenset({END_DIALOG, ERROR, DIALOG_TIMER})

_BORN_WITH: Final[dict[tuple[str, str], CatalogObject]] = {
    ("message type", DEFAULT): MessageType(DEFAULT),
    ("contract", DEFAULT): Contract(DEFAULT, {DEFAULT: SentBy.ANY}),
}


def kind_of(value: type[object]) -> str:
    """The word for an object's class: `message type`, `contract`, `queue` or `service`."""
    return _KINDS[value]


def differences(found: CatalogObject, wanted: CatalogObject) -> str:
    """In which part of its definition an object is another than the one that was wanted; empty when in none."""
    words = []
    for name in _DEFINITION[type(found)]:
        is_, should_be = getattr(found, name), getattr(wanted, name)
        if isinstance(is_, tuple):  # contracts: their order means nothing
            is_, should_be = sorted(is_), sorted(should_be)
        if is_ != should_be:
            words.append(f"{name} {_said(is_)}, not {_said(should_be)}")
    return "; ".join(words)


def _said(value: object) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name!r}: {side.value!r}" for name, side in sorted(value.items())) + "}"
    return repr(value)


class Catalog:
    """What is known of one database, read from the catalog journal and re-read when something is missing."""

    def __init__(self, kafka: Kafka, instance: str, database: str) -> None:
        self.instance = instance
        self.database = database
        self._kafka = kafka
        self._topic = catalog_topic(instance)
        self._topics = Topics(kafka)
        self._lock = threading.RLock()
        self._objects: dict[str, dict[tuple[str, str], CatalogObject]] = {}
        self._position = 0
        self._topic_id = b""
        self._reader: LogReader | None = None
        self._allowed: dict[tuple[str, Role, str], bool] = {}

    # ------------------------------------------------------------------------------------------------------- read

    def find(self, kind: type[Object], name: str) -> Object | None:
        """The object of that name, or None; reads what others have changed before it says None."""
        found = self._known(kind, name)
        if found is None:
            self.refresh()
            found = self._known(kind, name)
        return found

    def get(self, kind: type[Object], name: str) -> Object:
        """The object of that name, or the error that says it does not exist."""
        found = self.find(kind, name)
        if found is None:
            word = kind_of(kind)
            raise _MISSING[kind](
                f"there is no {word} {name!r} in database {self.database!r}; names are compared byte by byte. "
                f"Create it with broker.create_{word.replace(' ', '_')}(…)"
            )
        return found

    def all(self, kind: type[Object]) -> list[Object]:
        """All objects of a kind, by name."""
        self.refresh()
        with self._lock:
            objects = {**_BORN_WITH, **self._objects.get(self.database, {})}
        return sorted((o for o in objects.values() if isinstance(o, kind)), key=lambda o: o.name)

    def databases(self) -> list[str]:
        """Names of the databases of this instance that something was created in."""
        self.refresh()
        with self._lock:
            return sorted(name for name, objects in self._objects.items() if name and objects)

    def check_send(self, contract: str, role: Role, message_type: str) -> None:
        """Raise unless that side may send that type under the contract (behaviours 45 to 47)."""
        if self._allowed.get((contract, role, message_type)):
            return
        if message_type in SYSTEM_TYPES:
            raise NotInContract(f"{message_type!r} is a system message, which nobody sends: use `end`")
        self.get(MessageType, message_type)
        sent_by = self.get(Contract, contract).sent_by.get(message_type)
        if sent_by is None:
            raise NotInContract(
                f"message type {message_type!r} is not in contract {contract!r}; "
                f"it has {', '.join(map(repr, self.get(Contract, contract).sent_by))}"
            )
        if not sent_by.allows(role):
            raise WrongDirection(
                f"contract {contract!r} lets only the {sent_by.value.lower()} send {message_type!r}, "
                f"and this side is the {role.name.lower()}"
            )
        self._allowed[contract, role, message_type] = True

    def refresh(self) -> None:
        """Read what was added to the journal since. Raises TopicMismatch when it is another one, or not whole."""
        with self._lock:
            reader = self._open()
            if self._topics.topic_id(self._topic) != self._topic_id:
                raise self._not_whole("was deleted and created again")
            _, end = reader.ends(self._topic, 0)
            if end < self._position:
                raise self._not_whole(f"ends at {end} and was read to {self._position}")
            try:
                for messages, position in reader.read(self._topic, 0, self._position, end):
                    for message in messages:
                        self._fold(message.offset() or 0, message.value() or b"")
                    self._position = position
            except LogTruncated:
                raise self._not_whole(f"does not hold offset {self._position} any more") from None

    # ------------------------------------------------------------------------------------------------------ change

    def change(self, name: str, decide: Callable[[], Object | None], kind: type[Object]) -> None:
        """Append what `decide` says (a new value, or None for a drop), deciding again whenever somebody was first.

        `decide` looks at the catalog and raises when the change may not be.
        """
        with self._lock:
            producer = self._kafka.journal_producer()
            while True:
                self.refresh()
                change = Change(self._position, self.database, kind_of(kind), name, decide())
                outcome: list[int | None] = []

                def on_delivery(error: Any, message: Any, outcome: list[int | None] = outcome) -> None:
                    outcome.append(None if error is not None else message.offset())

                try:
                    producer.produce(self._topic, encode_change(change), None, 0, on_delivery)
                    with suppress(KafkaException):  # then there is no answer
                        producer.flush(self._kafka.settings.append_timeout_s + 1)
                except KafkaException as error:
                    raise unavailable(f"{self._topic} takes no record", error) from None
                if not outcome or outcome[0] is None:
                    raise OutcomeUnknown(
                        f"whether the change of {change.kind} {name!r} was written is unknown: Kafka gave no answer. "
                        "Look whether it is there, then repeat it"
                    )
                if outcome[0] == change.expected_offset:
                    self.refresh()
                    return

    # ------------------------------------------------------------------------------------------------------ inside

    def _known(self, kind: type[Object], name: str) -> Object | None:
        key = (kind_of(kind), name)
        found = self._objects.get(self.database, {}).get(key, _BORN_WITH.get(key))
        return found if isinstance(found, kind) else None

    def _fold(self, offset: int, data: bytes) -> None:
        try:
            change = decode_change(data)
        except MalformedRecord:
            return
        if change.expected_offset != offset:
            return  # somebody else was first; its author appends again
        objects = self._objects.setdefault(change.database, {})
        if change.value is None:
            objects.pop((change.kind, change.name), None)
        else:
            objects[change.kind, change.name] = change.value
        self._allowed.clear()

    def _open(self) -> LogReader:
        if self._reader is None:
            self._topics.ensure(self._topic, 1, JOURNAL_CONFIG)
            self._topic_id = self._topics.topic_id(self._topic)
            self._reader = LogReader(self._kafka)
        return self._reader

    def _not_whole(self, what: str) -> TopicMismatch:
        return TopicMismatch(
            f"topic {self._topic}, which holds the catalog, {what}. Restore it from a backup, or connect again to go "
            "on with what it has now"
        )

    def close(self) -> None:
        """Close the client."""
        with self._lock:
            if self._reader is not None:
                self._reader.close()
                self._reader = None
