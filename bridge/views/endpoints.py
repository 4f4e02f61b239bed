"""Rows of conversation endpoints and groups, from the packed rows in Redis or from the folded state."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final
from uuid import UUID

from konverse.bridge.catalog.catalog import Catalog
from konverse.dialog.owner.view import ViewRow, field_of, pack, unpack
from konverse.dialog.state.endpoint import NO_TIME, Endpoint
from konverse.dialog.state.partition import Partition
from konverse.schemas.catalog.objects import Contract, Service
from konverse.schemas.identifiers import Role
from konverse.schemas.levels import DEFAULT_LEVEL

from .rows import ConversationEndpointRow, ConversationGroupRow

NOT_IN_REDIS: Final = frozenset(
    ("service_contract_id", "conversation_group_id", "service_id", "lifetime", "far_service", "priority")
)
"""Columns of `conversation_endpoints` that only the folded logs have."""

_NO_OFFSET: Final = bytes(8)


def shown_endpoint(row: ViewRow, far_broker_id: str | None) -> ConversationEndpointRow:
    """The row of an endpoint, from its packed row. Columns of NOT_IN_REDIS are None; the priority is the default."""
    return ConversationEndpointRow(
        row.conversation,
        row.conversation,
        row.role is Role.INITIATOR,
        None,
        None,
        None,
        None,
        row.state.code,
        row.state.name,
        None,
        far_broker_id,
        time_of(row.timer_due_ms),
        None if row.send_sequence < 0 else row.send_sequence,
        row.receive_sequence,
        is_system=False,
        priority=DEFAULT_LEVEL,
    )


def endpoints(state: Partition, catalog: Catalog) -> Iterator[ConversationEndpointRow]:
    """Rows of all endpoints of a partition, with every column."""
    far_ids: dict[str, str | None] = {}
    for endpoint in state.live():
        row = unpack(field_of(endpoint), _NO_OFFSET + pack(endpoint))
        topic = endpoint.stream.address.topic
        if topic not in far_ids:
            database = catalog.database_of(topic)
            far_ids[topic] = None if database is None else str(catalog.broker_id_of(database))
        yield shown_endpoint(row, far_ids[topic])._replace(
            service_contract_id=catalog.id_of(Contract, endpoint.contract),
            conversation_group_id=UUID(bytes=endpoint.group_id),
            service_id=catalog.id_of(Service, endpoint.service),
            far_service=endpoint.far_service,
            priority=endpoint.level,
            lifetime=time_of(NO_TIME if endpoint.clock is None else endpoint.clock.expires_ms),
        )


def time_of(time_ms: int) -> datetime | None:
    """The time at which a timer fires or a lifetime is over; None for NO_TIME."""
    return None if time_ms == NO_TIME else datetime.fromtimestamp(time_ms / 1000, UTC)


def groups(state: Partition, catalog: Catalog) -> Iterator[ConversationGroupRow]:
    """Rows of the conversation groups of a partition."""
    first: dict[bytes, Endpoint] = {}
    for endpoint in state.live():
        first.setdefault(endpoint.group_id, endpoint)
    for group, endpoint in first.items():
        yield ConversationGroupRow(UUID(bytes=group), catalog.id_of(Service, endpoint.service), is_system=False)
