"""Undelivered messages, at any stage of their delivery, as rows of `sys.transmission_queue`."""

from __future__ import annotations

from typing import Final, NamedTuple
from uuid import UUID

from konverse.dialog.state.endpoint import Endpoint
from konverse.schemas.counting import counted
from konverse.schemas.identifiers import Role
from konverse.schemas.levels import DEFAULT_LEVEL
from konverse.schemas.system_messages import END_DIALOG, ERROR
from konverse.schemas.wire.records import NO_SEQUENCE, Begin, Kind

APPLICATION_KINDS: Final = (Kind.MESSAGE, Kind.END, Kind.ERROR, Kind.END_CALL)
"""Records that an application sent. Control records of konverse are not shown in the view."""


_UNKNOWN: Final = (None, None, None, DEFAULT_LEVEL, None)


class Names(NamedTuple):
    """Services, contract and priority, as seen from the sending side."""

    service: str
    far_service: str
    contract: str
    level: int = DEFAULT_LEVEL
    """Priority of the sending side, known once its endpoint exists."""
    broker_instance: str | None = None
    """The broker id that BEGIN DIALOG named, where the BEGIN is known."""

    @classmethod
    def of(cls, begin: Begin) -> Names:
        """The names of the initiator's side."""
        names = begin.from_service, begin.to_service, begin.contract
        return cls(*names, broker_instance=begin.broker_instance)

    @classmethod
    def at(cls, endpoint: Endpoint) -> Names:
        """The names of an endpoint's side."""
        return cls(endpoint.service, endpoint.far_service, endpoint.contract, endpoint.level)


class Outgoing(NamedTuple):
    """A message, an EndDialog or an Error on its way."""

    conversation: bytes
    role: Role
    """The sending side."""
    kind: Kind
    """One of `APPLICATION_KINDS`."""
    message_type: str
    sequence: int
    """NO_SEQUENCE when none is known yet."""
    body: bytes | None
    names: Names | None
    """None when they must be looked up at the sending side's endpoint."""
    status: str

    @property
    def is_error(self) -> bool:
        """Whether it is an Error, which fails the conversation."""
        return self.kind is Kind.ERROR or (self.kind is Kind.END_CALL and self.body is not None)

    def row(self, names: Names | None) -> TransmissionQueueRow:
        """The row of the view; `names` is used when the record itself has none."""
        service, far_service, contract, level, broker_instance = self.names or names or _UNKNOWN
        ends = self.kind is not Kind.MESSAGE
        return TransmissionQueueRow(
            UUID(bytes=self.conversation),
            far_service,
            broker_instance,
            service,
            contract,
            None if self.sequence == NO_SEQUENCE else self.sequence,
            (ERROR if self.is_error else END_DIALOG) if ends else self.message_type,
            is_conversation_error=self.is_error,
            is_end_of_dialog=ends and not self.is_error,
            message_body=self.body or b"",
            transmission_status=self.status,
            priority=level,
        )


def missing_names(found: list[Outgoing]) -> set[tuple[Role, bytes]]:
    """The sides (role, conversation) whose names must be looked up."""
    return {(one.role, one.conversation) for one in found if one.names is None}


class TransmissionQueueRow(NamedTuple):
    """`sys.transmission_queue`: a message that is not known to have arrived. There is no `enqueue_time`."""

    conversation_handle: UUID
    to_service_name: str | None
    """None, like the next columns, when the conversation is forgotten or lives in another database."""
    to_broker_instance: str | None
    """The broker id that the dialog names; None: it names none, or the record does not tell."""
    from_service_name: str | None
    service_contract_name: str | None
    message_sequence_number: int | None
    """None when the message gets its number only on delivery."""
    message_type_name: str
    is_conversation_error: bool
    is_end_of_dialog: bool
    message_body: bytes
    """Empty when there is none."""
    transmission_status: str
    """Why it is held up; empty when it is on its way."""
    priority: int

    def __repr__(self) -> str:
        return describe_message(
            self.message_type_name, self.message_sequence_number, self.conversation_handle, self.message_body
        )


def describe_message(message_type: str, sequence: int | None, conversation: UUID, body: bytes) -> str:
    """A description of a message for logs, without its body."""
    return f"<{message_type} #{sequence} of {conversation}, {counted(len(body), 'byte')}>"
