"""The views of the catalog: its objects, their numbers, and which object uses which.

Each function takes the catalog and returns the rows of one view; `Views` has a method for each.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from konverse.bridge.catalog.catalog import Catalog
from konverse.bridge.catalog.judge import letter_of
from konverse.schemas.catalog.objects import Contract, MessageType, Queue, Service
from konverse.schemas.catalog.priorities import ANY, BrokerPriority
from konverse.schemas.catalog.routes import NEVER, Route
from konverse.schemas.identifiers import Role

from .rows import (
    ConversationPriorityRow,
    DatabaseRow,
    RouteRow,
    ServiceContractMessageUsageRow,
    ServiceContractRow,
    ServiceContractUsageRow,
    ServiceMessageTypeRow,
    ServiceQueueRow,
    ServiceQueueUsageRow,
    ServiceRow,
)

_DESCRIPTIONS: Final = {"A": "AVRO", "E": "EMPTY", "J": "JSON_SCHEMA", "N": "NONE", "X": "XML"}


def databases(catalog: Catalog) -> list[DatabaseRow]:
    """`sys.databases`."""
    names = sorted({catalog.database, *catalog.databases()})
    brokers = map(catalog.broker_of, names)
    return [DatabaseRow(one.name, one.broker_id, is_broker_enabled=one.enabled) for one in brokers]


def services(catalog: Catalog) -> list[ServiceRow]:
    """`sys.services`."""
    return [
        ServiceRow(service.name, catalog.id_of(Service, service.name), catalog.id_of(Queue, service.queue))
        for service in catalog.all(Service)
    ]


def service_queues(catalog: Catalog) -> list[ServiceQueueRow]:
    """`sys.service_queues`."""
    return [
        ServiceQueueRow(
            queue.name,
            catalog.id_of(Queue, queue.name),
            "SQ",
            "SERVICE_QUEUE",
            is_receive_enabled=queue.status,
            is_retention_enabled=queue.retention,
            is_poison_message_handling_enabled=queue.poison_message_handling,
        )
        for queue in catalog.all(Queue)
    ]


def service_contracts(catalog: Catalog) -> list[ServiceContractRow]:
    """`sys.service_contracts`."""
    return [ServiceContractRow(each.name, catalog.id_of(Contract, each.name)) for each in catalog.all(Contract)]


def service_message_types(catalog: Catalog) -> list[ServiceMessageTypeRow]:
    """`sys.service_message_types`."""
    letters = {each.name: letter_of(catalog, each.name) for each in catalog.all(MessageType)}
    return [
        ServiceMessageTypeRow(name, catalog.id_of(MessageType, name), letter, _DESCRIPTIONS[letter])
        for name, letter in letters.items()
    ]


def service_contract_message_usages(catalog: Catalog) -> list[ServiceContractMessageUsageRow]:
    """`sys.service_contract_message_usages`."""
    return [
        ServiceContractMessageUsageRow(
            catalog.id_of(Contract, contract.name),
            catalog.id_of(MessageType, name),
            sent_by.allows(Role.INITIATOR),
            sent_by.allows(Role.TARGET),
        )
        for contract in catalog.all(Contract)
        for name, sent_by in sorted(contract.sent_by.items())
    ]


def service_contract_usages(catalog: Catalog) -> list[ServiceContractUsageRow]:
    """`sys.service_contract_usages`."""
    return [
        ServiceContractUsageRow(catalog.id_of(Service, service.name), catalog.id_of(Contract, name))
        for service in catalog.all(Service)
        for name in service.contracts
    ]


def service_queue_usages(catalog: Catalog) -> list[ServiceQueueUsageRow]:
    """`sys.service_queue_usages`."""
    return [
        ServiceQueueUsageRow(catalog.id_of(Service, service.name), catalog.id_of(Queue, service.queue))
        for service in catalog.all(Service)
    ]


def routes(catalog: Catalog) -> list[RouteRow]:
    """`sys.routes`."""
    return [
        RouteRow(
            route.name,
            catalog.id_of(Route, route.name),
            route.service_name or None,
            route.broker_instance or None,
            None if route.expires_ms == NEVER else datetime.fromtimestamp(route.expires_ms / 1000, UTC),
            route.address,
            route.mirror_address or None,
        )
        for route in catalog.all(Route)
    ]


def conversation_priorities(catalog: Catalog) -> list[ConversationPriorityRow]:
    """`sys.conversation_priorities`."""
    return [
        ConversationPriorityRow(
            catalog.id_of(BrokerPriority, each.name),
            each.name,
            None if each.contract == ANY else catalog.id_of(Contract, each.contract),
            None if each.local_service == ANY else catalog.id_of(Service, each.local_service),
            None if each.remote_service == ANY else each.remote_service,
            each.level,
        )
        for each in catalog.all(BrokerPriority)
    ]
