"""The rows of the views: Service Broker's columns, under its names and in its order.

Columns about owners, keys and permissions (such as `principal_id`) are left out, because konverse has none of these.
So are columns about fragments and messages out of order: a message is one record, and a fold takes records in order.
None is Service Broker's NULL. Times are UTC. Ids of conversations and groups are UUIDs. `Catalog.id_of` describes the
numbers of catalog objects; they are None where the object was dropped.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from konverse.bridge.client.outgoing import describe_message


class ConversationEndpointRow(NamedTuple):
    """`sys.conversation_endpoints`: one side of a conversation."""

    conversation_handle: UUID
    """The same as `conversation_id`: both sides, and every call, use one id for the conversation (41)."""
    conversation_id: UUID
    """Unique together with `is_initiator`."""
    is_initiator: bool
    service_contract_id: int | None
    conversation_group_id: UUID | None
    service_id: int | None
    lifetime: datetime | None
    """When the conversation expires; None: never."""
    state: str
    """Two letters. "SO" until the first answer if a client sends directly, which its endpoint cannot see (44)."""
    state_desc: str
    """The state in words: "CONVERSING" and so on."""
    far_service: str | None
    far_broker_instance: str | None
    """The `service_broker_guid` of the other side's database (42); None where Redis does not say which it is."""
    dialog_timer: datetime | None
    """When the conversation timer of this side fires; None: it is not set."""
    send_sequence: int | None
    """Sequence number of this side's next message; None where the client that began the dialog counts them."""
    receive_sequence: int
    """Sequence number of the next expected message."""
    is_system: bool
    priority: int


class ConversationGroupRow(NamedTuple):
    """`sys.conversation_groups`: a group exists as long as one of its conversations (behaviour 93)."""

    conversation_group_id: UUID
    service_id: int | None
    is_system: bool


class QueueRow(NamedTuple):
    """A message in a queue, with the columns of RECEIVE (behaviours 25, 86)."""

    status: int
    """1: ready. 2: not complete, a row of an undecided Spark batch. Never 0 or 3, because nothing is retained."""
    priority: int
    queuing_order: int
    """Offset in the data log of its partition."""
    conversation_group_id: UUID
    conversation_handle: UUID
    message_sequence_number: int | None
    """-1: a DialogTimer or an Error, which overtake messages and have no number. None: no number yet."""
    service_name: str | None
    """The receiving service; None: unknown until the Spark batch that begins the conversation is decided."""
    service_id: int | None
    service_contract_name: str | None
    service_contract_id: int | None
    message_type_name: str
    message_type_id: int | None
    validation: str
    """Validation of the message type at present: E for empty, N for none, X for XML; J for JSON Schema, A for Avro."""
    message_body: bytes
    """Empty when none was sent."""
    message_id: str
    """The same as `Message.id`."""

    def __repr__(self) -> str:
        return describe_message(
            self.message_type_name, self.message_sequence_number, self.conversation_handle, self.message_body
        )


class DatabaseRow(NamedTuple):
    """`sys.databases`, with the columns of Service Broker."""

    name: str
    service_broker_guid: str
    """The broker id."""
    is_broker_enabled: bool


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
    """Always True: a conversation that fails is suspended, and the others continue."""


class ServiceContractRow(NamedTuple):
    """`sys.service_contracts`."""

    name: str
    service_contract_id: int | None


class ServiceMessageTypeRow(NamedTuple):
    """`sys.service_message_types`, the system's own types included (behaviour 8)."""

    name: str
    message_type_id: int | None
    validation: str
    """E, N or X; J for JSON Schema, A for Avro."""
    validation_desc: str
    """"EMPTY", "NONE" or "XML"; "JSON_SCHEMA" or "AVRO"."""


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
    """`sys.routes`: the address of a service."""

    name: str
    route_id: int | None
    remote_service_name: str | None
    """None: any service."""
    broker_instance: str | None
    """None: any database."""
    lifetime: datetime | None
    """When the route expires; None: never."""
    address: str
    """`LOCAL`, `TRANSPORT`, or a network address, as it was written."""
    mirror_address: str | None


class ConversationPriorityRow(NamedTuple):
    """`sys.conversation_priorities`: None stands for ANY."""

    priority_id: int | None
    name: str
    service_contract_id: int | None
    local_service_id: int | None
    remote_service_name: str | None
    priority: int
