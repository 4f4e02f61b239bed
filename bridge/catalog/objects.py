"""The kinds of catalog objects: their names, their defining fields, and the objects that every database starts with."""

from __future__ import annotations

from collections.abc import Mapping
from reprlib import Repr
from typing import Final

from konverse.schemas.catalog.objects import (
    CatalogObject,
    Contract,
    DatabaseBroker,
    MessageType,
    Queue,
    SentBy,
    Service,
    Validation,
)
from konverse.schemas.catalog.priorities import BrokerPriority
from konverse.schemas.catalog.routes import AUTO_CREATED_LOCAL, LOCAL, Route
from konverse.schemas.catalog.routing_tables import RoutingTable
from konverse.schemas.catalog.schema_collections import XmlSchemaCollection
from konverse.schemas.catalog.table_entries import Entries
from konverse.schemas.counting import counted
from konverse.schemas.errors import (
    ContractNotFound,
    MessageTypeNotFound,
    PriorityNotFound,
    QueueNotFound,
    RouteNotFound,
    RoutingTableNotFound,
    SchemaCollectionNotFound,
    ServiceNotFound,
    UnknownObject,
)
from konverse.schemas.system_messages import DEFAULT, DIALOG_TIMER, END_DIALOG, ERROR

MISSING: Final[dict[type, type[UnknownObject]]] = {
    MessageType: MessageTypeNotFound,
    XmlSchemaCollection: SchemaCollectionNotFound,
    Contract: ContractNotFound,
    Queue: QueueNotFound,
    Service: ServiceNotFound,
    Route: RouteNotFound,
    BrokerPriority: PriorityNotFound,
    RoutingTable: RoutingTableNotFound,
}
"""Kind -> error for a name that does not exist."""

_KINDS: Final[dict[type[object], str]] = {
    MessageType: "message type",
    XmlSchemaCollection: "XML schema collection",
    Contract: "contract",
    Queue: "queue",
    Service: "service",
    Route: "route",
    BrokerPriority: "broker priority",
    RoutingTable: "routing table",
    DatabaseBroker: "database",
}

_DEFINITION: Final[dict[type[object], tuple[str, ...]]] = {
    MessageType: ("validation", "schema_collection", "schema"),
    XmlSchemaCollection: ("documents",),
    Contract: ("sent_by",),
    Queue: ("partitions", "keep_ms", "status", "retention", "poison_message_handling"),
    Service: ("queue", "contracts"),
    Route: ("address", "service_name", "broker_instance", "mirror_address"),
    BrokerPriority: ("contract", "local_service", "remote_service", "level"),
    RoutingTable: ("entries", "default", "routers"),
}
"""Kind -> fields that its CREATE sets. A route's expiry is left out, because it is counted from the creation."""

SYSTEM_TYPES: Final = frozenset({END_DIALOG, ERROR, DIALOG_TIMER})

BORN_WITH: Final[dict[tuple[str, str], CatalogObject]] = {
    ("message type", DEFAULT): MessageType(DEFAULT),
    ("message type", END_DIALOG): MessageType(END_DIALOG, Validation.EMPTY),
    ("message type", DIALOG_TIMER): MessageType(DIALOG_TIMER, Validation.EMPTY),
    ("message type", ERROR): MessageType(ERROR, Validation.WELL_FORMED_XML),
    ("contract", DEFAULT): Contract(DEFAULT, {DEFAULT: SentBy.ANY}),
    ("route", AUTO_CREATED_LOCAL): Route(AUTO_CREATED_LOCAL, LOCAL),
}
"""Objects that every database starts with. Only the route can be dropped (behaviours 8, 155)."""

_SHORT: Final = Repr()
_SHORT.maxstring = 60


def kind_of(value: type[object]) -> str:
    """The kind of a class in words: `message type`, `XML schema collection` and so on."""
    return _KINDS[value]


def creator_of(value: type[object]) -> str:
    """The broker method that creates an object of this class, such as `create_message_type`."""
    return f"create_{kind_of(value).replace(' ', '_').lower()}"


def differences(found: CatalogObject, wanted: CatalogObject) -> str:
    """Text that names the differing fields of two definitions and their values; empty when they are equal."""
    words = []
    for name in _DEFINITION[type(found)]:
        is_, should_be = getattr(found, name), getattr(wanted, name)
        if type(is_) is tuple:  # names, in any order
            is_, should_be = sorted(is_), sorted(should_be)
        if is_ != should_be:
            words.append(f"{name} {_said(is_)}, not {_said(should_be)}")
    return "; ".join(words)


def _said(value: object) -> str:
    if isinstance(value, Entries):
        return f"with {counted(len(value), 'key')}"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name!r}: {side.value!r}" for name, side in sorted(value.items())) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_said, value)) + "]"
    return _SHORT.repr(value) if isinstance(value, str) and len(value) > _SHORT.maxstring else repr(value)
