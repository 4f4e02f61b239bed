"""The objects of a database, as values, and the journal record that changes one of them (protocol.md section 2.1).

Folds never read the catalog; it is for sessions, readers and administrators.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from importlib.resources import files
from io import BytesIO
from typing import Any, Final, cast

from fastavro import parse_schema, schemaless_reader, schemaless_writer

from .errors import ContractTwice, InvalidContract, MalformedRecord
from .identifiers import Address, check_name, incarnation_tag
from .records import Role

KEEP_FOR_EVER: Final = -1
"""A queue whose topics are never truncated."""

DEFAULT: Final = "DEFAULT"
"""Message type and contract that every database has (behaviour 8)."""

SYSTEM_NAMESPACE: Final = "http://schemas.microsoft.com/SQL/ServiceBroker/"
END_DIALOG: Final = SYSTEM_NAMESPACE + "EndDialog"
ERROR: Final = SYSTEM_NAMESPACE + "Error"
DIALOG_TIMER: Final = SYSTEM_NAMESPACE + "DialogTimer"


class SentBy(Enum):
    """Which side of a conversation may send a message type."""

    INITIATOR = "INITIATOR"
    TARGET = "TARGET"
    ANY = "ANY"

    def allows(self, role: Role) -> bool:
        """Whether the side `role` may send."""
        return self is SentBy.ANY or self.value == role.name


@dataclass(frozen=True, slots=True)
class MessageType:
    """A message type; bodies of validation NONE may be anything."""

    name: str
    validation: str = "NONE"


@dataclass(frozen=True, slots=True)
class Contract:
    """Which side may send which message types."""

    name: str
    sent_by: Mapping[str, SentBy] = field(default_factory=dict)

    @classmethod
    def of(cls, name: str, sent_by: Mapping[str, str | SentBy]) -> Contract:
        """The contract of that name; InvalidContract for one that cannot be (behaviour 11)."""
        check_name("contract", name)
        try:
            value = cls(name, {kind: SentBy(side) for kind, side in sent_by.items()})
        except ValueError as error:
            raise InvalidContract(f"contract {name!r}: {error}; use INITIATOR, TARGET or ANY") from None
        if not any(side is not SentBy.TARGET for side in value.sent_by.values()):
            raise InvalidContract(
                f"contract {name!r} gives the initiator nothing to send; let INITIATOR or ANY send at least one type"
            )
        return value


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue: its data topic, and the incarnation of its one subscription."""

    name: str
    topic: str
    subscription: str
    partitions: int
    incarnation: bytes
    data_topic_id: bytes
    journal_topic_id: bytes
    keep_ms: int = KEEP_FOR_EVER
    """How long what was received stays in the topics for others to read; -1: for ever."""

    def address(self, partition: int) -> Address:
        """Where records for an endpoint in `partition` go."""
        return Address(self.topic, partition, incarnation_tag(self.incarnation))


@dataclass(frozen=True, slots=True)
class Service:
    """A service: its queue, and the contracts for which it may be a target."""

    name: str
    queue: str
    contracts: tuple[str, ...] = ()

    @classmethod
    def of(cls, name: str, queue: str, contracts: Iterable[str]) -> Service:
        """The service of that name; ContractTwice for a contract that is named twice (behaviour 18)."""
        value = cls(check_name("service", name), queue, tuple(contracts))
        if len(set(value.contracts)) != len(value.contracts):
            raise ContractTwice(f"service {name!r} names a contract twice; name each once")
        return value


CatalogObject = MessageType | Contract | Queue | Service


@dataclass(frozen=True, slots=True)
class Change:
    """One CREATE (or ALTER: the new value) or DROP (`value` None), valid only at the offset that it expects."""

    expected_offset: int
    database: str
    kind: str
    name: str
    value: CatalogObject | None


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
            raise MalformedRecord("a catalog record with bytes behind its end")
        return Change(
            value["expected_offset"], value["database"], value["kind"], value["name"], _from_avro(value["value"])
        )
    except MalformedRecord:
        raise
    except Exception as error:  # fastavro raises a dozen types for broken input; they all mean this
        raise MalformedRecord("a catalog record that is not Avro") from error


def _to_avro(value: CatalogObject | None) -> tuple[str, dict[str, Any]] | None:
    if value is None:
        return None
    fields = asdict(value)
    if isinstance(value, Contract):
        fields["sent_by"] = {name: sent_by.value for name, sent_by in value.sent_by.items()}
    if isinstance(value, Service):
        fields["contracts"] = list(value.contracts)
    return f"konverse.{type(value).__name__}", fields


def _from_avro(value: tuple[str, dict[str, Any]] | None) -> CatalogObject | None:
    if value is None:
        return None
    name, fields = value
    if name == "konverse.Contract":
        return Contract(fields["name"], {key: SentBy(sent_by) for key, sent_by in fields["sent_by"].items()})
    if name == "konverse.Service":
        return Service(fields["name"], fields["queue"], tuple(fields["contracts"]))
    return MessageType(**fields) if name == "konverse.MessageType" else Queue(**fields)


CATALOG_SCHEMA = parse_schema(json.loads(files("konverse.schemas").joinpath("catalog.avsc").read_text("utf-8")))
