"""The objects of a database, and the catalog record that creates, changes or drops one (protocol.md 2.1).

The fold of a partition never reads the catalog; sessions, readers, owners and administrators do.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import Enum, StrEnum
from importlib.resources import files
from io import BytesIO
from typing import Any, Final, cast

from fastavro import parse_schema, schemaless_reader, schemaless_writer

from konverse.schemas.errors import ContractTwice, InvalidContract, InvalidValidation, MalformedRecord, TypeTwice
from konverse.schemas.identifiers import Address, LogIdentity, Role, check_name, incarnation_tag

from .priorities import BrokerPriority
from .routes import Route
from .routing_tables import RoutingTable, TableChange, change_of_avro, change_to_avro
from .schema_collections import XmlSchemaCollection, check_schema_size

KEEP_FOR_EVER: Final = -1
"""Value of `keep_ms` for a queue whose topics are never truncated."""
CATALOG_SCHEMA = parse_schema(json.loads(files("konverse.schemas").joinpath("catalog.avsc").read_text("utf-8")))


class SentBy(Enum):
    """Which side of a conversation may send a message type."""

    INITIATOR = "INITIATOR"
    TARGET = "TARGET"
    ANY = "ANY"

    def allows(self, role: Role) -> bool:
        """Whether the side `role` may send the message type."""
        return self is SentBy.ANY or self.value == role.name


SentByClause = Mapping[str, str | SentBy] | Sequence[tuple[str, str | SentBy]]
"""Message types of a contract, and the side that may send each."""


class Validation(StrEnum):
    """The check that the receiver of a message makes on its body."""

    NONE = "NONE"
    """Any body."""
    EMPTY = "EMPTY"
    """No body."""
    WELL_FORMED_XML = "WELL_FORMED_XML"
    """An XML document."""
    VALID_XML = "VALID_XML"
    """An XML document, valid by the schemas of a collection."""
    JSON_SCHEMA = "JSON_SCHEMA"
    """A JSON document in UTF-8, valid by a JSON Schema. An extension of konverse, like AVRO."""
    AVRO = "AVRO"
    """One datum in Avro's binary encoding, by an Avro schema."""

    @property
    def letter(self) -> str:
        """E, N or X, as RECEIVE shows it; J and A for JSON_SCHEMA and AVRO."""
        return _LETTERS[self]

    @property
    def takes_schema(self) -> bool:
        """Whether a message type with this validation has a schema of its own."""
        return self in (Validation.JSON_SCHEMA, Validation.AVRO)

    @property
    def is_xml(self) -> bool:
        """Whether it validates XML documents."""
        return self in (Validation.WELL_FORMED_XML, Validation.VALID_XML)


_LETTERS: Final = {
    Validation.NONE: "N",
    Validation.EMPTY: "E",
    Validation.WELL_FORMED_XML: "X",
    Validation.VALID_XML: "X",
    Validation.JSON_SCHEMA: "J",
    Validation.AVRO: "A",
}


@dataclass(frozen=True, slots=True)
class MessageType:
    """A message type, and the validation of its bodies."""

    name: str
    validation: Validation = Validation.NONE
    schema_collection: str = ""
    """For VALID_XML: name of the schema collection."""
    schema: str = ""
    """For JSON_SCHEMA and AVRO: the schema itself, a JSON document."""

    @classmethod
    def of(cls, name: str, validation: str | Validation, schema_collection: str = "", schema: str = "") -> MessageType:
        """The message type of that name.

        Raises InvalidValidation for an unknown validation, and for a schema that is missing or superfluous.
        """
        check_name("message type", name)
        try:
            value = cls(name, Validation(validation), schema_collection, schema)
        except ValueError:
            known = ", ".join(each.value for each in Validation)
            raise InvalidValidation(f"message type {name!r}: {validation!r} is not a validation; use {known}") from None
        for what, given, needed in (
            ("schema_collection", schema_collection, value.validation is Validation.VALID_XML),
            ("schema", schema, value.validation.takes_schema),
        ):
            if bool(given) != needed:
                raise InvalidValidation(
                    f"message type {name!r}: {value.validation} {'needs' if needed else 'has no'} {what}"
                )
        check_schema_size(f"message type {name!r}", [schema])
        return value


@dataclass(frozen=True, slots=True)
class Contract:
    """A contract: which message types each side may send."""

    name: str
    sent_by: Mapping[str, SentBy] = field(default_factory=dict)

    @classmethod
    def of(cls, name: str, sent_by: SentByClause) -> Contract:
        """The contract of that name; raises InvalidContract (behaviour 11), TypeTwice (12)."""
        check_name("contract", name)
        pairs = [*(sent_by.items() if isinstance(sent_by, Mapping) else sent_by)]
        if len({kind for kind, _ in pairs}) < len(pairs):
            raise TypeTwice(f"contract {name!r} names a message type twice; name each once")
        try:
            value = cls(name, {kind: SentBy(side) for kind, side in pairs})
        except ValueError as error:
            raise InvalidContract(f"contract {name!r}: {error}; use INITIATOR, TARGET or ANY") from None
        if not any(side is not SentBy.TARGET for side in value.sent_by.values()):
            raise InvalidContract(
                f"contract {name!r} gives the initiator nothing to send; let INITIATOR or ANY send at least one type"
            )
        return value


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue: its data topic, and the incarnation of its only subscription."""

    name: str
    topic: str
    subscription: str
    partitions: int
    incarnation: bytes
    data_topic_id: bytes
    journal_topic_id: bytes
    keep_ms: int = KEEP_FOR_EVER
    """How long received messages stay in the topics for other readers; -1: forever."""
    status: bool = True
    """STATUS. When off, nothing is delivered from the queue."""
    retention: bool = False
    """RETENTION."""
    poison_message_handling: bool = True
    """POISON_MESSAGE_HANDLING."""

    def address(self, partition: int) -> Address:
        """Destination of records for an endpoint in `partition`."""
        return Address(self.topic, partition, incarnation_tag(self.incarnation))

    def log_identity(self, partition: int) -> LogIdentity:
        """Identity of the logs of `partition`, which each CLAIM names."""
        return LogIdentity(self.topic, partition, self.incarnation, self.data_topic_id, self.journal_topic_id)


@dataclass(frozen=True, slots=True)
class Service:
    """A service: its queue, and the contracts by which it may be a target."""

    name: str
    queue: str
    contracts: tuple[str, ...] = ()
    queues_before: tuple[str, ...] = ()
    """Former queues, before ALTER SERVICE: conversations that began there stay until they have moved."""

    @classmethod
    def of(cls, name: str, queue: str, contracts: Iterable[str]) -> Service:
        """The service of that name; raises ContractTwice for a repeated contract (behaviour 18)."""
        value = cls(check_name("service", name), queue, tuple(contracts))
        if len(set(value.contracts)) != len(value.contracts):
            raise ContractTwice(f"service {name!r} names a contract twice; name each once")
        return value

    def on_queue(self, queue: str) -> Service:
        """The service, moved to this queue (behaviour 19)."""
        if queue == self.queue:
            return self
        before = [each for each in self.queues_before if each not in (queue, self.queue)]
        return replace(self, queue=queue, queues_before=(*before, self.queue))


@dataclass(frozen=True, slots=True)
class DatabaseBroker:
    """The entry of a database itself: its id, and whether its broker is enabled."""

    name: str
    """The database."""
    broker_id: str
    """`service_broker_guid`, in the usual form of a UUID: routes and dialogs name the database by it."""
    enabled: bool = True
    """`is_broker_enabled`: whether dialogs may begin in the database and with its services (behaviour 176)."""


CatalogObject = (
    DatabaseBroker
    | MessageType
    | XmlSchemaCollection
    | Contract
    | Queue
    | Service
    | Route
    | BrokerPriority
    | RoutingTable
)
Written = CatalogObject | TableChange
"""Content of a catalog record: the whole object; for a routing table, which may be large, only the change."""


@dataclass(frozen=True, slots=True)
class Change:
    """One CREATE or ALTER (`value` is the whole new value) or DROP (None); counts only at `expected_offset`."""

    expected_offset: int
    database: str
    kind: str
    name: str
    value: Written | None


def encode_change(change: Change) -> bytes:
    """The bytes of a catalog record."""
    out = BytesIO()
    fields = {
        "expected_offset": change.expected_offset,
        "database": change.database,
        "kind": change.kind,
        "name": change.name,
        "value": _to_avro(change.value),
    }
    schemaless_writer(out, CATALOG_SCHEMA, fields, strict=True)
    return out.getvalue()


def decode_change(data: bytes) -> Change:
    """The catalog record in `data`; MalformedRecord for anything else."""
    try:
        source = BytesIO(data)
        value = cast(
            "dict[str, Any]",
            schemaless_reader(source, CATALOG_SCHEMA, None, return_record_name=True, return_record_name_override=True),
        )
        if source.tell() != len(data):
            raise MalformedRecord("a catalog record with trailing bytes")
        return Change(
            value["expected_offset"], value["database"], value["kind"], value["name"], _from_avro(value["value"])
        )
    except MalformedRecord:
        raise
    except Exception as error:  # fastavro raises a dozen types for broken input; they all mean this
        raise MalformedRecord("a catalog record that is not Avro") from error


def _to_avro(value: Written | None) -> tuple[str, dict[str, Any]] | None:
    if value is None:
        return None
    if isinstance(value, TableChange):
        return "konverse.TableChange", change_to_avro(value)
    assert not isinstance(value, RoutingTable), "only changes of a routing table are written"
    fields = asdict(value)
    if isinstance(value, Contract):
        fields["sent_by"] = {name: sent_by.value for name, sent_by in value.sent_by.items()}
    elif isinstance(value, Service):
        fields["contracts"] = list(value.contracts)
        before = fields["queues_before"] = list(value.queues_before)
        if not before:  # keeps the record that was written before services could move
            del fields["queues_before"]
        return "konverse.MovedService" if before else "konverse.Service", fields
    elif isinstance(value, MessageType):
        fields["validation"] = value.validation.value
    elif isinstance(value, XmlSchemaCollection):
        fields["documents"] = list(value.documents)
    return f"konverse.{type(value).__name__}", fields


def _from_avro(value: tuple[str, dict[str, Any]] | None) -> Written | None:
    return None if value is None else _MADE_OF[value[0]](value[1])


_MADE_OF: Final[dict[str, Callable[[dict[str, Any]], Written]]] = {
    "konverse.MessageType": lambda fields: MessageType(**{**fields, "validation": Validation(fields["validation"])}),
    "konverse.XmlSchemaCollection": lambda fields: XmlSchemaCollection(fields["name"], tuple(fields["documents"])),
    "konverse.Contract": lambda fields: Contract(
        fields["name"], {key: SentBy(sent_by) for key, sent_by in fields["sent_by"].items()}
    ),
    "konverse.Queue": lambda fields: Queue(**fields),
    "konverse.Service": lambda fields: Service(fields["name"], fields["queue"], tuple(fields["contracts"])),
    "konverse.MovedService": lambda fields: Service(
        fields["name"], fields["queue"], tuple(fields["contracts"]), tuple(fields["queues_before"])
    ),
    "konverse.Route": lambda fields: Route(**fields),
    "konverse.BrokerPriority": lambda fields: BrokerPriority(**fields),
    "konverse.DatabaseBroker": lambda fields: DatabaseBroker(**fields),
    "konverse.TableChange": change_of_avro,
}
