"""The rows of the views: Service Broker's columns, under its names and in its order.

Left out of all of them: `principal_id` and what else tells of owners, keys and permissions (there are none), and what
tells of fragments and of messages that came out of order (a message is one record, and a fold takes them in order).
None is Service Broker's NULL. Times are UTC. Ids of conversations and groups are UUIDs; the numbers of catalog objects
are described at `Catalog.id_of`, and None where the object was dropped.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from konverse.bridge.client.outgoing import _told


class ConversationEndpointRow(NamedTuple):
    """`sys.conversation_endpoints`: one side of a conversation."""

    conversation_handle: UUID
    """The same as `conversation_id`, which every call takes: both sides know the conversation by it (41)."""
    conversation_id: UUID
    """Unique together with `is_initiator`."""
    is_initiator: bool
    service_contract_id: int | None
    conversation_group_id: UUID | None
    service_id: int | None
    lifetime: datetime | None
    """When the conversation expires; None: never."""
    state: str
    """Two letters. Of what a client sends directly its side learns by the first answer: it is "SO" until then (44)."""
    state_desc: str
    """The same, in words: "CONVERSING" …"""
    far_service: str | None
    far_broker_instance: str
    """The `service_broker_guid` of this database: both sides of a dialog are in it (42)."""
    dialog_timer: datetime | None
    """When the conversation timer of this side fires; None: it is not set."""
    send_sequence: int | None
    """Number of the next message of this side; None where the client that began the dialog counts them."""
    receive_sequence: int
    """Number of the next message that is expected."""
    is_system: bool
    priority: int


class ConversationGroupRow(NamedTuple):
    """`sys.conversation_groups`: a group as long as a conversation of it lives (behaviour 93)."""

    conversation_group_id: UUID
    service_id: int | None
    is_system: bool


class QueueRow(NamedTuple):
    """A message in a queue, with the columns of RECEIVE (behaviours 25, 86)."""

    status: int
    """1: ready. 2: not complete, a row of a Spark batch that is not decided yet. Nothing is retained: never 0 or 3."""
    priority: int
    queuing_order: int
    """Offset in the data log of its partition."""
    conversation_group_id: UUID
    conversation_handle: UUID
    message_sequence_number: int | None
    """-1: a DialogTimer or an Error, which overtake and are not counted. None: not counted yet."""
    service_name: str | None
    """The service that receives it; None: not known before the batch with its conversation is decided."""
    service_id: int | None
    service_contract_name: str | None
    service_contract_id: int | None
    message_type_name: str
    message_type_id: int | None
    validation: str
    """E for empty, N for anything, X for XML: what its type says of bodies now."""
    message_body: bytes
    """Empty when none was sent."""
    message_id: str
    """As `Message.id` has it."""

    def __repr__(self) -> str:
        return _told(self.message_type_name, self.message_sequence_number, self.conversation_handle, self.message_body)


class DatabaseRow(NamedTuple):
    """`sys.databases`, what of it is Service Broker's."""

    name: str
    service_broker_guid: str
    """The broker id: of the name of the database and the catalog of its instance, for as long as that lives."""


class ServiceRow(NamedTuple):
    """`sys.services`."""

    name: str
    service_id: int | None
    service_queue_id: int | None


class ServiceQueueRow(NamedTuple):
    """`sys.service_queues`."""

    name: str
    object_id: int | None
    type: str
    """"SQ"."""
    type_desc: str
    """"SERVICE_QUEUE"."""
    is_receive_enabled: bool
    """STATUS is ON."""
    is_retention_enabled: bool
    is_poison_message_handling_enabled: bool
    """Always: a conversation that fails is suspended, and the others go on."""


class ServiceContractRow(NamedTuple):
    """`sys.service_contracts`."""

    name: str
    service_contract_id: int | None


class ServiceMessageTypeRow(NamedTuple):
    """`sys.service_message_types`, those of the system among them (behaviour 8)."""

    name: str
    message_type_id: int | None
    validation: str
    """E, N or X; J for JSON Schema, A for Avro."""
    validation_desc: str
    """"EMPTY", "NONE" or "XML"."""


class ServiceContractMessageUsageRow(NamedTuple):
    """`sys.service_contract_message_usages`: a message type in a contract."""

    service_contract_id: int | None
    message_type_id: int | None
    is_sent_by_initiator: bool
    is_sent_by_target: bool


class ServiceContractUsageRow(NamedTuple):
    """`sys.service_contract_usages`: a contract for which a service may be a target."""

    service_id: int | None
    service_contract_id: int | None


class ServiceQueueUsageRow(NamedTuple):
    """`sys.service_queue_usages`: the queue of a service."""

    service_id: int | None
    service_queue_id: int | None


class RouteRow(NamedTuple):
    """`sys.routes`: where a service is found."""

    name: str
    route_id: int | None
    remote_service_name: str | None
    """None: any service."""
    broker_instance: str | None
    """None: any database."""
    lifetime: datetime | None
    """When it stops being used; None: never."""
    address: str
    """`LOCAL`, `TRANSPORT`, or `TCP://host:port`."""
    mirror_address: str | None


class ConversationPriorityRow(NamedTuple):
    """`sys.conversation_priorities`: None stands for ANY."""

    priority_id: int | None
    name: str
    service_contract_id: int | None
    local_service_id: int | None
    remote_service_name: str | None
    priority: int
