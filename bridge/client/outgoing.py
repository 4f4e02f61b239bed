"""What was said on a conversation and is not known to have arrived, wherever it stands on its way."""

from __future__ import annotations

from typing import Final, NamedTuple
from uuid import UUID

from konverse.dialog.state.endpoint import Endpoint
from konverse.schemas.identifiers import Role
from konverse.schemas.levels import DEFAULT_LEVEL
from konverse.schemas.system_messages import END_DIALOG, ERROR
from konverse.schemas.wire.records import NO_SEQUENCE, Begin, Kind

SAID: Final = (Kind.MESSAGE, Kind.END, Kind.ERROR, Kind.END_CALL)
"""What an application has said. What the parts of konverse tell each other does not stand in the view."""


class Names(NamedTuple):
    """Who talks to whom, seen from the side that has said something."""

    service: str
    far_service: str
    contract: str
    level: int = DEFAULT_LEVEL
    """The priority of that side, once it lives."""

    @classmethod
    def of(cls, begin: Begin) -> Names:
        """As the side that begins has them."""
        return cls(begin.from_service, begin.to_service, begin.contract)

    @classmethod
    def at(cls, endpoint: Endpoint) -> Names:
        """As an endpoint has them."""
        return cls(endpoint.service, endpoint.far_service, endpoint.contract, endpoint.level)


class Outgoing(NamedTuple):
    """A message, an EndDialog or an Error on its way."""

    conversation: bytes
    role: Role
    """The side that has said it."""
    kind: Kind
    """One of SAID."""
    message_type: str
    sequence: int
    """NO_SEQUENCE where it has none yet."""
    body: bytes | None
    names: Names | None
    """None where they have to be looked up."""
    status: str

    @property
    def is_error(self) -> bool:
        """Whether the conversation failed with it."""
        return self.kind is Kind.ERROR or (self.kind is Kind.END_CALL and self.body is not None)

    def row(self, names: Names | None) -> TransmissionQueueRow:
        """The row of the view; `names` are those that were looked up."""
        service, far_service, contract, level = self.names or names or (None, None, None, DEFAULT_LEVEL)
        ends = self.kind is not Kind.MESSAGE
        return TransmissionQueueRow(
            UUID(bytes=self.conversation),
            far_service,
            None,
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
    """The sides whose names have to be looked up."""
    return {(one.role, one.conversation) for one in found if one.names is None}


class TransmissionQueueRow(NamedTuple):
    """`sys.transmission_queue`: a message that is not known to have arrived. Nobody keeps `enqueue_time`."""

    conversation_handle: UUID
    to_service_name: str | None
    """None, as the next ones: its conversation is forgotten, or lives in another database."""
    to_broker_instance: str | None
    """None: none was named."""
    from_service_name: str | None
    service_contract_name: str | None
    message_sequence_number: int | None
    """None: it has none before it is delivered."""
    message_type_name: str
    is_conversation_error: bool
    is_end_of_dialog: bool
    message_body: bytes
    """Empty when there is none."""
    transmission_status: str
    """What keeps it; empty: nothing does, it is on its way."""
    priority: int

    def __repr__(self) -> str:
        return _told(self.message_type_name, self.message_sequence_number, self.conversation_handle, self.message_body)


def _told(message_type: str, sequence: int | None, conversation: UUID, body: bytes) -> str:
    """What a log may have of a message: not its body."""
    return f"<{message_type} #{sequence} of {conversation}, {len(body)} bytes>"
